package acknowledger

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// misuses is a hook that keeps what it is told.
type misuses struct {
	mu   sync.Mutex
	told []sharetxn.Misuse
}

func (m *misuses) OnMisuse(e sharetxn.Misuse) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, e)
}

func (m *misuses) seen() []sharetxn.Misuse {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told
}

// Close aborts what is being staged, turns away who waits, and may be called
// often and by many; nothing of it counts as misuse.
func TestCloseWhileStaging(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		hook := &misuses{}
		w := start(t, p, shortLock, hook)
		w.feed(ctx, t, 6)
		c, a := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.acknowledger(t, thinMargin)
		bs := gather(ctx, t, 6, c)
		_, came := w.stall(false)
		first := commit(ctx, a, bs[:3])
		wait(ctx, t, "the first stage", came)
		second := commit(ctx, a, bs[3:])
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := a.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		if r := <-first; r.out != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrAborted) || !errors.Is(r.err, sharetxn.ErrClosed) {
			t.Errorf("the one under way: %v, %v", r.out, r.err)
		}
		if r := <-second; r.out != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrClosed) {
			t.Errorf("the one in line: %v, %v", r.out, r.err)
		}
		if held(bs[3:]) != 3 {
			t.Errorf("%d records of the one in line are still held", held(bs[3:]))
		}
		for n := range 20 { // with a batch and without, in turn
			in := bs[3 : 3+n%2]
			if out, err := a.CommitAcknowledgements(ctx, accepted(in)...); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrClosed) || !sharetxn.IsFatal(err) {
				t.Errorf("%d batches after Close: %v, %v", len(in), out, err)
			}
		}
		if err := a.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrClosed) {
			t.Errorf("InitTransactions after Close: %v", err)
		}
		if told := hook.seen(); len(told) > 0 {
			t.Errorf("misuse: %+v", told)
		}
		w.SetIntercept(nil)
		w.finish(ctx, t, w.acknowledger(t, thinMargin), c, bs, 6)
	})
}

// Close waits for a commit whose EndTxn is sent, within its bound; past that
// nothing is claimed that is not proven, and the next acknowledger goes on.
func TestCloseDuringEnd(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		for name, want := range map[string]sharetxn.Outcome{"answered in time": sharetxn.Committed, "not answered": sharetxn.Unknown} {
			t.Run(name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 60*time.Second)
				w := start(t, p, nil)
				w.feed(ctx, t, 3)
				const bound = time.Second
				c, a := w.consumer(t, "g"), w.acknowledger(t, CloseTimeout(bound))
				bs := gather(ctx, t, 3, c)
				came, free := w.hold(keyEndTxn)
				ended := commit(ctx, a, bs)
				wait(ctx, t, "EndTxn", came)
				if want == sharetxn.Committed {
					time.AfterFunc(bound/10, func() { close(free) })
				} else {
					defer close(free)
				}
				began := time.Now()
				err := a.Close()
				if took := time.Since(began); took > 2*bound {
					t.Errorf("Close took %v", took)
				}
				if errors.Is(err, sharetxn.ErrOutcomeUnknown) != (want == sharetxn.Unknown) || (err == nil) != (want == sharetxn.Committed) {
					t.Errorf("Close: %v", err)
				}
				if again := a.Close(); !errors.Is(again, err) {
					t.Errorf("Close again: %v", again)
				}
				if r := <-ended; r.out != want || (r.err == nil) != (want == sharetxn.Committed) {
					t.Errorf("%v, %v", r.out, r.err)
				}
				if want == sharetxn.Committed {
					w.waitDone(ctx, t, "g", 3)
					return
				}
				// The batch of an unknown outcome is nobody's: its member leaves.
				w.SetIntercept(nil)
				next := w.acknowledger(t)
				if err := next.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				w.finish(ctx, t, next, w.consumer(t, "g"), nil, 3)
			})
		}
	})
}

// Close without brokers is bounded.
func TestCloseWithoutBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, draft95, nil)
	w.feed(ctx, t, 3)
	const bound = time.Second
	c, a := w.consumer(t, "g"), w.acknowledger(t, CloseTimeout(bound))
	bs := gather(ctx, t, 3, c)
	_, came := w.stall(true)
	ended := commit(ctx, a, bs)
	wait(ctx, t, "a stage", came)
	for node := range int32(3) {
		w.StopNode(node)
	}
	began := time.Now()
	err := a.Close()
	if took := time.Since(began); took > 2*bound {
		t.Errorf("Close took %v", took)
	}
	if !errors.Is(err, sharetxn.ErrOutcomeUnknown) && err != nil {
		t.Errorf("Close: %v", err)
	}
	if r := <-ended; r.out == sharetxn.Committed || r.err == nil {
		t.Errorf("%v, %v", r.out, r.err)
	}
}
