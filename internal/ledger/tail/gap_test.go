package tail

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Truncation that overtakes the tail is a gap: what was open before it decides
// nothing any more, and until the starts of the share partitions were read after
// it nothing is fresh. Neighbours see nothing of it.
func TestGap(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	for range 20 {
		w.put(t, "in", 0, []byte("x"))
	}
	slow, seen := w.open(ctx, t)
	quickOne, _ := w.open(ctx, t)
	open := w.begin(ctx, t, slow, "open", w.positions(0, 0, 1)...)
	w.until(ctx, t, slow, "OOF", 0, 0, 1, 2)

	release := w.hold(t, 0)
	open.end(ctx, kgo.TryCommit)
	done := w.begin(ctx, t, slow, "done", w.positions(0, 2, 3)...)
	done.end(ctx, kgo.TryCommit)
	w.generation(t, active(1), 0)
	after := w.begin(ctx, t, slow, "after", w.positions(0, 6)...)
	w.setStart(ctx, t, 0, 4)
	starts := make(chan struct{})
	held := w.plan.Add(fault.Fault{Key: keyDescribeStarts, When: fault.When{Times: fault.Always}, Action: fault.Hold(starts)})
	<-held.Fired()
	w.deleteTo(ctx, t, 0, after.entries[0].Offset-1)
	release()
	// All was read, and no start.
	w.until(ctx, t, slow, "UUUUUUOU", 0, 0, 1, 2, 3, 4, 5, 6, 7)
	b := w.begin(ctx, t, slow, "b", w.positions(0, 3, 4)...)
	wantConflict(t, slow.Decide(ctx, b.entries), ConflictError{Unsure: 2})
	held.Cancel()
	close(starts)
	w.until(ctx, t, slow, "BBBBOFOF", 0, 0, 1, 2, 3, 4, 5, 6, 7)
	wantConflict(t, slow.Decide(ctx, b.entries), ConflictError{Below: 1})
	c := w.begin(ctx, t, slow, "c", w.positions(0, 7)...)
	if err := slow.Decide(ctx, c.entries); err != nil {
		t.Fatalf("after the gap: %v", err)
	}
	gaps := seen.of(sharetxn.LedgerGap)
	if len(gaps) != 1 || gaps[0].Partition != 0 || gaps[0].Records <= 0 || gaps[0].Group != group {
		t.Errorf("told: %+v", gaps)
	}
	if err := slow.Err(); err != nil {
		t.Error(err)
	}
	w.until(ctx, t, quickOne, "BBBBOFOO", 0, 0, 1, 2, 3, 4, 5, 6, 7)
	w.until(ctx, t, slow, "FFF", 1, 0, 1, 2)
}
