package producer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// one runs a transaction with one output and all of what is polled.
func (w *world) one(ctx context.Context, p *Producer, bs []*shareconsumer.Batch, value string) (sharetxn.Outcome, error) {
	return p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
		for _, b := range bs {
			b.AcceptRest()
		}
		return tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(value)})
	})
}

// works shows that the producer and the consumer go on.
func (w *world) works(ctx context.Context, t testing.TB, p *Producer, value string) {
	t.Helper()
	if out, err := w.one(ctx, p, nil, value); out != sharetxn.Committed || err != nil {
		t.Fatalf("the transaction after it: %v, %v", out, err)
	}
}

// An answer that is lost is asked for again, at the epoch of the transaction,
// and what it says is the outcome.
func TestLostEndTxn(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		timeOutFirst := func(w *world) func(broker.Request) broker.Action {
			return func(r broker.Request) broker.Action {
				if w.txn("tx").Status == txn.Ongoing {
					return broker.Action{LoseRequest: true}
				}
				return broker.Action{}
			}
		}
		for _, c := range []struct {
			name    string
			times   int64
			act     func(*world) func(broker.Request) broker.Action
			timeout time.Duration
			want    sharetxn.Outcome
			is      error
		}{
			{"answer lost, committed", 1, func(*world) func(broker.Request) broker.Action { return always(broker.Action{LoseAnswer: true}) }, 15 * time.Second, sharetxn.Committed, nil},
			{"three answers lost, committed", 3, func(*world) func(broker.Request) broker.Action { return always(broker.Action{LoseAnswer: true}) }, 15 * time.Second, sharetxn.Committed, nil},
			{"request lost, committed by the repeat", 1, func(*world) func(broker.Request) broker.Action {
				return always(broker.Action{LoseRequest: true})
			}, 15 * time.Second, sharetxn.Committed, nil},
			{"requests lost until the broker gave up", 1000, timeOutFirst, 1500 * time.Millisecond, sharetxn.Aborted, kerr.InvalidTxnState},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile})
				w.feed(ctx, t, 3)
				cons, p := w.consumer(t, "g"), w.producer(t, "tx", TransactionTimeout(c.timeout), LockMargin(10*time.Millisecond))
				bs := gather(ctx, t, cons, 3)
				f := w.inject(keyEndTxn, c.times, c.act(w))
				out, err := w.one(ctx, p, bs, "first")
				if out != c.want || (err == nil) != (c.want == sharetxn.Committed) || c.is != nil && !errors.Is(err, c.is) {
					t.Fatalf("%v, %v", out, err)
				}
				if n := f.fired.Load(); n == 0 || c.times < 1000 && n != c.times {
					t.Fatalf("the fault fired %d times", n)
				}
				w.SetIntercept(nil)
				want := []string{"second"}
				if c.want == sharetxn.Committed {
					want = append(want, "first")
				} else {
					bs = w.again(ctx, t, cons, bs, 3, 0)
				}
				w.works(ctx, t, p, "second")
				if c.want == sharetxn.Aborted {
					if out, err := w.one(ctx, p, bs, "third"); err != nil {
						t.Fatalf("%v, %v", out, err)
					}
					want = append(want, "third")
				}
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
			})
		}
	})
}

