package tail

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// What makes a ledger unusable while it is in use ends it, with what to do; and
// then nothing is decided any more.
func TestEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(t *testing.T, w *world)
		kind error
		says []string
	}{
		{"reset begun", func(t *testing.T, w *world) { w.generation(t, resetting(2), 1) }, ErrGeneration, []string{"generation 2 (resetting", "generation 1 (active"}},
		{"reset", func(t *testing.T, w *world) { w.generation(t, active(2), 2) }, ErrGeneration, []string{"generation 2 (active"}},
		{"a newer version", func(t *testing.T, w *world) { w.put(t, ledgerOfG, 0, []byte{9, 1}) }, entry.ErrVersion, []string{"offset 3 of partition 0"}},
		{"deleted", func(t *testing.T, w *world) { w.deleteLedger(t) }, ErrLedgerGone, []string{"sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
		{"made anew", func(t *testing.T, w *world) {
			w.deleteLedger(t)
			if err := w.CreateTopic(ledgerOfG, 3); err != nil {
				t.Fatal(err)
			}
		}, ErrLedgerGone, []string{"sharetxn ledger reset --bootstrap $BOOTSTRAP --group g"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, time.Minute)
			w := start(t)
			l, seen := w.open(ctx, t)
			a := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
			if err := l.Decide(ctx, a.entries); err != nil {
				t.Fatal(err)
			}
			// What is read again, or written late, ends nothing.
			w.generation(t, active(1), 0, 1, 2)
			w.until(ctx, t, l, "OF", 0, 0, 1)
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
			changed := l.Changed()
			c.make(t, w)
			select {
			case <-l.Done():
			case <-ctx.Done():
				t.Fatal("it goes on")
			}
			wantFatal(t, l.Err(), c.kind, c.says...)
			wantFatal(t, l.Decide(ctx, a.entries), c.kind)
			if got := w.verdicts(l, 0, 0, 1); got != "UU" {
				t.Errorf("looks: %s", got)
			}
			if _, err := l.Entries("a", w.positions(0, 0)); err == nil {
				t.Error("it makes entries")
			}
			select {
			case <-changed:
			case <-ctx.Done():
				t.Error("who waits for a change is not woken")
			}
			if ended := seen.of(sharetxn.LedgerEnded); len(ended) != 1 || !errors.Is(ended[0].Err, c.kind) {
				t.Errorf("told: %+v", ended)
			}
		})
	}
}

// Offsets of the group that are set back without the ledger are found; a start
// that moves on, or is told wrongly once, ends nothing.
func TestEndsWhenOffsetsAreSetBack(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	for range 10 {
		w.put(t, "in", 0, []byte("x"))
	}
	w.setStart(ctx, t, 0, 3)
	l, _ := w.open(ctx, t)
	w.until(ctx, t, l, "BF", 0, 2, 3)
	w.setStart(ctx, t, 0, 7)
	w.until(ctx, t, l, "BF", 0, 6, 7)
	w.setStart(ctx, t, 0, 5)
	select {
	case <-l.Done():
	case <-ctx.Done():
		t.Fatal("it goes on")
	}
	wantFatal(t, l.Err(), ErrOffsetsReset, "in-0 begins at 5", "sharetxn ledger reset --bootstrap $BOOTSTRAP --group g")
}

func TestFloor(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const apart = 5 * time.Second
	type step struct {
		start int64
		after time.Duration
		back  bool
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"moves on", []step{{5, 0, false}, {5, apart, false}, {9, apart, false}}},
		{"three times lower", []step{{5, 0, false}, {4, apart, false}, {4, apart, false}, {4, apart, true}}},
		{"lower in different ways", []step{{5, 0, false}, {4, apart, false}, {-1, apart, false}, {0, apart, true}}},
		{"three times at once", []step{{5, 0, false}, {4, apart, false}, {4, 0, false}, {4, 0, false}, {4, apart, true}}},
		{"twice, then as before", []step{{5, 0, false}, {4, apart, false}, {4, apart, false}, {5, apart, false}, {4, apart, false}, {4, apart, false}, {4, apart, true}}},
		{"not begun", []step{{-1, 0, false}, {-1, apart, false}, {0, apart, false}, {-1, apart, false}, {-1, apart, false}, {-1, apart, true}}},
	} {
		f := floor{at: -1}
		now := time.Unix(0, 0)
		for i, s := range c.steps {
			now = now.Add(s.after)
			if got := f.told(s.start, now, apart); got != s.back {
				t.Errorf("%s: step %d: %v, want %v", c.name, i, got, s.back)
			}
		}
	}
}

// A source topic that is wider than the ledger waits, with a warning that names
// the command, until the ledger is widened.
func TestWidens(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	for range 3 {
		if got := w.verdicts(l, 3, 0, 1); got != "UU" {
			t.Fatalf("looks: %s", got)
		}
	}
	if n := w.log.count("sharetxn ledger create --bootstrap $BOOTSTRAP --group g"); n != 1 {
		t.Errorf("%d warnings", n)
	}
	if _, err := w.admin.UpdatePartitions(ctx, 5, ledgerOfG); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the partitions are read", func() bool { return l.part(4) != nil })
	if got := w.verdicts(l, 3, 0); got != "U" {
		t.Errorf("without a generation: %s", got)
	}
	w.generation(t, active(1), 3, 4)
	w.until(ctx, t, l, "FF", 3, 0, 1)
	a := w.begin(ctx, t, l, "a", w.positions(4, 0)...)
	if err := l.Decide(ctx, a.entries); err != nil {
		t.Fatal(err)
	}
	w.until(ctx, t, l, "OF", 4, 0, 1)
}
