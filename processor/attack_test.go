package processor_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// failing is a handler that fails for a value the first so many times.
func (w *world) failing(value string, times int64) processor.Handler {
	var calls atomic.Int64
	return w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
		if string(in.Value) == value && calls.Add(1) <= times {
			return nil, errBad
		}
		return copyOf(in), nil
	})
}

// Whatever Backoff gives, a record is handled again within bounds.
func TestBackoffBounds(t *testing.T) {
	for name, c := range map[string]struct {
		backoff     func(int) time.Duration
		least, most time.Duration
	}{
		"zero":     {func(int) time.Duration { return 0 }, 0, time.Second},
		"negative": {func(int) time.Duration { return -time.Hour }, 0, time.Second},
		"endless":  {func(int) time.Duration { return 1<<63 - 1 }, 10 * time.Minute, 11 * time.Minute},
		"panics":   {func(int) time.Duration { panic("no") }, 50 * time.Millisecond, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on)
				w.feed(t, 5)
				began := time.Now()
				w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Failure: processor.Failure{Backoff: c.backoff}, Handler: w.failing("3", 1)}))
				if took := time.Since(began); took < c.least || took > c.most+on.settles() {
					t.Errorf("took %v", took)
				}
				w.want(t, 5)
				w.seen.healthy(t, 1)
			})
		})
	}
}

// refusing is a config whose every record is a dead letter that is too large
// until refused says so.
func refusing(refused func() bool, backoff func(int) time.Duration) processor.Config {
	cfg := processor.Config{
		Failure: processor.Failure{GiveUp: true, Attempts: 1, Backoff: backoff},
		Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, errBad },
	}
	cfg.DeadLetter.Build = func(*processor.Record, error) *kgo.Record {
		if refused() {
			return &kgo.Record{Value: make([]byte, 3<<20)}
		}
		return nil
	}
	return cfg
}

// A dead letter that is refused is not tried again without a pause, also if
// Backoff is none.
func TestRefusedDeadLetterPauses(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 1)
		var tries atomic.Int64
		cfg := refusing(func() bool { return tries.Add(1) <= 20 }, func(int) time.Duration { return 0 })
		began := time.Now()
		w.RunUntilDrained(t, "g", w.processor(t, cfg))
		if took := time.Since(began); took < 40*time.Second || tries.Load() != 21 {
			t.Errorf("%d tries in %v", tries.Load(), took)
		}
		w.want(t, 1, "0")
	})
}

// It is held for as long as that takes.
func TestRefusedDeadLetterForDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 2)
		var accepted atomic.Bool
		cfg := refusing(func() bool { return !accepted.Load() }, func(int) time.Duration { return 10 * time.Minute })
		cfg.MaxRecords = 1 // so that nothing more is polled, and the test is quick
		stop := run(t, w.processor(t, cfg))
		time.Sleep(25 * time.Hour)
		accepted.Store(true)
		w.WaitDrained(t, "g")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 2, "0", "1")
		for _, r := range w.Committed(t, "dead") {
			if n := header(r, processor.HeaderDelivery); n != "1" {
				t.Errorf("%s was delivered %s times", r.Value, n)
			}
		}
	})
}

// MaxWait is for filling a transaction: when what several polls brought fills it
// together, nothing waits, since nothing more is polled either.
func TestMaxWaitWhenFull(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Topic("in", 1)) // so that a poll brings all that was fed
		p := w.processor(t, processor.Config{MaxWait: time.Hour, MaxRecords: 100})
		stop := run(t, p)
		eventually(t, "ready", func() bool { return p.Status().Ready })
		began := time.Now()
		for i := range 2 { // neither fills a transaction, and both are more than one
			w.feedMore(t, 60*i, 60)
			eventually(t, "polled", func() bool { return p.Status().Members[0].Held >= 60*(i+1) || w.seen.count(sharetxn.Committed) > 0 })
		}
		eventually(t, "a transaction", func() bool { return w.seen.count(sharetxn.Committed) > 0 })
		if took := time.Since(began); took > time.Minute {
			t.Errorf("what fills a transaction waited for %v", took)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 120)
	})
}