// An outcome that stays open is Unknown, nothing of it is touched, and the next
// Begin settles it, batch included, before it sends anything else.
func TestUnknownIsSettledByBegin(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name    string
			lose    broker.Action
			timeout time.Duration
			want    sharetxn.Outcome
		}{
			{"was committed", broker.Action{LoseAnswer: true}, 15 * time.Second, sharetxn.Committed},
			{"is committed now", broker.Action{LoseRequest: true}, 15 * time.Second, sharetxn.Committed},
			{"timed out", broker.Action{LoseRequest: true}, 400 * time.Millisecond, sharetxn.Aborted},
		} {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				ctx := testkit.Deadline(t, 30*time.Second)
				hook := &recorder{}
				w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
				w.feed(ctx, t, 3)
				cons := w.consumer(t, "g")
				p := w.producer(t, "tx", ResolveTimeout(unresolved), TransactionTimeout(c.timeout), LockMargin(10*time.Millisecond))
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, cons, 3)
				f := w.inject(keyEndTxn, 1<<30, always(c.lose))
				out, err := w.one(ctx, p, bs, "first")
				if out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) || sharetxn.ClassOf(err) != sharetxn.ClassUnknown {
					t.Fatalf("%v, %v", out, err)
				}
				if f.fired.Load() < 2 {
					t.Fatalf("the fault fired %d times", f.fired.Load())
				}
				// Still lost: Begin says so and sends nothing but EndTxn.
				inits := w.Traffic(keyInit).Requests
				if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
					t.Fatalf("Begin while the outcome is unknown: %v", err)
				}
				if got := w.Traffic(keyInit).Requests; got != inits {
					t.Fatal("InitProducerId while an outcome was open")
				}
				if _, err := p.Begin(ctx, bs[0]); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
					t.Fatalf("Begin with the batch: %v", err)
				}
				if c.want == sharetxn.Aborted {
					testkit.Eventually(ctx, t, "the broker gives the transaction up", func() bool { return w.txn("tx").Status == txn.CompleteAbort })
				}
				w.SetIntercept(nil)
				tx, err := p.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.Abort(ctx); err != nil {
					t.Fatal(err)
				}
				ends, _, _ := hook.seen()
				if len(ends) != 3 || ends[0].Outcome != sharetxn.Unknown || ends[1].Outcome != c.want || (ends[1].Err == nil) != (c.want == sharetxn.Committed) {
					t.Errorf("hooks saw %+v", ends)
				}
				want := []string{"second"}
				if c.want == sharetxn.Committed {
					want = append(want, "first")
					if _, err := p.Begin(ctx, bs[0]); !errors.Is(err, sharetxn.ErrStale) {
						t.Errorf("Begin with a batch that is committed: %v", err)
					}
				} else if out, err := w.one(ctx, p, w.again(ctx, t, cons, bs, 3, 0), "third"); err != nil {
					t.Fatalf("%v, %v", out, err)
				} else {
					want = append(want, "third")
				}
				w.works(ctx, t, p, "second")
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
			})
		}
	})
}

