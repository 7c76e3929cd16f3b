package tail

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What was written before is known when Open returns, and what was open then is
// decided by a marker that comes later.
func TestOpenLoadsAll(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	first, _ := w.open(ctx, t)
	w.begin(ctx, t, first, "a", w.positions(0, 0, 1)...).end(ctx, kgo.TryCommit)
	w.begin(ctx, t, first, "b", w.positions(0, 2, 3)...).end(ctx, kgo.TryAbort)
	open := w.begin(ctx, t, first, "c", w.positions(0, 4, 5)...)
	w.begin(ctx, t, first, "d", w.positions(2, 0)...).end(ctx, kgo.TryCommit)

	l, seen := w.open(ctx, t)
	for p, want := range []string{"DDFFOOF", "FFFFFFF", "DFFFFFF"} {
		if got := w.verdicts(l, int32(p), 0, 1, 2, 3, 4, 5, 6); got != want {
			t.Errorf("partition %d: %s, want %s", p, got, want)
		}
	}
	loaded := seen.of(sharetxn.LedgerLoaded)
	if len(loaded) != 1 || loaded[0].Took <= 0 || loaded[0].Group != group {
		t.Errorf("told: %+v", loaded)
	}
	if got := l.Generation(); got != active(1) {
		t.Errorf("generation %+v", got)
	}
	open.end(ctx, kgo.TryCommit)
	w.until(ctx, t, l, "DDF", 0, 4, 5, 6)
}