// Status tells what is held now, also while a poll waits for more.
func TestHeldWhilePolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		p := w.processor(t, processor.Config{})
		stop := run(t, p)
		w.feed(t, 10)
		w.WaitDrained(t, "g")
		eventually(t, "the commit", func() bool { return p.Status().Members[0].Committed > 0 })
		time.Sleep(time.Second)
		if m := p.Status().Members[0]; m.Held != 0 {
			t.Errorf("all is done, and the status says %+v", m)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
	})
}

// MaxBytes bounds what handlers work on too.
func TestMaxBytesInCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		rs := make([]*kgo.Record, 100)
		for i := range rs {
			rs[i] = &kgo.Record{Topic: "in", Value: make([]byte, 10<<10)}
			_, _ = rand.Read(rs[i].Value) // cannot be compressed; never fails
			w.Feed(t, rs[i])              // each in a batch of its own, which a fetch takes whole
		}
		var running, most atomic.Int64
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{MaxBytes: 50 << 10, Concurrency: 1000, Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) {
			most.Store(max(most.Load(), running.Add(1))) // racing calls may lose a step, which the next makes good
			time.Sleep(time.Second)
			running.Add(-1)
			return nil, nil
		}}))
		if n := most.Load(); n < 5 || n > 20 { // MaxBytes, and a poll that exceeds it
			t.Errorf("%d records of 10 KiB in handlers at once", n)
		}
	})
}

// told is a handler that tells of its first call.
func (w *world) told(in chan<- struct{}, h processor.Handler) processor.Handler {
	var once sync.Once
	return w.seen.handler(func(ctx context.Context, r *processor.Record) ([]*kgo.Record, error) {
		once.Do(func() { close(in) })
		return h(ctx, r)
	})
}

func untilEnded(ctx context.Context, _ *processor.Record) ([]*kgo.Record, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A soft stop does not wait for what handlers released or failed while it was
// under way: that goes back at once.
func TestStopWaitsForNoOther(t *testing.T) {
	for name, verdict := range map[string]error{"release": processor.Release(5 * time.Minute), "failure": errBad} {
		for _, limit := range []int{2, 5} {
			t.Run(fmt.Sprint(name, ", limit ", limit), func(t *testing.T) {
				inAll(t, func(t *testing.T, on setting) {
					w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: max(limit, on.least())}))
					w.feed(t, 20)
					in := make(chan struct{})
					backoff := func(int) time.Duration { return 5 * time.Minute }
					p := w.processor(t, processor.Config{Failure: processor.Failure{Backoff: backoff}, Handler: w.told(in, func(context.Context, *processor.Record) ([]*kgo.Record, error) {
						time.Sleep(10 * time.Millisecond)
						return nil, verdict
					})})
					stop := run(t, p)
					<-in
					began := time.Now()
					if err := stop(); err != nil {
						t.Fatal(err)
					}
					if took := time.Since(began); took > 5*time.Second {
						t.Errorf("the soft stop took %v", took)
					}
					w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
					w.want(t, 20)
					w.seen.healthy(t, 2)
				})
			})
		}
	}
}

// useDelivery uses one delivery of all n records of topic "in".
func (w *world) useDelivery(t *testing.T, n int) {
	t.Helper()
	p := w.processor(t, processor.Config{Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) {
		return nil, processor.Release(10 * time.Minute)
	}})
	stop := run(t, p)
	eventually(t, "all are held", func() bool { return p.Status().Members[0].Held == n })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}

