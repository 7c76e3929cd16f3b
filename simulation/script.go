package simulation

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Script is one run.
type Script struct {
	Setup Setup
	Ops   []Op // in order of time
}

// Op is one operation: its time since the start, its verb and its arguments.
type Op struct {
	At   time.Duration
	Verb string
	Args []string

	do func(*world)
}

func (o Op) String() string {
	return strings.Join(append([]string{o.At.String(), o.Verb}, o.Args...), " ")
}

// op makes an operation of text.
func op(at time.Duration, words ...string) (Op, error) {
	o := Op{At: at, Verb: words[0], Args: words[1:]}
	v, ok := verbs[o.Verb]
	if !ok {
		return o, fmt.Errorf("there is no operation %q; there are %q", o.Verb, Verbs())
	}
	a := arguments{left: o.Args}
	do := v.compile(&a)
	if err := a.end(); err != nil {
		return o, fmt.Errorf("%s: %w; it is: %s %s", o.Verb, err, o.Verb, v.usage)
	}
	o.do = do
	return o, nil
}

// String is the script as Parse reads it.
func (s Script) String() string {
	var b strings.Builder
	for _, f := range fields {
		fmt.Fprintf(&b, "set %s %s\n", f.name, f.get(&s.Setup))
	}
	for _, o := range s.Ops {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// Parse reads a script. Lines that are empty or begin with # are left out; a field
// that is not set has its default. Operations may stand in any order.
func Parse(r io.Reader) (Script, error) {
	s := Script{Setup: defaults()}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		words := strings.Fields(lines.Text())
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if err := s.line(words); err != nil {
			return s, fmt.Errorf("line %d: %w", n, err)
		}
	}
	if err := lines.Err(); err != nil {
		return s, err
	}
	slices.SortStableFunc(s.Ops, func(a, b Op) int { return cmp.Compare(a.At, b.At) })
	return s, s.Setup.check()
}

func (s *Script) line(words []string) error {
	if words[0] == "set" {
		if len(words) != 3 {
			return fmt.Errorf("set: want a field and a value, of %q", Fields())
		}
		return s.Setup.set(words[1], words[2])
	}
	at, err := time.ParseDuration(words[0])
	if err != nil || at < 0 {
		return fmt.Errorf("%q is neither set nor a time since the start", words[0])
	}
	if len(words) == 1 {
		return fmt.Errorf("no operation at %v; there are %q", at, Verbs())
	}
	o, err := op(at, words[1:]...)
	if err != nil {
		return err
	}
	s.Ops = append(s.Ops, o)
	return nil
}
