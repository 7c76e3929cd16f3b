package acknowledger

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// An abort reaches a CommitAcknowledgements that is staging, whether the broker
// has staged already or not: nothing is acknowledged, all comes back, and the
// next call works.
func TestAbortWhileStaging(t *testing.T) {
	for name, staged := range map[string]bool{"refused for now": false, "staged, and never told": true} {
		t.Run(name, func(t *testing.T) {
			inProfiles(t, func(t *testing.T, p profile) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, p, shortLock)
				w.feed(ctx, t, 9)
				c, a := w.consumer(t, "g"), w.acknowledger(t, thinMargin)
				if err := a.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, 9, c)
				f, came := w.stall(staged)
				ended := commit(ctx, a, bs)
				wait(ctx, t, "the first stage", came)
				testkit.Eventually(ctx, t, "the first leader has staged, or does not at all", func() bool {
					_, _, _, pending := w.totals("g")
					return (pending == 3) == staged && f.fired.Load() > 1
				})
				if err := a.AbortAcknowledgements(ctx); err != nil {
					t.Fatalf("AbortAcknowledgements: %v", err)
				}
				r := <-ended
				if r.out != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrAborted) || !errors.Is(r.err, errAbortCalled) || sharetxn.ClassOf(r.err) != sharetxn.ClassAbortable {
					t.Fatalf("%v, %v", r.out, r.err)
				}
				w.SetIntercept(nil)
				if done, _, _, _ := w.totals("g"); done != 0 {
					t.Fatalf("%d records are done", done)
				}
				// Of the two leaders that were not asked all is still held.
				if held(bs) < 6 {
					t.Errorf("%d records are still held", held(bs))
				}
				w.finish(ctx, t, a, c, bs, 9)
			})
		})
	}
}

// An abort with nothing under way does nothing, also while the acknowledger is
// made ready, and once it is closed.
func TestAbortOfNothing(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, draft95, nil)
	w.feed(ctx, t, 3)
	c, a := w.consumer(t, "g"), w.acknowledger(t)
	nothing := func() {
		t.Helper()
		if err := a.AbortAcknowledgements(ctx); err != nil {
			t.Errorf("AbortAcknowledgements: %v", err)
		}
	}
	nothing()
	came, free := w.hold(keyInit)
	ready := make(chan error, 1)
	go func() { ready <- a.InitTransactions(ctx) }()
	wait(ctx, t, "InitProducerId", came)
	nothing()
	close(free)
	if err := <-ready; err != nil {
		t.Fatalf("InitTransactions: %v", err)
	}
	w.finish(ctx, t, a, c, nil, 3)
	nothing()
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	nothing()
}

// Once EndTxn is sent an abort is too late, and says so.
func TestAbortTooLate(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, nil)
		w.feed(ctx, t, 3)
		c, a := w.consumer(t, "g"), w.acknowledger(t)
		bs := gather(ctx, t, 3, c)
		came, free := w.hold(keyEndTxn)
		ended := commit(ctx, a, bs)
		wait(ctx, t, "EndTxn", came)
		underWay := a.committing()
		impatient, cancel := context.WithCancel(ctx)
		cancel()
		if err := a.AbortAcknowledgements(impatient); !errors.Is(err, context.Canceled) || errors.Is(err, errTooLate) {
			t.Errorf("while the outcome is open: %v", err)
		}
		close(free)
		if err := a.abort(ctx, underWay); !errors.Is(err, errTooLate) {
			t.Errorf("once it is committed: %v", err)
		}
		if r := <-ended; r.out != sharetxn.Committed || r.err != nil {
			t.Errorf("%v, %v", r.out, r.err)
		}
		w.waitDone(ctx, t, "g", 3)
	})
}

// An abort of one that is fenced says so: the next call cannot go on.
func TestAbortOfFenced(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, shortLock)
		w.feed(ctx, t, 3)
		c, a := w.consumer(t, "g"), w.acknowledger(t, thinMargin)
		f, came := w.stall(false)
		bs := gather(ctx, t, 3, c)
		ended := commit(ctx, a, bs)
		wait(ctx, t, "the first stage", came)
		newer := w.acknowledger(t, thinMargin)
		if err := newer.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.AbortAcknowledgements(ctx); !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
			t.Errorf("AbortAcknowledgements: %v", err)
		}
		if r := <-ended; r.out != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrFenced) {
			t.Errorf("%v, %v", r.out, r.err)
		}
		if f.fired.Load() == 0 {
			t.Error("no stage was refused")
		}
		w.SetIntercept(nil)
		// Between two attempts nothing is under way, and the records are kept.
		w.finish(ctx, t, newer, c, bs, 3)
	})
}

// ender is a hook that panics when a transaction has ended.
type ender struct{}

func (ender) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }
func (ender) OnTxnEnd(context.Context, sharetxn.TxnEnd)                           { panic("on purpose") }