// What was fetched and not polled yet, on its last delivery, is not lost by a
// stop, soft or hard.
func TestStopOnLastDeliveryUnpolled(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard %v", hard), func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: on.least()}))
				for i := range 30 { // each in a batch of its own: fetches take batches whole
					w.feedMore(t, 10+i, 1)
				}
				w.useDelivery(t, 30)
				// One poll asks all brokers, before any of them answers.
				w.Inject(t, sharetxntest.Fault{Key: sharetxntest.ShareFetchKey, Times: 3, Action: sharetxntest.LateAnswer(100 * time.Millisecond)})
				in := make(chan struct{})
				p := w.processor(t, processor.Config{MaxBytes: 1, StopTimeout: 5 * time.Second, HandlerTimeout: time.Hour, Handler: w.told(in, untilEnded)})
				done := make(chan error, 1)
				go func() { done <- p.Run(t.Context()) }()
				<-in
				time.Sleep(time.Second) // the other brokers' answers come in
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if hard {
					cancel()
				}
				if err := p.Stop(ctx); (err != nil) != hard {
					t.Errorf("Stop: %v", err)
				}
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				buried := len(w.values(t, "dead"))
				if buried < 2 || buried == 30 {
					t.Errorf("%d dead letters: what was fetched was more than the one record of a poll, and less than all", buried)
				}
				w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
				if n := len(w.values(t, "out")); n+buried != 30 {
					t.Errorf("%d outputs and %d dead letters of 30 records", n, buried)
				}
				w.audit(t, "out", "dead")
			})
		})
	}
}

// What a handler returns is the user's code too: a nil of an error type, as
// happens in Go, is a panic of that record's handler and no one else's.
func TestTypedNil(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 5)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Failure: processor.Failure{GiveUp: true}, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "1" {
				var none *processor.RejectError
				return copyOf(in), none
			}
			return copyOf(in), nil
		})}))
		w.want(t, 5, "1")
	})
}

// A batch's verdicts without a reason are verdicts all the same, and so is a
// letter that is refused at first.
func TestBatchWithoutReason(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 5)
		var tries atomic.Int64
		cfg := processor.Config{
			Failure: processor.Failure{GiveUp: true, Attempts: 1},
			BatchHandler: func(_ context.Context, b *processor.Batch) error {
				for _, r := range b.Records() {
					switch string(r.Value) {
					case "1":
						b.Reject(r, nil)
					case "2":
						b.Fail(r, nil)
					default:
						b.Accept(r, copyOf(r)...)
					}
				}
				return nil
			},
		}
		cfg.DeadLetter.Build = func(in *processor.Record, reason error) *kgo.Record {
			if reason == nil {
				t.Errorf("%s: no reason", in.Value)
			}
			if string(in.Value) == "2" && tries.Add(1) < 4 {
				return &kgo.Record{Value: make([]byte, 3<<20)}
			}
			return nil
		}
		w.RunUntilDrained(t, "g", w.processor(t, cfg))
		w.want(t, 5, "1", "2")
		for _, r := range w.Committed(t, "dead") {
			if reason := header(r, processor.HeaderReason); reason != "no reason given" {
				t.Errorf("%s: %q", r.Value, reason)
			}
		}
	})
}

// Hooks hear of a call that was given up when that happens, and of what it
// returned later nothing: that is no verdict.
func TestHooksOfAbandonedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 1)
		var calls atomic.Int64
		p := w.processor(t, processor.Config{HandlerTimeout: time.Second, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if calls.Add(1) == 1 {
				time.Sleep(time.Minute) // and does not look at its context
			}
			return copyOf(in), nil
		})})
		stop := run(t, p)
		w.WaitDrained(t, "g")
		time.Sleep(2 * time.Minute)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 1)
		if got := w.seen.verdicts; len(got) != 2 || got["fail"] != 1 || got["accept"] != 1 {
			t.Errorf("hooks saw %v", got)
		}
	})
}

// A dead letter whose transactions abort by no fault of its own waits longer
// each time, as everything does.
func TestDeadLetterBacksOff(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 1)
		for n := range 7 {
			w.Inject(t, sharetxntest.Fault{Key: sharetxntest.ProduceKey, Nth: n + 1, Action: sharetxntest.Answer(kerr.UnknownServerError.Code)})
		}
		cfg := refusing(func() bool { return false }, nil)
		began := time.Now()
		w.RunUntilDrained(t, "g", w.processor(t, cfg))
		if took := time.Since(began); took < 7*time.Second { // 100 ms doubling to 5 s, less a quarter
			t.Errorf("7 aborts within %v", took)
		}
		w.want(t, 1, "0")
	})
}

