package processor_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	seeds    = flag.Uint64("seeds", 12, "how many seeds TestRandom draws from")
	fromSeed = flag.Uint64("from-seed", 0, "the first of them")
)

// Whatever a Processor is configured to, its handlers do, and its brokers,
// network and supervisor do to it: each record ends as one output or one dead
// letter. All of it is drawn from a seed.
func TestRandom(t *testing.T) {
	testkit.Deadline(t, 10*time.Minute)
	fired := 0
	for seed := *fromSeed; seed < *fromSeed+*seeds; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newChaos(t, seed)
				c.run(t)
				fired += c.fired()
			})
		})
	}
	if fired < int(*seeds) {
		t.Errorf("%d planned faults fired in %d seeds", fired, *seeds)
	}
}

// chaos is one random run.
type chaos struct {
	*world
	seed    uint64
	dice    *rand.Rand // of the test's goroutine
	cfg     processor.Config
	gate    *testkit.Gate
	records int
	tripped []<-chan struct{}

	mu    sync.Mutex
	calls map[string]int // of the handler, by value
	built map[string]int
}

func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

func newChaos(t *testing.T, seed uint64) *chaos {
	t.Helper()
	dice := rand.New(rand.NewPCG(seed, 1))
	c := &chaos{seed: seed, dice: dice, calls: make(map[string]int), built: make(map[string]int)}
	lock := pick(dice, 5*time.Second, 15*time.Second, 30*time.Second)
	// What a fault costs in deliveries is not the Processor's to choose, so the
	// limit is above what handlers and faults here can use up.
	c.world = start(t, pick(dice, settings...), sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: lock, DeliveryLimit: 10}))
	c.gate = testkit.NewGate(c.dialer(t))
	c.cfg = processor.Config{
		Members: pick(dice, 1, 1, 1, 2, 2, 2, 3, 3, 3, 5, 5, 20), MaxRecords: pick(dice, 1, 3, 20, 500), MaxBytes: pick(dice, 1, 100, 0),
		MaxWait: pick(dice, 0, 0, time.Second, 2*lock), HandlerTimeout: pick(dice, time.Second, 10*time.Second, 5*time.Minute),
		LockMargin: pick(dice, 0, lock/10, lock/3), TransactionTimeout: pick(dice, 0, lock/2), StopTimeout: pick(dice, 0, time.Second),
		Failure: processor.Failure{Attempts: pick(dice, 1, 2, 5), GiveUp: pick(dice, true, false), Backoff: pick(dice, nil, func(int) time.Duration { return 0 }, func(n int) time.Duration { return time.Duration(n) * 10 * time.Second })},
	}
	c.cfg.TransactionTimeout = max(c.cfg.TransactionTimeout, 2*c.cfg.LockMargin)
	c.cfg.DeadLetter.Build = c.build
	if pick(dice, true, false) {
		c.cfg.BatchHandler = c.handleBatch
	} else {
		c.cfg.Handler, c.cfg.Concurrency = c.handle, pick(dice, 1, 5, 1000)
	}
	return c
}

