package processor_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// inLedger runs a test in virtual time, on brokers that look like stock Kafka.
func inLedger(t *testing.T, test func(t *testing.T)) {
	testkit.Deadline(t, 3*time.Minute)
	synctest.Test(t, test)
}

// rival is a transaction of another process that decides records of topic "in",
// and publishes them as a Processor here does.
type rival struct {
	t  *testing.T
	cl *kgo.Client
}

// rival begins one and writes its entries for the records with these values. It may
// be called from any goroutine.
func (w *world) rival(t *testing.T, timeout time.Duration, values ...string) *rival {
	t.Helper()
	cl, err := kgo.NewClient(append(w.Kafka(), kgo.TransactionalID("rival"), kgo.TransactionTimeout(timeout), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Error(err)
		return nil
	}
	r := &rival{t, cl}
	listed, err := kadm.NewClient(cl).ListTopics(context.Background(), "in")
	if err := errors.Join(err, cl.BeginTransaction()); err != nil {
		t.Error(err)
		return r
	}
	for _, in := range w.Committed(t, "in") {
		if !slices.Contains(values, string(in.Value)) {
			continue
		}
		e := entry.Entry{Generation: 1, TransactionalID: "rival", TopicID: listed["in"].ID, Partition: in.Partition, Ranges: []entry.Range{{First: in.Offset, Last: in.Offset}}}
		value, err := e.Append(nil)
		if err != nil {
			t.Error(err)
		}
		r.produce(&kgo.Record{Topic: topic.Name("g"), Partition: in.Partition, Value: value}, &kgo.Record{Topic: "out", Value: in.Value})
	}
	return r
}

func (r *rival) produce(rs ...*kgo.Record) {
	r.t.Helper()
	if err := r.cl.ProduceSync(context.Background(), rs...).FirstErr(); err != nil {
		r.t.Error(err)
	}
}

// end ends the transaction, or with neither leaves it to the broker.
func (r *rival) end(how string) {
	r.t.Helper()
	defer r.cl.Close()
	var err error
	switch how {
	case "commits":
		err = r.cl.EndTransaction(context.Background(), kgo.TryCommit)
	case "aborts":
		err = r.cl.EndTransaction(context.Background(), kgo.TryAbort)
	}
	if err != nil {
		r.t.Error(err)
	}
}

// OnLedger implements sharetxn.HookLedger.
func (s *seen) OnLedger(e sharetxn.LedgerEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger = append(s.ledger, e)
}

// told is how many records events of a kind, and with a verdict, were about.
func (s *seen) told(kind sharetxn.LedgerKind, verdict string) (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.ledger {
		if e.Event == kind && e.Verdict == verdict {
			n += max(1, e.Records)
		}
	}
	return n
}

func (s *seen) callsOf(values ...string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range values {
		n += s.calls[v]
	}
	return n
}

// once is a Processor whose every failure ends in a dead letter, so that nothing
// but a failure of a record may count as one.
func once(cfg processor.Config) processor.Config {
	cfg.Failure = processor.Failure{Attempts: 1, GiveUp: true}
	return cfg
}

// Records in another's open transaction wait for its end under their locks,
// however long that takes, while their neighbours are done. If it commits they are
// done, without work; otherwise they are handled; and it costs no delivery.
func TestPredecessor(t *testing.T) {
	for _, how := range []string{"commits", "aborts", "dies"} {
		t.Run(how, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second}))
				w.feed(t, 9)
				mine := []string{"0", "4", "8"}
				r := w.rival(t, time.Minute, mine...)
				p := w.processor(t, once(processor.Config{LockMargin: time.Second}))
				stop := run(t, p)
				eventually(t, "the neighbours are done, the others wait", func() bool {
					m := p.Status().Members[0]
					return m.Waiting == 3 && m.Held == 3 && len(w.values(t, "out")) == 6
				})
				if n := w.seen.callsOf(mine...); n != 0 {
					t.Errorf("%d calls for records of another's transaction", n)
				}
				pass(30 * time.Second)
				if m := p.Status().Members[0]; m.Waiting != 3 {
					t.Errorf("after six locks %d wait", m.Waiting)
				}
				r.end(how)
				w.WaitDrained(t, "g")
				if m := p.Status().Members[0]; m.Waiting != 0 {
					t.Errorf("at the end %d wait", m.Waiting)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, 9)
				w.seen.healthy(t, 1)
				calls, done := 3, int64(0)
				if how == "commits" {
					calls, done = 0, 3
				}
				if n := w.seen.callsOf(mine...); n != calls {
					t.Errorf("%d calls for them", n)
				}
				if told, waited := w.seen.told(sharetxn.LedgerDone, ""), w.seen.told(sharetxn.LedgerWait, ""); told != done || waited != 3 {
					t.Errorf("hooks saw %d done and %d wait", told, waited)
				}
			})
		})
	}
}

