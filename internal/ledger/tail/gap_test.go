package tail

import (
	"context"
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
	// A request that is held holds up what is asked on the same connection.
	n := w.apartFromCoordinator(ctx, t)
	for range 20 {
		w.put(t, "in", n, []byte("x"))
	}
	slow, seen := w.open(ctx, t) // the only one: hold waits for one fetch
	open := w.begin(ctx, t, slow, "open", w.positions(n, 0, 1)...)
	w.until(ctx, t, slow, "OOF", n, 0, 1, 2)

	release := w.hold(t, n)
	open.end(ctx, kgo.TryCommit)
	done := w.begin(ctx, t, slow, "done", w.positions(n, 2, 3)...)
	done.end(ctx, kgo.TryCommit)
	w.generation(t, active(1), n)
	after := w.begin(ctx, t, slow, "after", w.positions(n, 6)...)
	w.setStart(ctx, t, n, 4)
	starts := make(chan struct{})
	held := w.plan.Add(fault.Fault{Key: keyDescribeStarts, When: fault.When{Times: fault.Always}, Action: fault.Hold(starts)})
	<-held.Fired()
	w.deleteTo(ctx, t, n, after.entries[0].Offset-1)
	release()
	// All was read, and no start.
	w.until(ctx, t, slow, "UUUUUUOU", n, 0, 1, 2, 3, 4, 5, 6, 7)
	b := w.begin(ctx, t, slow, "b", w.positions(n, 3, 4)...)
	wantConflict(t, slow.Decide(ctx, b.entries), ConflictError{Unsure: 2})
	held.Cancel()
	close(starts)
	w.until(ctx, t, slow, "BBBBOFOF", n, 0, 1, 2, 3, 4, 5, 6, 7)
	wantConflict(t, slow.Decide(ctx, b.entries), ConflictError{Below: 1})
	c := w.begin(ctx, t, slow, "c", w.positions(n, 7)...)
	if err := slow.Decide(ctx, c.entries); err != nil {
		t.Fatalf("after the gap: %v", err)
	}
	gaps := seen.of(sharetxn.LedgerGap)
	if len(gaps) != 1 || gaps[0].Partition != n || gaps[0].Records <= 0 || gaps[0].Group != group {
		t.Errorf("told: %+v", gaps)
	}
	if err := slow.Err(); err != nil {
		t.Error(err)
	}
	w.until(ctx, t, slow, "FFF", (n+1)%3, 0, 1, 2)
	if anew, _ := w.open(ctx, t); w.verdicts(anew, n, 0, 1, 2, 3, 4, 5, 6, 7) != "BBBBOFOO" {
		t.Errorf("loaded anew: %s", w.verdicts(anew, n, 0, 1, 2, 3, 4, 5, 6, 7))
	}
}

// apartFromCoordinator is a partition of the ledger whose leader does not
// coordinate the group.
func (w *world) apartFromCoordinator(ctx context.Context, t *testing.T) int32 {
	t.Helper()
	found := w.admin.FindGroupCoordinators(ctx, group)
	if err := found.Error(); err != nil {
		t.Fatal(err)
	}
	n := int32(0)
	for w.Leader(ledgerOfG, n) == found[group].NodeID {
		n++
	}
	return n
}
