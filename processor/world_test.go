package processor_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// setting is a guarantee and the brokers to keep it on.
type setting struct {
	guarantee processor.Guarantee
	profile   sharetxn.Profile // zero: brokers that look like stock Kafka 4.4
}

func (s setting) String() string {
	if s.profile == (sharetxn.Profile{}) {
		return s.guarantee.String()
	}
	return s.profile.String()
}

// concedes tells whether what brokers and networks do may double a record.
func (s setting) concedes() bool { return s.guarantee == processor.AckAfterCommit }

// least is the lowest delivery limit that can be worked with; a record is handled in
// two deliveries of either.
func (s setting) least() int {
	if s.guarantee == processor.Ledger {
		return 3
	}
	return 2
}

// settles is how long what was committed may wait to be acknowledged: for a fetch
// that is parked at the broker.
func (s setting) settles() time.Duration {
	if s.guarantee == processor.Staged {
		return 0
	}
	return time.Second
}

func (s setting) brokers() sharetxntest.Opt {
	if s.profile == (sharetxn.Profile{}) {
		return sharetxntest.StockKafka44()
	}
	return sharetxntest.Profile(s.profile)
}

var (
	draft95  = setting{processor.Staged, sharetxn.ProfileDraft95}
	kip93    = setting{processor.Staged, sharetxn.ProfileKIP93}
	plain    = setting{guarantee: processor.AckAfterCommit}
	ledgered = setting{guarantee: processor.Ledger}
	settings = []setting{draft95, kip93, ledgered, plain}
)

// inAll runs a test in virtual time, with each guarantee. Virtual time never ends
// by itself while members send heartbeats, so each has a deadline of real time,
// at which all goroutines are printed.
func inAll(t *testing.T, test func(t *testing.T, on setting)) {
	for _, s := range settings {
		t.Run(s.String(), func(t *testing.T) {
			testkit.Deadline(t, 3*time.Minute)
			synctest.Test(t, func(t *testing.T) { test(t, s) })
		})
	}
}

// world is a virtual cluster with topics "in" and "out" of three partitions and
// "dead" of one.
type world struct {
	*sharetxntest.Cluster
	setting
	seen   *seen
	harmed bool // by what may double a record where the guarantee concedes it
}

func start(t *testing.T, on setting, opts ...sharetxntest.Opt) *world {
	t.Helper()
	opts = append([]sharetxntest.Opt{
		sharetxntest.Brokers(3), on.brokers(),
		sharetxntest.Topic("in", 3), sharetxntest.Topic("out", 3), sharetxntest.Topic("dead", 1),
	}, opts...)
	w := &world{Cluster: sharetxntest.Start(t, opts...), setting: on, seen: &seen{deliveries: make(map[string]int32), calls: make(map[string]int)}}
	if on.guarantee == processor.Ledger {
		w.ensure(t)
	}
	return w
}

// ensure makes the ledger of group "g".
func (w *world) ensure(t *testing.T) {
	t.Helper()
	if err := ledger.Ensure(t.Context(), w.Connect(t), "g", []string{"in"}); err != nil {
		t.Fatal(err)
	}
}

// record writes a generation into the ledger of group "g".
func (w *world) record(t *testing.T, g processor.Guarantee, number int64) {
	t.Helper()
	is := entry.Generation{Number: number, Guarantee: g.String(), Phase: entry.Active, Group: "g"}
	if err := topic.WriteGeneration(t.Context(), core.Of(w.Connect(t)), "g", is, []int32{0, 1, 2}); err != nil {
		t.Fatal(err)
	}
}

// feed gives topic "in" records with the values "0" to "n-1".
func (w *world) feed(t *testing.T, n int) { w.feedMore(t, 0, n) }

func (w *world) feedMore(t *testing.T, from, n int) {
	t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Value: fmt.Append(nil, from+i)}
	}
	w.Feed(t, rs...)
}