// atStep runs fn at the first such step of what is connected by cl.
func atStep(cl *sharetxn.Cluster, step string, fn func()) {
	var once sync.Once
	core.Of(cl).OnStep(func(s string) {
		if s == step {
			once.Do(fn)
		}
	})
}

// processorOf is a processor on a connection of its own, whose steps can be met.
func (w *world) processorOf(t *testing.T, cfg processor.Config) (*processor.Processor, *sharetxn.Cluster) {
	t.Helper()
	cl := w.Connect(t, sharetxn.WithHooks(w.seen))
	cfg.Group, cfg.Topics, cfg.Guarantee = "g", []string{"in"}, w.guarantee
	cfg.DeadLetter.Topic = "dead"
	if cfg.Instance == "" {
		cfg.Instance = "here"
	}
	if cfg.Handler == nil {
		cfg.Handler = w.seen.handler(nil)
	}
	p, err := processor.New(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p, cl
}

// A transaction that another has overtaken between its look and its entries is
// refused: nothing of it is published, no failure of a record is counted, and no
// delivery is used; its other records are done all the same.
func TestConflict(t *testing.T) {
	for _, how := range []string{"is done", "commits", "aborts", "dies"} {
		t.Run(how, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Topic("in", 1), sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second}))
				w.feed(t, 30)
				p, cl := w.processorOf(t, once(processor.Config{LockMargin: time.Second}))
				open := make(chan *rival, 1)
				atStep(cl, "begun", func() {
					r := w.rival(t, time.Minute, "3", "7")
					if how == "is done" {
						r.end("commits")
						return
					}
					open <- r
				})
				stop := run(t, p)
				verdict := "done"
				if how != "is done" {
					verdict = "open"
					r := <-open
					eventually(t, "they wait", func() bool { return p.Status().Members[0].Waiting == 2 })
					pass(20 * time.Second)
					r.end(how)
				}
				w.WaitDrained(t, "g")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, 30)
				w.seen.healthy(t, 1)
				if n := w.seen.told(sharetxn.LedgerConflict, verdict); n != 2 {
					t.Errorf("hooks saw %d records in conflict", n)
				}
				if n := w.seen.count(sharetxn.Aborted); n == 0 {
					t.Error("nothing was aborted")
				}
			})
		})
	}
}

// scripted stands between a Processor and its ledger.
type scripted struct {
	processor.GroupLedger
	look   func([]tail.Position, []index.Verdict)
	decide func(ctx context.Context, produced []*kgo.Record) error // nil: go on
}

func (s *scripted) Look(ps []tail.Position) []index.Verdict {
	out := s.GroupLedger.Look(ps)
	if s.look != nil {
		s.look(ps, out)
	}
	return out
}

func (s *scripted) Decide(ctx context.Context, produced []*kgo.Record) error {
	if s.decide != nil {
		if err := s.decide(ctx, produced); err != nil {
			return err
		}
	}
	return s.GroupLedger.Decide(ctx, produced)
}

// After a gap in the ledger records wait as for an open transaction; where a commit
// finds out, it is refused.
func TestUnsure(t *testing.T) {
	for name, atCommit := range map[string]bool{"when they come": false, "at the commit": true} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second}))
				w.feed(t, 12)
				var gap atomic.Bool
				gap.Store(!atCommit)
				refused := 0
				p := w.processor(t, once(processor.Config{LockMargin: time.Second}))
				processor.WrapLedger(p, func(l processor.GroupLedger) processor.GroupLedger {
					return &scripted{l, func(ps []tail.Position, vs []index.Verdict) {
						for i := range vs {
							if gap.Load() && ps[i].Partition == 0 {
								vs[i] = index.Unsure
							}
						}
					}, func(context.Context, []*kgo.Record) error {
						if atCommit && refused == 0 {
							refused++
							gap.Store(true)
							return &tail.ConflictError{Unsure: 4}
						}
						return nil
					}}
				})
				stop := run(t, p)
				eventually(t, "the others are done", func() bool { return p.Status().Members[0].Waiting == 4 && len(w.values(t, "out")) == 8 })
				pass(20 * time.Second)
				gap.Store(false)
				w.WaitDrained(t, "g")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, 12)
				w.seen.healthy(t, 1)
				if atCommit && refused != 1 {
					t.Errorf("refused %d times", refused)
				}
			})
		})
	}
}

