package tail

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
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
	coordinator := w.coordinator(ctx, t)
	n := int32(0)
	for w.Leader(ledgerOfG, n) == coordinator {
		n++
	}
	return n
}

// A log that was cut off behind what was read of it, as after an unclean
// election, is read again from its beginning, loudly; until the starts were read
// after that nothing is fresh.
func TestLostLog(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	w.put(t, "in", 0, []byte("x"))
	w.setStart(ctx, t, 0, 0)
	l, seen := w.open(ctx, t)
	w.begin(ctx, t, l, "a", w.positions(0, 0, 1)...).end(ctx, kgo.TryCommit)
	open := w.begin(ctx, t, l, "b", w.positions(0, 2)...)
	w.until(ctx, t, l, "DDOF", 0, 0, 1, 2, 3)

	// What the new leader says of the epoch before its own.
	var asked atomic.Int32
	w.SetIntercept(func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.OffsetForLeaderEpochRequest)
		if !ok || !asked.CompareAndSwap(0, 1) {
			return w.plan.Intercept()(r)
		}
		resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
			rt.Topic = t.Topic
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
				rp.Partition, rp.LeaderEpoch, rp.EndOffset = p.Partition, p.LeaderEpoch, 1
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return broker.Action{Answer: resp}
	})
	starts := make(chan struct{})
	held := w.plan.Add(fault.Fault{Key: keyDescribeStarts, When: fault.When{Times: fault.Always}, Action: fault.Hold(starts)})
	<-held.Fired()
	// To whoever neither leads it nor coordinates the group, where requests are held.
	to := int32(0)
	for to == w.Leader(ledgerOfG, 0) || to == w.coordinator(ctx, t) {
		to++
	}
	if err := w.MoveLeader(ledgerOfG, 0, to); err != nil {
		t.Fatal(err)
	}
	w.until(ctx, t, l, "DDOU", 0, 0, 1, 2, 3)
	if asked.Load() == 0 {
		t.Error("nobody asked where the log was cut off")
	}
	held.Cancel()
	close(starts)
	w.until(ctx, t, l, "DDOF", 0, 0, 1, 2, 3)
	open.end(ctx, kgo.TryAbort)
	w.until(ctx, t, l, "DDFF", 0, 0, 1, 2, 3)
	if gaps := seen.of(sharetxn.LedgerGap); len(gaps) != 1 || gaps[0].Partition != 0 {
		t.Errorf("told: %+v", gaps)
	}
	if n := w.log.count("level=ERROR msg=\"sharetxn: the ledger's log was cut off"); n != 1 {
		t.Errorf("logged %d times", n)
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}

func (w *world) coordinator(ctx context.Context, t *testing.T) int32 {
	t.Helper()
	found := w.admin.FindGroupCoordinators(ctx, group)
	if err := found.Error(); err != nil {
		t.Fatal(err)
	}
	return found[group].NodeID
}
