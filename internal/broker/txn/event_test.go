package txn

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"
)

// observed gives and forgets what was told to the observer.
func (w *world) observed() []Event {
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	out := w.events
	w.events = nil
	return out
}

// A decision is told when it is made and again when it is applied, whoever made
// it; what decides nothing is not told.
func TestEvents(t *testing.T) {
	for name, tc := range map[string]struct {
		end                func(context.Context, *world, Key)
		commit, byProducer bool
	}{
		"commit":  {func(ctx context.Context, w *world, k Key) { w.end(ctx, k, true) }, true, true},
		"abort":   {func(ctx context.Context, w *world, k Key) { w.end(ctx, k, false) }, false, true},
		"fence":   {func(ctx context.Context, w *world, _ Key) { w.tryInit(ctx, "x", -1, -1, minute) }, false, false},
		"timeout": {nil, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(ctx context.Context, w *world) {
				k := w.init(ctx, "x", -1, -1, minute)
				w.want(w.c.AddShareState(ctx, "x", k.ProducerID, k.ProducerEpoch, []int32{3, 1}), codeNone, "staging")
				w.want(w.produce(ctx, k), codeNone, "produce")
				if got := w.observed(); got != nil {
					t.Fatalf("told %+v before anything was decided", got)
				}
				if tc.end != nil {
					tc.end(ctx, w, k)
				} else {
					time.Sleep(minute)
				}
				synctest.Wait()
				decision := Event{
					TransactionalID: "x", Writer: k, Commit: tc.commit, ByProducer: tc.byProducer,
					Partitions: []Partition{{"out", 2}, {"state", 1}, {"state", 3}},
				}
				applied := decision
				applied.Applied = true
				if got := w.observed(); !reflect.DeepEqual(got, []Event{decision, applied}) {
					t.Fatalf("told\n%+v, want\n%+v", got, []Event{decision, applied})
				}
				w.end(ctx, k, tc.commit) // a retry, or refused
				k = w.init(ctx, "x", -1, -1, minute)
				w.end(ctx, k, true)
				w.end(ctx, k, false) // of nothing
				if got := w.observed(); got != nil {
					t.Fatalf("told %+v", got)
				}
			})
		})
	}
}