// What lies below the share partition's start is dropped: neither acknowledged nor
// given back, so that the broker's own lock decides about it, and nothing of it is
// published.
func TestBelow(t *testing.T) {
	for name, atCommit := range map[string]bool{"when they come": false, "at the commit": true} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				const lock = 5 * time.Second
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: lock}))
				w.feed(t, 12)
				var below atomic.Bool
				below.Store(!atCommit)
				p := w.processor(t, once(processor.Config{LockMargin: time.Second}))
				processor.WrapLedger(p, func(l processor.GroupLedger) processor.GroupLedger {
					return &scripted{l, func(ps []tail.Position, vs []index.Verdict) {
						for i := range vs {
							if below.Load() && ps[i].Partition == 0 {
								vs[i] = index.Below
							}
						}
					}, func(context.Context, []*kgo.Record) error {
						if atCommit && below.CompareAndSwap(false, true) && w.seen.count(sharetxn.Aborted) == 0 {
							return &tail.ConflictError{Below: 4}
						}
						return nil
					}}
				})
				stop := run(t, p)
				eventually(t, "the others are done", func() bool { return len(w.values(t, "out")) == 8 })
				eventually(t, "nothing is in hand", func() bool { return p.Status().Members[0].Held == 0 })
				began := time.Now()
				below.Store(false)
				w.WaitDrained(t, "g")
				if took := time.Since(began); took < lock/2 || took > 3*lock {
					t.Errorf("they came again after %v: only the end of their locks brings them", took)
				}
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, 12)
				if n := w.seen.told(sharetxn.LedgerBelow, ""); n < 4 || n > 8 {
					t.Errorf("hooks saw %d below", n)
				}
			})
		})
	}
}

// While the tail is behind, a commit waits and the locks are renewed; no longer
// than the transaction may live.
func TestSlowTail(t *testing.T) {
	for name, c := range map[string]struct {
		slow   time.Duration
		aborts int
	}{"for some locks": {12 * time.Second, 0}, "for longer than a transaction lives": {time.Minute, 1}} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second}))
				w.feed(t, 10)
				var slowed atomic.Bool
				p := w.processor(t, processor.Config{LockMargin: time.Second, TransactionTimeout: 15 * time.Second})
				processor.WrapLedger(p, func(l processor.GroupLedger) processor.GroupLedger {
					return &scripted{l, nil, func(ctx context.Context, _ []*kgo.Record) error {
						if !slowed.CompareAndSwap(false, true) {
							return nil
						}
						select {
						case <-time.After(c.slow):
							return nil
						case <-ctx.Done():
							return context.Cause(ctx)
						}
					}}
				})
				began := time.Now()
				w.RunUntilDrained(t, "g", p)
				if took := time.Since(began); took < min(c.slow, 15*time.Second) || took > 40*time.Second {
					t.Errorf("it took %v", took)
				}
				w.want(t, 10)
				w.seen.healthy(t, 1)
				if n := w.seen.count(sharetxn.Aborted); n != c.aborts {
					t.Errorf("%d transactions aborted", n)
				}
			})
		})
	}
}

// The marker of an abort may be slow to come: the culprit among the records is found
// by parts all the same, alone, and its neighbours are done.
func TestPoisonWithSlowMarkers(t *testing.T) {
	inLedger(t, func(t *testing.T) {
		w := start(t, ledgered, sharetxntest.Topic("in", 1))
		w.feed(t, 20)
		cfg := once(processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "7" {
				return []*kgo.Record{{Topic: "out", Value: make([]byte, 3<<20)}}, nil
			}
			return copyOf(in), nil
		})})
		p := w.processor(t, cfg)
		var asked atomic.Int64
		processor.WrapLedger(p, func(l processor.GroupLedger) processor.GroupLedger {
			return &scripted{l, func(_ []tail.Position, vs []index.Verdict) {
				w.seen.mu.Lock()
				defer w.seen.mu.Unlock()
				if n := len(w.seen.ends); n > 0 && w.seen.ends[n-1].Outcome == sharetxn.Aborted && time.Since(w.seen.at) < 5*time.Second {
					asked.Add(1)
					for i := range vs {
						vs[i] = index.Open
					}
				}
			}, nil}
		})
		w.RunUntilDrained(t, "g", p)
		w.want(t, 20, "7")
		w.seen.healthy(t, 1)
		if asked.Load() == 0 {
			t.Error("no marker was slow")
		}
		if n := w.seen.count(sharetxn.Aborted); n < 3 || n > 10 {
			t.Errorf("%d transactions aborted to find one of 20", n)
		}
	})
}