func (w *world) processor(t *testing.T, cfg processor.Config) *processor.Processor {
	t.Helper()
	if cfg.Group == "" {
		cfg.Group = "g"
	}
	cfg.Topics, cfg.Guarantee = []string{"in"}, w.guarantee
	if cfg.Handler == nil && cfg.BatchHandler == nil {
		cfg.Handler = w.seen.handler(nil)
	}
	if !cfg.DeadLetter.Discard {
		cfg.DeadLetter.Topic = "dead"
	}
	if cfg.Instance == "" {
		cfg.Instance = "here"
	}
	p, err := processor.New(w.Connect(t, sharetxn.WithHooks(w.seen)), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run starts a processor; stop ends it and gives what Run returned.
func run(t *testing.T, p *processor.Processor) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return func() error { cancel(); return <-done }
}

// values of a topic as read_committed readers see it.
func (w *world) values(t *testing.T, topic string) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for _, r := range w.Committed(t, topic) {
		out[string(r.Value)]++
	}
	return out
}

// want holds topics "out" and "dead" against: of 0 to n-1 those named are dead
// letters, all others outputs, each once.
func (w *world) want(t *testing.T, n int, dead ...string) {
	t.Helper()
	isDead := make(map[string]bool)
	for _, d := range dead {
		isDead[d] = true
	}
	out, letters := w.values(t, "out"), w.values(t, "dead")
	for i := range n {
		v := fmt.Sprint(i)
		wantOut, wantDead := 1, 0
		if isDead[v] {
			wantOut, wantDead = 0, 1
		}
		if w.harmed && w.concedes() && out[v]+letters[v] > 1 {
			delete(out, v)
			delete(letters, v)
			continue
		}
		if out[v] != wantOut || letters[v] != wantDead {
			t.Errorf("record %s: %d outputs and %d dead letters, want %d and %d", v, out[v], letters[v], wantOut, wantDead)
		}
		delete(out, v)
		delete(letters, v)
	}
	if len(out)+len(letters) > 0 {
		t.Errorf("outputs %v and dead letters %v of no record", out, letters)
	}
	w.audit(t, "out", "dead")
}

// audit holds the brokers' own story against what was promised. It can tell
// which transaction acknowledged a record only where that was staged.
func (w *world) audit(t *testing.T, outputs ...string) {
	t.Helper()
	if w.guarantee != processor.AckAfterCommit {
		w.AssertExactlyOnce(t, "g", outputs...)
	}
}

// seen is what handlers and hooks saw.
type seen struct {
	mu         sync.Mutex
	deliveries map[string]int32 // highest delivery count by value
	calls      map[string]int
	ends       []sharetxn.TxnEnd
	at         time.Time // of the last of them
	verdicts   map[string]int
	ledger     []sharetxn.LedgerEvent
}

func (s *seen) handler(extra processor.Handler) processor.Handler {
	return func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
		s.note(in)
		if extra != nil {
			return extra(ctx, in)
		}
		return copyOf(in), nil
	}
}

func (s *seen) note(in *processor.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := string(in.Value)
	s.calls[v]++
	s.deliveries[v] = max(s.deliveries[v], in.DeliveryCount)
}

func (s *seen) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

func (s *seen) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ends, s.at = append(s.ends, e), time.Now()
}

func (s *seen) OnHandled(_ context.Context, e sharetxn.Handled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.verdicts == nil {
		s.verdicts = make(map[string]int)
	}
	s.verdicts[e.Verdict]++
}

func (s *seen) count(o sharetxn.Outcome) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ends {
		if e.Outcome == o {
			n++
		}
	}
	return n
}

// healthy checks that no record but those named was delivered more often.
func (s *seen) healthy(t *testing.T, most int32, but ...string) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	bad := make(map[string]bool)
	for _, b := range but {
		bad[b] = true
	}
	for v, n := range s.deliveries {
		if n > most && !bad[v] {
			t.Errorf("healthy record %s was delivered %d times", v, n)
		}
	}
}

func copyOf(in *processor.Record) []*kgo.Record {
	return []*kgo.Record{{Topic: "out", Key: in.Key, Value: in.Value}}
}

// eventually waits in virtual time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Hour); !cond(); {
		if time.Now().After(end) {
			t.Fatalf("never came true: %s", what)
		}
		select {
		case <-time.After(time.Millisecond):
		case <-t.Context().Done():
		}
	}
}

// groupConfig sets configs of group "g" that the kit has no option for.
func (w *world) groupConfig(t *testing.T, settings ...groupconfig.Setting) {
	t.Helper()
	if err := groupconfig.Set(t.Context(), w.Connect(t), "g", settings...); err != nil {
		t.Fatal(err)
	}
}