// Stop says whether it came to a hard stop, not whether its context has ended
// by now.
func TestStopAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		p := w.processor(t, processor.Config{})
		if err := run(t, p)(); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 {
			if err := p.Stop(ended); err != nil {
				t.Fatalf("Stop of what has ended: %v", err)
			}
		}
	})
}

// A consumer that has ended for good ends Run, also while so much is held that
// nothing is polled: what it holds it can never commit.
func TestConsumerEndsWhileFull(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feedMore(t, 10, 1)
		p := w.processor(t, processor.Config{MaxBytes: 1, HandlerTimeout: time.Hour, Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			w.Inject(t, sharetxntest.Fault{Key: sharetxntest.HeartbeatKey, Action: sharetxntest.Answer(kerr.GroupAuthorizationFailed.Code)})
			time.Sleep(2 * time.Minute) // the group forgets the member
			return copyOf(in), nil
		}})
		began := time.Now()
		if err := p.Run(t.Context()); !errors.Is(err, kerr.GroupAuthorizationFailed) || !sharetxn.IsFatal(err) {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 3*time.Minute {
			t.Errorf("it took %v to notice", took)
		}
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		if got := w.values(t, "out"); len(got) != 1 || got["10"] != 1 {
			t.Errorf("outputs %v", got)
		}
		w.audit(t, "out", "dead")
	})
}

// hole is a network that, once it is cut, swallows what is sent.
type hole struct {
	through func(context.Context, string, string) (net.Conn, error)
	cut     atomic.Bool
}

func (h *hole) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if h.cut.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	c, err := h.through(ctx, network, address)
	return holeConn{c, h}, err
}

type holeConn struct {
	net.Conn
	h *hole
}

func (c holeConn) Write(b []byte) (int, error) {
	if c.h.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// A stop while no broker answers ends within its bound and is a stop all the
// same; a later process goes on with what was in hand.
func TestStopWithoutBrokers(t *testing.T) {
	for _, hard := range []bool{false, true} {
		t.Run(fmt.Sprintf("hard %v", hard), func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on)
				w.feed(t, 100)
				h := hole{through: w.dialer(t)}
				cl, err := sharetxn.Connect(sharetxn.Kafka(append(w.Kafka(), kgo.Dialer(h.dial))...), sharetxn.WithProfile(w.profile))
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				in := make(chan struct{})
				p, err := processor.New(cl, processor.Config{
					Group: "g", Topics: []string{"in"}, Guarantee: w.guarantee, Instance: "there", MaxRecords: 10, Concurrency: 10, DeadLetter: processor.DeadLetter{Topic: "dead"},
					Handler: w.told(in, func(_ context.Context, r *processor.Record) ([]*kgo.Record, error) {
						time.Sleep(time.Second)
						return copyOf(r), nil
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- p.Run(t.Context()) }()
				<-in
				h.cut.Store(true)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if hard {
					cancel()
				}
				began := time.Now()
				_ = p.Stop(ctx)
				if err := <-done; err != nil {
					t.Errorf("Run: %v", err)
				}
				most := 15 * time.Second
				if !hard {
					most += 20 * time.Second
				}
				if took := time.Since(began); took > most {
					t.Errorf("it took %v", took)
				}
				w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
				w.want(t, 100)
			})
		})
	}
}

// A dead letter that is refused holds up nothing but itself, also not what came
// a third time.
func TestRefusedDeadLetterAlone(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 5)
		var accepted atomic.Bool
		cfg := processor.Config{Failure: processor.Failure{GiveUp: true, Attempts: 1}, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			switch {
			case string(in.Value) == "0":
				return nil, errBad
			case in.DeliveryCount < 3:
				return nil, processor.Release(time.Second)
			}
			return copyOf(in), nil
		})}
		cfg.DeadLetter.Build = func(*processor.Record, error) *kgo.Record {
			if accepted.Load() {
				return nil
			}
			return &kgo.Record{Value: tooLarge}
		}
		stop := run(t, w.processor(t, cfg))
		time.Sleep(5 * time.Minute)
		if n := len(w.values(t, "out")); n != 4 {
			t.Errorf("%d of 4 neighbours are done", n)
		}
		accepted.Store(true)
		w.WaitDrained(t, "g")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 5, "0")
	})
}
