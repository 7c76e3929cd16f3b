package simulation

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
)

// Form is how the processes of a run are written.
type Form string

const (
	FormProcessor Form = "processor" // with package processor
	FormClosure   Form = "closure"   // with Producer.InTransaction
	FormExplicit  Form = "explicit"  // with Begin, Commit and Abort

	// FormAcknowledger is with package acknowledger: outputs are kept elsewhere.
	FormAcknowledger Form = "acknowledger"
)

// Handler is what a Processor calls.
type Handler string

const (
	HandlerEach  Handler = "each"  // for one record at a time
	HandlerBatch Handler = "batch" // for all of a poll
)

// Setup is what a run has from the start to the end.
type Setup struct {
	Guarantee   processor.Guarantee
	Profile     sharetxn.Profile // with Staged
	Form        Form             // with Staged; other guarantees are the Processor's
	Handler     Handler          // of a Processor
	Brokers     int
	Partitions  int           // of topic "in"
	Lock        time.Duration // of acquired records
	Limit       int           // of deliveries
	Timeout     time.Duration // of transactions
	Resolve     time.Duration // of unknown outcomes; a Processor has its own
	Members     int           // of each process
	Concurrency int           // of handlers; of a Processor
	Batch       int           // records of a transaction
	IDs         int           // transactional ids in turn; a Processor has its own, an acknowledger one
}

func defaults() Setup {
	return Setup{
		Guarantee: processor.Staged, Profile: sharetxn.ProfileDraft95, Form: FormProcessor, Handler: HandlerEach, Brokers: 3, Partitions: 3,
		Lock: 15 * time.Second, Limit: 10, Timeout: 10 * time.Second, Resolve: 30 * time.Second, Members: 1, Concurrency: 1, Batch: 20, IDs: 1,
	}
}

// field is one line of a script's set-up.
type field struct {
	name string
	get  func(*Setup) string
	set  func(*Setup, string) error
}

var fields = []field{
	{"guarantee", func(s *Setup) string { return s.Guarantee.String() }, func(s *Setup, v string) (err error) {
		s.Guarantee, err = processor.ParseGuarantee(v)
		return err
	}},
	{"profile", func(s *Setup) string { return s.Profile.String() }, func(s *Setup, v string) error {
		for _, p := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
			if p.String() == v {
				s.Profile = p
				return nil
			}
		}
		return fmt.Errorf("%q is no profile that can be simulated", v)
	}},
	{"form", func(s *Setup) string { return string(s.Form) }, func(s *Setup, v string) error {
		switch f := Form(v); f {
		case FormProcessor, FormClosure, FormExplicit, FormAcknowledger:
			s.Form = f
			return nil
		}
		return fmt.Errorf("%q is no form", v)
	}},
	{"handler", func(s *Setup) string { return string(s.Handler) }, func(s *Setup, v string) error {
		switch h := Handler(v); h {
		case HandlerEach, HandlerBatch:
			s.Handler = h
			return nil
		}
		return fmt.Errorf("%q is no handler", v)
	}},
	number("brokers", 1, 5, func(s *Setup) *int { return &s.Brokers }),
	number("partitions", 1, 20, func(s *Setup) *int { return &s.Partitions }),
	length("lock", func(s *Setup) *time.Duration { return &s.Lock }),
	number("limit", 2, 10, func(s *Setup) *int { return &s.Limit }),
	length("timeout", func(s *Setup) *time.Duration { return &s.Timeout }),
	length("resolve", func(s *Setup) *time.Duration { return &s.Resolve }),
	number("members", 1, 10, func(s *Setup) *int { return &s.Members }),
	number("concurrency", 1, 100, func(s *Setup) *int { return &s.Concurrency }),
	number("batch", 1, 1000, func(s *Setup) *int { return &s.Batch }),
	number("ids", 1, 16, func(s *Setup) *int { return &s.IDs }),
}

func number(name string, low, high int, of func(*Setup) *int) field {
	return field{name, func(s *Setup) string { return strconv.Itoa(*of(s)) }, func(s *Setup, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is no number from %d to %d", v, low, high)
		}
		*of(s) = n
		return nil
	}}
}

func length(name string, of func(*Setup) *time.Duration) field {
	return field{name, func(s *Setup) string { return of(s).String() }, func(s *Setup, v string) error {
		d, err := time.ParseDuration(v)
		if err != nil || d <= 0 || d > time.Minute {
			return fmt.Errorf("%q is no duration up to a minute", v)
		}
		*of(s) = d
		return nil
	}}
}

// Fields are the names that a script may set.
func Fields() (names []string) {
	for _, f := range fields {
		names = append(names, f.name)
	}
	return names
}

func (s *Setup) set(name, value string) error {
	for _, f := range fields {
		if f.name != name {
			continue
		}
		if err := f.set(s, value); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
		return nil
	}
	return fmt.Errorf("there is no field %q; there are %q", name, Fields())
}

func (s *Setup) check() error {
	switch {
	case s.Handler == HandlerBatch && s.Form != FormProcessor:
		return fmt.Errorf("handler batch: form %s has no handler", s.Form)
	case s.Handler == HandlerBatch && s.Concurrency != 1:
		return fmt.Errorf("handler batch: concurrency %d, and it is called once at a time", s.Concurrency)
	case s.Guarantee != processor.Staged && s.Form != FormProcessor:
		return fmt.Errorf("form %s: guarantee %v is the Processor's", s.Form, s.Guarantee)
	}
	return nil
}

// kind is what statistics are kept by.
func (s *Setup) kind() string {
	if s.Guarantee == processor.Staged {
		return s.Profile.String()
	}
	return s.Guarantee.String()
}