// A new generation ends who works in the old one; nothing is doubled by that.
func TestNewGeneration(t *testing.T) {
	inLedger(t, func(t *testing.T) {
		w := start(t, ledgered)
		w.feed(t, 10)
		p := w.processor(t, processor.Config{Members: 2})
		done := make(chan error, 1)
		go func() { done <- p.Run(t.Context()) }()
		w.WaitDrained(t, "g")
		w.record(t, processor.Ledger, 2)
		if err := <-done; !errors.Is(err, tail.ErrGeneration) || !sharetxn.IsFatal(err) {
			t.Errorf("Run: %v", err)
		}
		w.feedMore(t, 10, 10)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		w.want(t, 20)
	})
}

// At a stop what waits for another's transaction goes back at once, to wait
// elsewhere; on its last delivery it stays, until StopTimeout.
func TestStopWhileWaiting(t *testing.T) {
	for name, c := range map[string]struct {
		used int // deliveries before
		ends bool
		most time.Duration
	}{
		"deliveries are left":          {0, false, 3 * time.Second},
		"on the last, and it ends":     {1, true, 15 * time.Second},
		"on the last, and it does not": {1, false, 40 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: 3}))
				w.feed(t, 6)
				for range c.used {
					w.useDelivery(t, 6)
				}
				r := w.rival(t, 2*time.Minute, "2", "3")
				p := w.processor(t, processor.Config{})
				stop := run(t, p)
				eventually(t, "they wait", func() bool { return p.Status().Members[0].Waiting == 2 && len(w.values(t, "out")) == 4 })
				if c.ends {
					time.AfterFunc(10*time.Second, func() { r.end("aborts") })
				}
				began := time.Now()
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > c.most || c.used > 0 && took < 5*time.Second {
					t.Errorf("the stop took %v", took)
				}
				if !c.ends {
					r.end("aborts")
				}
				w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
				out, dead := w.values(t, "out"), w.values(t, "dead")
				for i := range 6 {
					if v := fmt.Sprint(i); out[v]+dead[v] != 1 {
						t.Errorf("record %s: %d outputs, %d dead letters", v, out[v], dead[v])
					}
				}
				if n := len(dead); n != 0 && name != "on the last, and it does not" {
					t.Errorf("%d dead letters", n)
				}
			})
		})
	}
}

// Several processes work on one partition at once, and its leader moves again and
// again, which gives everything that they have in hand to others: what one has
// published no other does.
func TestManyOnOnePartition(t *testing.T) {
	inLedger(t, func(t *testing.T) {
		w := start(t, ledgered, sharetxntest.Topic("in", 1), sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 5 * time.Second, DeliveryLimit: 10}))
		w.feed(t, 400)
		var stops []func() error
		for _, instance := range []string{"a", "b", "c"} {
			cfg := processor.Config{Instance: instance, Members: 2, MaxRecords: 10, LockMargin: time.Second, TransactionTimeout: 5 * time.Second}
			cfg.Handler = w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
				pass(time.Duration(in.Offset%7) * 20 * time.Millisecond)
				return copyOf(in), nil
			})
			stops = append(stops, run(t, w.processor(t, cfg)))
		}
		for i := range int32(8) {
			pass(500 * time.Millisecond)
			w.MoveLeader(t, "in", 0, (i+1)%3)
		}
		w.WaitDrained(t, "g")
		for _, stop := range stops {
			if err := stop(); err != nil {
				t.Fatal(err)
			}
		}
		w.want(t, 400)
		met := w.seen.told(sharetxn.LedgerDone, "") + w.seen.told(sharetxn.LedgerWait, "") + w.seen.told(sharetxn.LedgerConflict, "open") + w.seen.told(sharetxn.LedgerConflict, "done")
		if met == 0 {
			t.Error("no two of them met")
		}
		t.Logf("%d done, %d waited, %d and %d in conflict", w.seen.told(sharetxn.LedgerDone, ""), w.seen.told(sharetxn.LedgerWait, ""),
			w.seen.told(sharetxn.LedgerConflict, "open"), w.seen.told(sharetxn.LedgerConflict, "done"))
	})
}
