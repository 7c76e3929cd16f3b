package tail

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// logStart is where a partition of the ledger begins.
func (w *world) logStart(t *testing.T, partition int32) int64 {
	t.Helper()
	b, err := w.Bounds(ledgerOfG, partition)
	if err != nil {
		t.Fatal(err)
	}
	return b.Start
}

// What decides nothing is deleted, and nothing else: an entry that is undecided,
// or committed and not wholly below the start, holds the log; one that was
// aborted does not.
func TestTruncate(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	for range 20 {
		w.put(t, "in", 0, []byte("x"))
	}
	l, seen := w.open(ctx, t)
	truncate := func(what string, wantStart int64) {
		t.Helper()
		before := w.logStart(t, 0)
		deleted, err := l.Truncate(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if got := w.logStart(t, 0); got != wantStart || deleted != wantStart-before {
			t.Fatalf("%s: the log begins at %d, %d deleted; want %d", what, got, deleted, wantStart)
		}
	}
	w.begin(ctx, t, l, "a", w.positions(0, 0, 1)...).end(ctx, kgo.TryAbort)
	b := w.begin(ctx, t, l, "b", w.positions(0, 0, 1)...)
	w.begin(ctx, t, l, "x", w.positions(0, 9)...).end(ctx, kgo.TryAbort)
	c := w.begin(ctx, t, l, "c", w.positions(0, 2, 3)...)
	c.end(ctx, kgo.TryCommit)
	w.until(ctx, t, l, "OODD", 0, 0, 1, 2, 3)
	truncate("one is undecided", b.entries[0].Offset)
	b.end(ctx, kgo.TryCommit)
	w.until(ctx, t, l, "DDDD", 0, 0, 1, 2, 3)
	truncate("committed and above the start", b.entries[0].Offset)
	w.setStart(ctx, t, 0, 1)
	truncate("half below the start", b.entries[0].Offset)
	w.setStart(ctx, t, 0, 2)
	truncate("wholly below the start", c.entries[0].Offset)
	w.setStart(ctx, t, 0, 4)
	before := w.logStart(t, 0)
	if deleted, err := l.Truncate(ctx); err != nil || deleted <= 0 || w.logStart(t, 0) != before+deleted {
		t.Fatalf("nothing holds it: %d, %v", deleted, err)
	}
	// All that is left is the generation, which whoever comes needs.
	anew, _ := w.open(ctx, t)
	for _, x := range []*Ledger{l, anew} {
		if got := w.verdicts(x, 0, 0, 1, 2, 3, 4, 5); got != "BBBBFF" {
			t.Errorf("afterwards: %s", got)
		}
	}
	if total := slices.Collect(func(yield func(int64) bool) {
		for _, e := range seen.of(sharetxn.LedgerTruncated) {
			if e.Partition == 0 && !yield(e.Records) {
				return
			}
		}
	}); len(total) != 3 {
		t.Errorf("told: %v", total)
	}
	d := w.begin(ctx, t, l, "d", w.positions(0, 4)...)
	if err := errors.Join(l.Decide(ctx, d.entries), anew.Decide(ctx, d.entries)); err != nil {
		t.Fatal(err)
	}
}

// Processes that truncate at once, and a reset beside them, leave a ledger that
// says which generation it is in.
func TestTruncateBesideOthers(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	for range 20 {
		w.put(t, "in", 0, []byte("x"))
	}
	var all []*Ledger
	for range 4 {
		l, _ := w.open(ctx, t)
		all = append(all, l)
	}
	w.setStart(ctx, t, 0, 10)
	for round := range int64(5) {
		w.begin(ctx, t, all[0], "a", w.positions(0, round)...).end(ctx, kgo.TryCommit)
		done := make(chan error, len(all))
		for _, l := range all {
			go func() { _, err := l.Truncate(ctx); done <- err }()
		}
		for range all {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.tryOpen(ctx, t); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	if w.logStart(t, 0) == 0 {
		t.Error("nothing was deleted")
	}
	// The reset writes while they truncate.
	truncates := make(chan error, len(all))
	for _, l := range all {
		go func() {
			for {
				if _, err := l.Truncate(ctx); err != nil {
					truncates <- err
					return
				}
			}
		}()
	}
	w.generation(t, resetting(2), 0, 1, 2)
	for range all {
		wantFatal(t, <-truncates, ErrGeneration)
	}
	if l, err := w.tryOpen(ctx, t); l != nil {
		t.Errorf("while it is reset: %v", err)
	}
	w.generation(t, active(2), 0, 1, 2)
	l, err := w.tryOpen(ctx, t)
	if err != nil {
		t.Fatal(err)
	}
	if l.Generation() != active(2) {
		t.Errorf("generation %+v", l.Generation())
	}
}

func (w *world) tryOpen(ctx context.Context, t *testing.T) (*Ledger, error) {
	t.Helper()
	l, err := Open(ctx, w.connect(t), group, quick)
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
	}
	return l, err
}

// A process truncates by itself, when it is worth while.
func TestTruncatesByItself(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	w := start(t)
	opts := quick
	opts.Truncations = 20 * time.Millisecond
	l, seen := w.open(ctx, t, opts)
	end := func() int64 { b, err := w.Bounds(ledgerOfG, 0); return map[bool]int64{true: b.End}[err == nil] }
	a := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
	a.end(ctx, kgo.TryAbort)
	for end() < worthwhile-3 {
		if err := a.cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			a.write(ctx, l, "a", w.positions(0, 0)...)
		}
		a.end(ctx, kgo.TryAbort)
		if start := w.logStart(t, 0); end() < worthwhile && start != 0 {
			t.Fatalf("truncated to %d of %d already", start, end())
		}
	}
	for end() <= worthwhile {
		w.generation(t, active(1), 0)
	}
	testkit.Eventually(ctx, t, "it is truncated", func() bool { return len(seen.of(sharetxn.LedgerTruncated)) > 0 })
	if told := seen.of(sharetxn.LedgerTruncated); told[0].Records < worthwhile || w.logStart(t, 0) < told[0].Records {
		t.Errorf("told: %+v", told)
	}
	if b, _ := w.Bounds(ledgerOfG, 1); b.Start != 0 || b.End != 1 {
		t.Errorf("a partition with nothing to truncate: %+v", b)
	}
}

// A truncation that fails says of which partition, and what right is missing; the
// others are truncated.
func TestTruncateFails(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	w.generation(t, active(1), 0, 1, 2)
	refused := w.plan.Add(fault.Fault{Key: keyDeleteRecords, When: fault.When{Times: fault.Always}, Only: []fault.Match{fault.AtNode(w.Leader(ledgerOfG, 1))}, Action: fault.Answer(kerr.TopicAuthorizationFailed.Code)})
	w.until(ctx, t, l, "F", 0, 0)
	deleted, err := l.Truncate(ctx)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || refused.Count() == 0 || deleted != w.logStart(t, 0)+w.logStart(t, 2) || deleted == 0 || w.logStart(t, 1) != 0 {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
	wantFatal(t, err, kerr.TopicAuthorizationFailed, "partition 1", "grant Delete on topic "+ledgerOfG)
	refused.Cancel()
	if deleted, err := l.Truncate(ctx); err != nil || deleted == 0 || w.logStart(t, 1) == 0 {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
}

// The entries of a source topic that was deleted hold the log no longer, and
// those of another topic still do.
func TestDeletedSourceTopic(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	a := w.positionsOf("also", 0, 0, 1)
	w.begin(ctx, t, l, "a", a...).end(ctx, kgo.TryCommit)
	b := w.begin(ctx, t, l, "b", w.positions(0, 0)...)
	b.end(ctx, kgo.TryCommit)
	w.until(ctx, t, l, "DF", 0, 0, 1)
	if deleted, err := l.Truncate(ctx); deleted != 0 || err != nil {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
	if _, err := w.admin.DeleteTopics(ctx, "also"); err != nil {
		t.Fatal(err)
	}
	for l.Look(a)[0] != index.Below {
		changed := l.Changed()
		if l.Look(a)[0] == index.Below {
			break
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatal("the deleted topic still counts")
		}
	}
	if deleted, err := l.Truncate(ctx); deleted != b.entries[0].Offset || err != nil {
		t.Fatalf("%d deleted, %v; want %d", deleted, err, b.entries[0].Offset)
	}
	w.until(ctx, t, l, "DF", 0, 0, 1)
}