// run feeds and harms until it is enough, then waits for the end.
func (c *chaos) run(t *testing.T) {
	t.Logf("%v, %d members, %d records, %d bytes, wait %v, handler timeout %v, margin %v, transaction timeout %v, attempts %d, give up %v, batches %v, concurrency %d",
		c.setting, c.cfg.Members, c.cfg.MaxRecords, c.cfg.MaxBytes, c.cfg.MaxWait, c.cfg.HandlerTimeout, c.cfg.LockMargin, c.cfg.TransactionTimeout,
		c.cfg.Failure.Attempts, c.cfg.Failure.GiveUp, c.cfg.BatchHandler != nil, c.cfg.Concurrency)
	s := c.supervise(t)
	for range 6 {
		n := 1 + c.dice.IntN(40)
		c.feedMore(t, c.records, n)
		c.records += n
		pass(time.Duration(c.dice.Int64N(int64(20 * time.Second))))
		c.harm(t, s)
	}
	c.gate.Open()
	c.WaitDrained(t, "g")
	s.end(t)
	pass(time.Minute) // for handlers that do not look at their contexts: a bubble ends when all in it do
	c.judge(t)
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// judge holds what is published against what was fed.
func (c *chaos) judge(t *testing.T) {
	out, dead := c.values(t, "out"), c.values(t, "dead")
	for i := range c.records {
		v := fmt.Sprint(i)
		n := out[v] + dead[v]
		if n == 0 || n > 1 && c.setting != kip93 && !c.concedes() { // that one concedes some too; the audit knows which
			t.Errorf("record %s: %d outputs and %d dead letters", v, out[v], dead[v])
		}
	}
	c.audit(t)
	t.Logf("%d records, %d outputs, %d dead letters, %d commits, %d aborts, %d faults", c.records, len(out), len(dead),
		c.seen.count(sharetxn.Committed), c.seen.count(sharetxn.Aborted), c.fired())
}

func (c *chaos) fired() (n int) {
	for _, f := range c.tripped {
		select {
		case <-f:
			n++
		default:
		}
	}
	return n
}

// harm does one thing to the brokers, the network or the process.
func (c *chaos) harm(t *testing.T, s *supervisor) {
	t.Helper()
	node := func() int32 { return c.dice.Int32N(3) }
	switch what := c.dice.IntN(8); what {
	default:
		c.tripped = append(c.tripped, c.Inject(lenient{t}, c.fault()))
	case 0:
		c.MoveLeader(t, pick(c.dice, "in", "out"), c.dice.Int32N(3), node())
	case 1:
		c.Restart(t, node())
	case 2:
		other := 1 + c.dice.Int32N(2)
		c.Part(t, 0, other)
		time.AfterFunc(time.Duration(c.dice.Int64N(int64(20*time.Second))), func() { c.Heal(0, other) })
	case 3:
		c.gate.Hold()
		time.AfterFunc(time.Duration(c.dice.Int64N(int64(time.Minute))), c.gate.Open)
	case 4:
		s.restart(t, pick(c.dice, 0, time.Second, time.Hour))
	}
}

func (c *chaos) fault() sharetxntest.Fault {
	f := sharetxntest.Fault{
		Key: pick(c.dice, sharetxntest.ProduceKey, sharetxntest.EndTxnKey, sharetxntest.StageKey, sharetxntest.ShareFetchKey,
			sharetxntest.ShareAcknowledgeKey, sharetxntest.HeartbeatKey, sharetxntest.InitProducerIDKey),
		Nth: 1 + c.dice.IntN(3),
		Action: pick(c.dice, sharetxntest.LoseRequest, sharetxntest.LoseAnswer, sharetxntest.Disconnect, sharetxntest.DeliverTwice,
			func() sharetxntest.Action {
				return sharetxntest.Delay(time.Duration(c.dice.Int64N(int64(40 * time.Second))))
			},
			func() sharetxntest.Action { return sharetxntest.Answer(kerr.UnknownServerError.Code) },
			func() sharetxntest.Action { return sharetxntest.Answer(kerr.NotLeaderForPartition.Code) },
			func() sharetxntest.Action { return sharetxntest.LeaderMoves("in", c.dice.Int32N(3), c.dice.Int32N(3)) },
			func() sharetxntest.Action { return sharetxntest.BrokerRestarts(c.dice.Int32N(3)) })(),
	}
	if f.Key == sharetxntest.StageKey && c.guarantee != processor.Staged {
		f.Key = sharetxntest.ShareFetchKey // acknowledgements ride on it
	}
	if f.Key == sharetxntest.ProduceKey || f.Key == sharetxntest.InitProducerIDKey {
		f.TransactionalID = "g-here-m0" // and not what feeds
	}
	return f
}

// lenient does not mind a fault that found nothing to fire at.
type lenient struct{ testing.TB }

func (lenient) Cleanup(func()) {}

// turn draws what the nth call for a value does.
func (c *chaos) turn(in *processor.Record) (dice *rand.Rand, n int) {
	c.seen.note(in)
	c.mu.Lock()
	defer c.mu.Unlock()
	v := string(in.Value)
	c.calls[v]++
	h := fnv.New64()
	fmt.Fprint(h, v, c.calls[v])
	return rand.New(rand.NewPCG(c.seed, h.Sum64())), c.calls[v]
}

var (
	errRandom = errors.New("drawn")
	tooLarge  = make([]byte, 3<<20)
)

// decide is a handler that is well-behaved from the fifth call for a record on.
func (c *chaos) decide(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
	dice, n := c.turn(in)
	out := copyOf(in)
	for range dice.IntN(3) {
		out = append(out, &kgo.Record{Topic: "side", Value: in.Value})
	}
	if n > 4 {
		return out, nil
	}
	switch p := dice.IntN(100); {
	case p < 5:
		return out, processor.Reject(errRandom)
	case p < 10:
		return out, errRandom
	case p < 13:
		panic("drawn")
	case p < 15:
		runtime.Goexit()
	case p < 20 && in.DeliveryCount < 3:
		return out, processor.Release(time.Duration(dice.Int64N(int64(30*time.Second))) - time.Second)
	case p < 25:
		select {
		case <-time.After(time.Duration(dice.Int64N(int64(40 * time.Second)))):
		case <-ctx.Done():
			return out, context.Cause(ctx)
		}
	case p < 26:
		pass(time.Duration(dice.Int64N(int64(40 * time.Second)))) // and does not look at its context
	case p < 28:
		return append(out, &kgo.Record{Topic: "out", Value: tooLarge}), nil
	case p < 29:
		return append(out, nil), nil
	}
	return out, nil
}

func (c *chaos) handle(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
	return c.decide(ctx, in)
}

// handleBatch is decide for each record, with the rest accepted together.
func (c *chaos) handleBatch(ctx context.Context, b *processor.Batch) error {
	var rest []*kgo.Record
	for i, in := range b.Records() {
		out, err := c.decide(ctx, in)
		reject, isReject := errors.AsType[*processor.RejectError](err)
		release, isRelease := errors.AsType[*processor.ReleaseError](err)
		switch {
		case isReject:
			b.Reject(in, reject.Reason)
		case isRelease:
			b.Release(in, release.Backoff)
		case err != nil && i%2 == 0:
			return err
		case err != nil:
			b.Fail(in, err)
		case i%3 == 0:
			rest = append(rest, out...)
		default:
			b.Accept(in, out...)
		}
	}
	b.AcceptRest(rest...)
	return nil
}

// build makes some dead letters too large at first.
func (c *chaos) build(in *processor.Record, _ error) *kgo.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := string(in.Value)
	c.built[v]++
	switch {
	case len(v)%2 == 0 || c.built[v] > 2:
		return nil
	case c.built[v] == 1:
		panic("drawn")
	}
	return &kgo.Record{Value: tooLarge}
}