// Whatever code EndTxn is answered with: nil and Committed only if the broker
// says so, and a producer that is not done with goes on.
func TestEndTxnAnswers(t *testing.T) {
	for _, c := range []struct {
		code  int16
		times int64 // answered so; the attempts after that are not touched
		want  sharetxn.Outcome
		class sharetxn.Class
	}{
		{-1, 1, sharetxn.Committed, sharetxn.ClassNone},
		{-1, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
		{7, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
		{14, 2, sharetxn.Committed, sharetxn.ClassNone},
		{14, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
		{15, 2, sharetxn.Committed, sharetxn.ClassNone},
		{16, 2, sharetxn.Committed, sharetxn.ClassNone},
		{16, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
		{51, 5, sharetxn.Committed, sharetxn.ClassNone},
		{51, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
		{47, 1, sharetxn.Aborted, sharetxn.ClassFatal},
		{49, 1, sharetxn.Aborted, sharetxn.ClassFatal},
		{90, 1, sharetxn.Aborted, sharetxn.ClassFatal},
		{105, 1, sharetxn.Aborted, sharetxn.ClassFatal},
		{53, 1, sharetxn.Aborted, sharetxn.ClassFatal},
		{48, 1, sharetxn.Aborted, sharetxn.ClassAbortable},
		{59, 1, sharetxn.Aborted, sharetxn.ClassAbortable},
		{120, 1, sharetxn.Aborted, sharetxn.ClassAbortable},
		{4711, 1, sharetxn.Committed, sharetxn.ClassNone},
		{4711, 1 << 30, sharetxn.Unknown, sharetxn.ClassUnknown},
	} {
		t.Run(fmt.Sprint(c.code, " ", c.times), func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{edit: func(c *broker.Config) { c.Brokers = 1 }})
			p := w.producer(t, "tx", ResolveTimeout(unresolved))
			w.works(ctx, t, p, "before")
			tx, err := p.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			// The kgo client has followed the transaction before when this returns.
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")}); err != nil {
				t.Fatal(err)
			}
			f := w.inject(keyEndTxn, c.times, func(r broker.Request) broker.Action {
				return broker.Action{Answer: endAnswer(r, c.code)}
			})
			out, err := tx.Commit(ctx)
			if out != c.want || sharetxn.ClassOf(err) != c.class {
				t.Fatalf("%v, %v (class %v)", out, err, sharetxn.ClassOf(err))
			}
			if f.fired.Load() == 0 {
				t.Fatal("the fault did not fire")
			}
			w.SetIntercept(nil)
			want := []string{"before"}
			fenced := c.class == sharetxn.ClassFatal && c.code != 53
			tx, err = p.Begin(ctx)
			if fenced != errors.Is(err, sharetxn.ErrFenced) {
				t.Fatalf("Begin after it: %v", err)
			}
			if !fenced {
				if err := tx.Abort(ctx); err != nil {
					t.Fatal(err)
				}
				w.works(ctx, t, p, "after")
				want = append(want, "after")
				if c.want != sharetxn.Aborted { // Begin committed what was unknown
					want = append(want, "it")
				}
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if fenced { // the answer was a lie: the transaction is still open
				next := w.producer(t, "tx")
				w.works(ctx, t, next, "after")
				want = append(want, "after")
			}
			same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		})
	}
}

// An answer that may hide a commit proves nothing of it, as little as one that was
// lost; one that says "not done, again" does, once the producer was fenced.
func TestHiddenCommitThenFenced(t *testing.T) {
	for _, c := range []struct {
		err  *kerr.Error
		done bool // before it was answered
		want sharetxn.Outcome
	}{
		{kerr.CoordinatorNotAvailable, true, sharetxn.Unknown},
		{kerr.NotCoordinator, true, sharetxn.Unknown},
		{kerr.UnknownServerError, true, sharetxn.Unknown},
		{kerr.NotCoordinator, false, sharetxn.Unknown},
		{kerr.CoordinatorLoadInProgress, false, sharetxn.Aborted},
		{kerr.ConcurrentTransactions, false, sharetxn.Aborted},
	} {
		t.Run(fmt.Sprintf("%s, done %v", c.err.Message, c.done), func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			w := start(t, setup{})
			w.feed(ctx, t, 3)
			cons, p, newer := w.consumer(t, "g"), w.producer(t, "tx", ResolveTimeout(time.Minute)), w.producer(t, "tx")
			if err := p.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			bs := gather(ctx, t, cons, 3)
			answered, fenced := make(chan struct{}), make(chan struct{})
			f := w.inject(keyEndTxn, 1<<30, func(r broker.Request) broker.Action {
				select {
				case <-fenced: // it says so
					return broker.Action{}
				case <-answered:
					return broker.Action{Answer: endAnswer(r, c.err.Code)}
				default:
				}
				close(answered)
				if c.done {
					return broker.Action{Instead: endAnswer(r, c.err.Code)}
				}
				return broker.Action{Answer: endAnswer(r, c.err.Code)}
			})
			go func() {
				defer close(fenced)
				<-answered
				if c.done {
					testkit.Eventually(ctx, t, "the commit is done", func() bool { return w.txn("tx").Status == txn.CompleteCommit })
				}
				if err := newer.InitTransactions(ctx); err != nil {
					t.Errorf("the newer producer: %v", err)
				}
			}()
			out, err := w.one(ctx, p, bs, "first")
			if f.fired.Load() < 2 {
				t.Fatalf("the fault fired %d times", f.fired.Load())
			}
			if out != c.want || !errors.Is(err, sharetxn.ErrFenced) || errors.Is(err, sharetxn.ErrOutcomeUnknown) != (c.want == sharetxn.Unknown) {
				t.Fatalf("%v, %v", out, err)
			}
			want := []string{"second"}
			if c.done {
				w.waitDone(ctx, t, "g", 3)
				want = append(want, "first")
			}
			w.works(ctx, t, newer, "second")
			same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		})
	}
}

// A commit whose answer was lost and whose producer was fenced then: nobody
// can tell any more, and it is not told.
func TestLostEndTxnThenFenced(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		newer, err := New(w.connect(t), "tx")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = newer.Close() })
		bs := gather(ctx, t, c, 3)
		lost := make(chan struct{})
		fenced := make(chan struct{})
		f := w.inject(keyEndTxn, 2, func(r broker.Request) broker.Action {
			select {
			case <-lost:
				return broker.Action{Wait: fenced}
			default:
				close(lost)
				return broker.Action{LoseAnswer: true}
			}
		})
		go func() {
			<-lost
			testkit.Eventually(ctx, t, "the commit is done", func() bool { return w.txn("tx").Status == txn.CompleteCommit })
			if err := newer.InitTransactions(ctx); err != nil {
				t.Errorf("the newer producer: %v", err)
			}
			close(fenced)
		}()
		out, err := w.one(ctx, p, bs, "first")
		f.mustHaveFired(t, 2)
		if out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) || !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", out, err)
		}
		if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrFenced) {
			t.Errorf("Begin after it: %v", err)
		}
		w.waitDone(ctx, t, "g", 3) // it was committed indeed
		w.works(ctx, t, newer, "second")
		same(t, "visible outputs", w.visible(ctx, t, "out"), "first", "second")
	})
}