// A CommitAcknowledgements that ends in a panic tells whoever waits for it that
// the outcome is not known, and gives its turn back.
func TestAbortOfPanic(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, draft95, nil, ender{})
	w.feed(ctx, t, 3)
	c, a := w.consumer(t, "g"), w.acknowledger(t)
	in := accepted(gather(ctx, t, 3, c))
	came, free := w.hold(keyEndTxn)
	panicked := make(chan any, 1)
	go func() {
		defer func() { panicked <- recover() }()
		_, _ = a.CommitAcknowledgements(ctx, in...)
	}()
	wait(ctx, t, "EndTxn", came)
	underWay := a.committing()
	close(free)
	if p := <-panicked; p != "on purpose" {
		t.Fatalf("panicked with %v", p)
	}
	if err := a.abort(ctx, underWay); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
		t.Errorf("AbortAcknowledgements: %v", err)
	}
	if out, err := a.CommitAcknowledgements(ctx); out != sharetxn.Committed || err != nil {
		t.Errorf("the next call: %v, %v", out, err)
	}
}

// An abort reaches the one under way and not those in line behind it.
func TestAbortSparesWhoWaits(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, shortLock)
		w.feed(ctx, t, 6)
		c, a := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.acknowledger(t, thinMargin)
		bs := gather(ctx, t, 6, c)
		_, came := w.stall(false)
		first := commit(ctx, a, bs[:3])
		wait(ctx, t, "the first stage", came)
		second := commit(ctx, a, bs[3:])
		if err := a.AbortAcknowledgements(ctx); err != nil {
			t.Fatalf("AbortAcknowledgements: %v", err)
		}
		if r := <-first; r.out != sharetxn.Aborted || !errors.Is(r.err, errAbortCalled) {
			t.Errorf("the one under way: %v, %v", r.out, r.err)
		}
		w.SetIntercept(nil)
		if r := <-second; r.out != sharetxn.Committed || r.err != nil {
			t.Errorf("the one in line: %v, %v", r.out, r.err)
		}
		w.finish(ctx, t, a, c, bs, 6)
	})
}

// Records without a verdict make it an abort, with nothing sent; the batch stays
// open and the same delivery is committed once they are decided.
func TestUndecided(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, nil)
		w.feed(ctx, t, 9)
		c, a := w.consumer(t, "g"), w.acknowledger(t)
		bs := gather(ctx, t, 9, c)
		in := accepted(bs[1:])
		for _, r := range bs[0].Records()[1:] {
			r.Accept()
		}
		undecided := bs[0].Records()[0]
		out, err := a.CommitAcknowledgements(ctx, append(in, bs[0])...)
		which, ok := errors.AsType[*sharetxn.RecordsError](err)
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrUndecided) || !errors.Is(err, sharetxn.ErrAborted) || !ok {
			t.Fatalf("%v, %v", out, err)
		}
		if which.Partition != undecided.Partition || !slices.Equal(which.Offsets, []int64{undecided.Offset}) {
			t.Errorf("names %v, want offset %d of partition %d", which, undecided.Offset, undecided.Partition)
		}
		if got := w.Traffic(p.wire.Key()).Requests; got != handshakes || w.Traffic(keyEndTxn).Requests > 0 {
			t.Errorf("%d staging requests, %d EndTxn", got-handshakes, w.Traffic(keyEndTxn).Requests)
		}
		if held(bs) != 9 {
			t.Fatalf("%d records are still held", held(bs))
		}
		w.finish(ctx, t, a, c, bs, 9)
		if undecided.DeliveryCount() != 1 {
			t.Errorf("delivery %d", undecided.DeliveryCount())
		}
	})
}

// The caller's context: before EndTxn its end aborts, after that it does not
// matter any more.
func TestContextEnds(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		for _, c := range []struct {
			name string
			at   func(*world) (came, free chan struct{})
			want sharetxn.Outcome
		}{
			{"while staging", func(w *world) (came, free chan struct{}) { _, came = w.stall(false); return came, make(chan struct{}) }, sharetxn.Aborted},
			{"after EndTxn was sent", func(w *world) (came, free chan struct{}) { return w.hold(keyEndTxn) }, sharetxn.Committed},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, p, shortLock)
				w.feed(ctx, t, 3)
				cons, a := w.consumer(t, "g"), w.acknowledger(t, thinMargin)
				bs := gather(ctx, t, 3, cons)
				came, free := c.at(w)
				short, cancel := context.WithCancel(ctx)
				defer cancel()
				ended := commit(short, a, bs)
				wait(ctx, t, "the request", came)
				cancel()
				close(free)
				r := <-ended
				w.SetIntercept(nil)
				if r.out != c.want || (r.err == nil) != (c.want == sharetxn.Committed) || r.err != nil && !errors.Is(r.err, context.Canceled) {
					t.Fatalf("%v, %v", r.out, r.err)
				}
				w.finish(ctx, t, a, cons, bs, 3)
			})
		}
	})
}