// supervisor keeps one processor running, as a pod's does.
type supervisor struct {
	c    *chaos
	ctx  context.Context
	end_ context.CancelFunc
	done chan struct{}

	mu  sync.Mutex
	now *processor.Processor
}

func (c *chaos) supervise(t *testing.T) *supervisor {
	t.Helper()
	s := &supervisor{c: c, done: make(chan struct{}), now: c.next(t)}
	s.ctx, s.end_ = context.WithCancel(t.Context())
	go func() {
		defer close(s.done)
		for p := s.now; ; {
			if err := p.Run(s.ctx); err != nil {
				t.Logf("Run: %v", err)
			}
			if s.ctx.Err() != nil {
				return
			}
			p = c.next(t)
			s.mu.Lock()
			s.now = p
			s.mu.Unlock()
		}
	}()
	return s
}

// next makes a processor on a connection of its own.
func (c *chaos) next(t *testing.T) *processor.Processor {
	cfg := c.cfg
	cfg.Group, cfg.Topics, cfg.Instance, cfg.DeadLetter.Topic = "g", []string{"in"}, "here", "dead"
	cfg.Guarantee = c.guarantee
	cl, err := sharetxn.Connect(sharetxn.Kafka(append(c.Kafka(), kgo.Dialer(c.gate.Dial))...), sharetxn.WithProfile(c.profile),
		sharetxn.WithHooks(c.seen), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(cl.Close)
	p, err := processor.New(cl, cfg)
	if err != nil {
		t.Error(err)
	}
	return p
}

// restart stops the processor that runs, softly for so long.
func (s *supervisor) restart(t *testing.T, soft time.Duration) {
	t.Helper()
	s.mu.Lock()
	p := s.now
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), soft)
	defer cancel()
	began := time.Now()
	_ = p.Stop(ctx)
	if took := time.Since(began); took > time.Minute {
		t.Errorf("Stop took %v", took)
	}
}

func (s *supervisor) end(t *testing.T) {
	t.Helper()
	s.end_()
	<-s.done
}

// dialer is how the kit's clients connect.
func (w *world) dialer(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	t.Helper()
	cl, err := kgo.NewClient(w.Kafka()...)
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	return cl.OptValue(kgo.Dialer).(func(context.Context, string, string) (net.Conn, error))
}
