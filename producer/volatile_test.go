package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Profile KIP93: what an abort leaves with us is bound to that transaction until
// its markers are written. The next one has the same id, so its coordinator makes
// it wait for them, and it commits the records at their first delivery.
func TestAbortedRecordsWaitForTheMarkers(t *testing.T) {
	for name, produce := range map[string]bool{"with outputs": true, "acknowledgements only": false} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{profile: wire.KIP93})
			w.feed(ctx, t, 6)
			c, p := w.consumer(t, "g"), w.producer(t, "tx", AlternateIDs(2))
			bs := gather(ctx, t, c, 6)
			run := func() (sharetxn.Outcome, error) {
				return p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
					for _, b := range bs {
						b.AcceptRest()
					}
					if !produce {
						return nil
					}
					return tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")})
				})
			}
			write := make(chan struct{})
			w.TreatMarkers(func(m txn.Marker) txn.Treatment {
				if m.Commit {
					return txn.Treatment{}
				}
				return txn.Treatment{Wait: write}
			})
			f := w.inject(keyEndTxn, 1, func(r broker.Request) broker.Action { return broker.Action{Answer: endAnswer(r, 120)} })
			if out, err := run(); out != sharetxn.Aborted || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
				t.Fatalf("%v, %v", out, err)
			}
			f.mustHaveFired(t, 1)
			if _, _, _, pending := w.totals("g"); pending != 6 || w.txn("tx").Status != txn.PrepareAbort {
				t.Fatalf("%d records are pending in a transaction that is %v", pending, w.txn("tx").Status)
			}
			// The markers are written once tx was told to wait for them three times:
			// its staging, or its kgo client that follows the abort.
			var early atomic.Int64
			free := sync.OnceFunc(func() { close(write) })
			w.SetIntercept(func(broker.Request) broker.Action {
				return broker.Action{After: func(kresp kmsg.Response) {
					var refused atomic.Int64
					switch resp := kresp.(type) {
					case *wire.Response:
						countCode(51, &refused)(resp)
						refused.Add(map[int16]int64{51: 1}[resp.ErrorCode])
					case *kmsg.EndTxnResponse:
						refused.Add(map[int16]int64{51: 1}[resp.ErrorCode])
					}
					if refused.Load() > 0 && early.Add(1) == 3 {
						free()
					}
				}}
			})
			bs = w.again(ctx, t, c, bs, 6, 0)
			if out, err := run(); out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
			if early.Load() < 3 {
				t.Errorf("told to wait for the markers %d times", early.Load())
			}
			w.waitDone(ctx, t, "g", 6)
			var want []string
			if produce {
				want = append(want, "it")
			}
			same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		})
	}
}

// A lock that ends while a transaction aborts: the records are not ours any more,
// whatever the profile, and none of them is kept to be run on.
func TestAbortAfterTheLockEnded(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile, lock: time.Second})
		w.feed(ctx, t, 3)
		c := w.consumer(t, "g", shareconsumer.LockMargin(10*time.Millisecond))
		p := w.producer(t, "tx", LockMargin(10*time.Millisecond))
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, c, 3)
		f := w.inject(keyEndTxn, 1, func(r broker.Request) broker.Action {
			over := make(chan struct{})
			time.AfterFunc(time.Second, func() { close(over) })
			return broker.Action{Wait: over, Answer: endAnswer(r, 120)}
		})
		out, err := w.one(ctx, p, bs, "denied")
		f.mustHaveFired(t, 1)
		if out != sharetxn.Aborted || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("%v, %v", out, err)
		}
		if n := count(bs); n != 0 {
			t.Fatalf("%d records are kept though their locks have ended", n)
		}
		rest := gather(ctx, t, c, 3)
		for _, b := range rest {
			for _, r := range b.Records() {
				if r.DeliveryCount() != 2 {
					t.Errorf("record %s: delivery %d", r.Value, r.DeliveryCount())
				}
			}
		}
		w.commits(ctx, t, p, rest, "again")
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "again")
	})
}

// The two windows in which profile KIP93 may publish twice, by its own words:
// the lock ends, or the leader is lost, between staging and the markers. In
// Draft95 nothing comes of either. The outcome is told as it is in both.
func TestConcededWindows(t *testing.T) {
	for name, window := range map[string]struct {
		lock   time.Duration
		strike func(ctx context.Context, t *testing.T, w *world)
	}{
		"the lock ends": {time.Second, func(ctx context.Context, t *testing.T, w *world) {
			began := time.Now()
			testkit.Eventually(ctx, t, "the lock has ended", func() bool { return time.Since(began) > 1100*time.Millisecond })
		}},
		"the leader moves": {20 * time.Second, func(_ context.Context, t *testing.T, w *world) {
			for part := range int32(3) {
				if err := w.MoveLeader("in", part, (w.Leader("in", part)+1)%3); err != nil {
					t.Error(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			eachProfile(t, func(t *testing.T, profile wire.Profile) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile, lock: window.lock})
				w.feed(ctx, t, 3)
				c := w.consumer(t, "g", shareconsumer.LockMargin(10*time.Millisecond))
				p := w.producer(t, "tx", LockMargin(10*time.Millisecond))
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, c, 3)
				struck := make(chan struct{})
				f := w.inject(keyEndTxn, 1, func(broker.Request) broker.Action {
					go func() {
						defer close(struck)
						if _, _, _, pending := w.totals("g"); pending != 3 {
							t.Errorf("%d records are staged, want 3", pending)
						}
						window.strike(ctx, t, w)
					}()
					return broker.Action{Wait: struck}
				})
				out, err := w.one(ctx, p, bs, "it")
				f.mustHaveFired(t, 1)
				if out != sharetxn.Committed || err != nil {
					t.Fatalf("%v, %v", out, err)
				}
				want := []string{"it"}
				if profile == wire.KIP93 {
					w.commits(ctx, t, p, gather(ctx, t, c, 3), "it")
					want = append(want, "it")
				}
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
			})
		})
	}
}

// The neighbour of both: a leader that is lost after the markers, or a lock that
// ends before the commit was sent, doubles nothing in either profile.
func TestNextToTheConcededWindows(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile, lock: time.Second})
		w.feed(ctx, t, 3)
		c := w.consumer(t, "g", shareconsumer.LockMargin(10*time.Millisecond))
		p := w.producer(t, "tx", LockMargin(300*time.Millisecond))
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, c, 3)
		// The last leader's answer comes when less than the margin is left.
		var nth atomic.Int64
		f := w.injectStage(3, func(broker.Request) broker.Action {
			if nth.Add(1) < 3 {
				return broker.Action{}
			}
			over := make(chan struct{})
			time.AfterFunc(time.Until(bs[0].Deadline().Add(-200*time.Millisecond)), func() { close(over) })
			return broker.Action{Wait: over}
		})
		out, err := w.one(ctx, p, bs, "late")
		f.mustHaveFired(t, 3)
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrLockExpired) {
			t.Fatalf("%v, %v", out, err)
		}
		w.SetIntercept(nil)
		rest := remaining(bs)
		rest = append(rest, gather(ctx, t, c, 3-count(rest))...)
		w.commits(ctx, t, p, rest, "it")
		w.waitDone(ctx, t, "g", 3)
		for part := range int32(3) {
			if err := w.MoveLeader("in", part, (w.Leader("in", part)+1)%3); err != nil {
				t.Fatal(err)
			}
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
	})
}