// The broker's own timeout: the commit is denied, the abort moves the epoch, and
// the producer goes on, also after a produce at the old epoch.
func TestTransactionTimeout(t *testing.T) {
	for _, stale := range []bool{false, true} {
		t.Run(fmt.Sprint("stale produce ", stale), func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{})
			p := w.producer(t, "tx", TransactionTimeout(200*time.Millisecond), LockMargin(0))
			w.works(ctx, t, p, "before")
			tx, err := p.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("late")}); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx").Status == txn.Ongoing })
			testkit.Eventually(ctx, t, "the broker gives the transaction up", func() bool { return w.txn("tx").Status == txn.CompleteAbort })
			is := "the transaction timeout passed"
			if stale {
				is = kerr.InvalidProducerEpoch.Message
				produces := w.Traffic(keyProduce).Requests
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("later")}); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(ctx, t, "the stale produce is refused", func() bool { return tx.Err() != nil })
				if w.Traffic(keyProduce).Requests == produces {
					t.Fatal("nothing was produced")
				}
			}
			out, err := tx.Commit(ctx)
			if out != sharetxn.Aborted || !strings.Contains(fmt.Sprint(err), is) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
				t.Fatalf("%v, %v", out, err)
			}
			w.works(ctx, t, p, "after")
			w.works(ctx, t, p, "after that")
			same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after", "after that")
		})
	}
}

// A transaction that would time out before its acknowledgements are staged is
// not staged at all.
func TestTimeoutBeforeStaging(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx", TransactionTimeout(300*time.Millisecond), LockMargin(100*time.Millisecond))
		bs := gather(ctx, t, c, 3)
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		stages := w.stages()
		out, err := p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("late")}); err != nil {
				return err
			}
			testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx").Status == txn.Ongoing })
			testkit.Eventually(ctx, t, "the broker gives the transaction up", func() bool { return w.txn("tx").Status == txn.CompleteAbort })
			for _, b := range bs {
				b.AcceptRest()
			}
			return nil
		})
		if out != sharetxn.Aborted || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("%v, %v", out, err)
		}
		if got := w.stages(); got != stages {
			t.Errorf("%d staging requests", got-stages)
		}
		// Never staged, so still held, and run again at the first delivery.
		if out, err := w.one(ctx, p, bs, "again"); out != sharetxn.Committed || err != nil {
			t.Fatalf("second run: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "again")
	})
}