// Whoever cannot work in the ledger as it is, is told why, and by which command
// it is mended.
func TestOpenRefuses(t *testing.T) {
	staged := active(2)
	staged.Guarantee = "staged"
	garbage := []byte("{}")
	newer := append([]byte{9}, garbage...)
	for _, c := range []struct {
		name string
		make func(t *testing.T, w *world)
		kind error
		says []string
	}{
		{"no topic", func(t *testing.T, w *world) { w.deleteLedger(t) }, topic.ErrMissing, []string{"sharetxn ledger create --bootstrap $BOOTSTRAP --group g --topics TOPICS"}},
		{"no generation", func(t *testing.T, w *world) {
			w.deleteLedger(t)
			if err := w.CreateTopic(ledgerOfG, 3); err != nil {
				t.Fatal(err)
			}
			w.generation(t, active(1), 0, 2)
		}, topic.ErrNoGeneration, []string{"partitions [1]", "sharetxn ledger create"}},
		{"being reset", func(t *testing.T, w *world) { w.generation(t, resetting(2), 0, 1, 2) }, topic.ErrResetting, []string{"generation 2", "sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
		{"reset begun", func(t *testing.T, w *world) { w.generation(t, resetting(2), 1) }, topic.ErrResetting, []string{"sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
		{"reset nearly done", func(t *testing.T, w *world) {
			w.generation(t, resetting(2), 0, 1, 2)
			w.generation(t, active(2), 0, 1)
		}, topic.ErrMixed, []string{"sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
		{"generations differ", func(t *testing.T, w *world) { w.generation(t, active(2), 1) }, topic.ErrMixed, []string{"sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
		{"another guarantee", func(t *testing.T, w *world) { w.generation(t, staged, 0, 1, 2) }, ErrGuarantee, []string{`"staged"`, `"ledger"`, "sharetxn ledger move --bootstrap $BOOTSTRAP --group g --to ledger"}},
		{"a newer version", func(t *testing.T, w *world) { w.put(t, ledgerOfG, 1, newer) }, entry.ErrVersion, []string{"offset 1 of partition 1", "update this process"}},
		{"something else", func(t *testing.T, w *world) { w.put(t, ledgerOfG, 2, garbage) }, entry.ErrVersion, []string{"offset 1 of partition 2"}},
		{"an entry outside of transactions", func(t *testing.T, w *world) {
			value, err := entry.Entry{Generation: 1, TransactionalID: "x", Partition: 2, Ranges: []entry.Range{{First: 1, Last: 2}}}.Append(nil)
			if err != nil {
				t.Fatal(err)
			}
			w.put(t, ledgerOfG, 2, value)
		}, entry.ErrCorrupt, []string{"offset 1 of partition 2", `"x" is in no transaction`}},
		{"nothing", func(t *testing.T, w *world) { w.put(t, ledgerOfG, 2, nil) }, entry.ErrCorrupt, []string{"offset 1 of partition 2"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, time.Minute)
			w := start(t)
			c.make(t, w)
			l, err := Open(ctx, w.connect(t), group, quick)
			if l != nil {
				t.Error("a ledger comes with the error")
			}
			wantFatal(t, err, c.kind, append(c.says, `share group "g"`)...)
		})
	}
}

func (w *world) deleteLedger(t *testing.T) {
	t.Helper()
	if _, err := w.admin.DeleteTopics(t.Context(), ledgerOfG); err != nil {
		t.Fatal(err)
	}
}

// A tool may look at a ledger in whatever state it is.
func TestOpenToObserve(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	w.generation(t, resetting(2), 1)
	observe := quick
	observe.Observe = true
	l, _ := w.open(ctx, t, observe)
	if got := l.Generation(); got != resetting(2) {
		t.Errorf("generation %+v", got)
	}
	w.generation(t, active(3), 0, 1, 2)
	testkit.Eventually(ctx, t, "the generation is read", func() bool { g, err := l.part(2).current(); return err == nil && g == active(3) })
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	if _, err := l.Entries("a", w.positions(0, 0)); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("entries: %v", err)
	}
}

// A group whose name no topic can have is refused, and nothing is asked.
func TestOpenRefusesTheName(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	if _, err := Open(ctx, w.connect(t), "a group", quick); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Error(err)
	}
}

func TestOpenOnAClosedCluster(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	co := w.connect(t)
	co.Close()
	_, err := Open(ctx, co, group, quick)
	wantFatal(t, err, sharetxn.ErrClosed)
}

// Loading that does not come to its end says how far it came, and may be tried
// again.
func TestOpenEndsWithItsContext(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	until := make(chan struct{})
	f := w.plan.Add(fault.Fault{Key: keyFetch, When: fault.When{Times: fault.Always}, Only: []fault.Match{fault.AtNode(w.Leader(ledgerOfG, 1))}, Action: fault.Hold(until)})
	defer close(until)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	_, err := Open(short, w.connect(t), group, quick)
	if !errors.Is(err, context.DeadlineExceeded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || !strings.Contains(err.Error(), "partition 1 was read up to offset 0 of 1") {
		t.Fatal(err)
	}
	if f.Count() == 0 {
		t.Error("no fetch was held")
	}
	f.Cancel()
	w.open(ctx, t)
}

// Reading goes on through lost connections, lost answers and refusals, and
// through leaders that move; nothing is missed and no gap is seen.
func TestReadsThroughFaults(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	w := start(t)
	l, seen := w.open(ctx, t)
	var faults []*fault.Planned
	for i, a := range []fault.Action{fault.LoseRequest(), fault.LoseAnswer(), fault.Disconnect(), fault.Answer(kerr.NotLeaderForPartition.Code), fault.Answer(kerr.UnknownServerError.Code)} {
		faults = append(faults, w.plan.Add(fault.Fault{Key: keyFetch, When: fault.When{Nth: 1 + 3*i}, Action: a}))
	}
	for i, a := range []fault.Action{fault.LoseRequest(), fault.LoseAnswer(), fault.Answer(kerr.CoordinatorNotAvailable.Code), fault.Answer(kerr.UnknownServerError.Code)} {
		faults = append(faults, w.plan.Add(fault.Fault{Key: keyDescribeStarts, When: fault.When{Nth: 1 + 3*i}, Action: a}))
	}
	w.put(t, "in", 1, []byte("x"))
	w.setStart(ctx, t, 1, 1)
	var want strings.Builder
	var offsets []int64
	for o := int64(0); ; o++ {
		if o%5 == 0 {
			if err := w.MoveLeader(ledgerOfG, 0, int32(o/5%3)); err != nil {
				t.Fatal(err)
			}
		}
		a := w.begin(ctx, t, l, "a", w.positions(0, o)...)
		if err := l.Decide(ctx, a.entries); err != nil {
			t.Fatal(err)
		}
		a.end(ctx, o%3 != 0)
		a.cl.Close()
		want.WriteString(map[bool]string{true: "F", false: "D"}[o%3 == 0])
		offsets = append(offsets, o)
		if o > 20 && len(w.plan.Unfired()) == 0 {
			break
		}
	}
	w.until(ctx, t, l, want.String(), 0, offsets...)
	w.until(ctx, t, l, "BF", 1, 0, 1) // starts are read again
	for _, f := range faults {
		if f.Count() != 1 {
			t.Errorf("%v fired %d times", f, f.Count())
		}
	}
	if gaps := seen.of(sharetxn.LedgerGap); len(gaps) != 0 {
		t.Errorf("gaps: %+v", gaps)
	}
	if again, _ := w.open(ctx, t); w.verdicts(again, 0, offsets...) != want.String() {
		t.Errorf("loaded anew: %s", w.verdicts(again, 0, offsets...))
	}
}
