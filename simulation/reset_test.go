package simulation

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A reset that is not what it says is found, whatever is wrong with it, and one
// that is has every record done once more.
func TestResetIsJudged(t *testing.T) {
	need(t)
	testkit.Deadline(t, 20*perSeed)
	whole := func(w *world) {
		w.resetBy(func(ctx context.Context, w *world) error { return w.setTo(ctx, 0) })
	}
	giveUp := func(way string) func(*world) {
		return func(w *world) { w.resetBy(unsets[way]) }
	}
	giveUpUntold := func(way string) func(*world) {
		return func(w *world) {
			for _, name := range w.emptied(func(ctx context.Context) error { return unsets[way](ctx, w) }) {
				w.start(name)
			}
		}
	}
	untold := func(w *world) {
		for _, name := range w.emptied(func(ctx context.Context) error { return w.resetLedger(ctx, 0) }) {
			w.start(name)
		}
	}
	notDone := func(w *world) {
		for i := range w.fed {
			w.fed[i].times++
		}
	}
	halfDone := func(w *world) { // the ledger says that all is done, so nothing is done again
		for _, name := range w.emptied(func(ctx context.Context) error { return w.setStarts(ctx, 0) }) {
			w.start(name)
		}
		w.demandAgain()
	}
	for _, tt := range []struct {
		name, set string
		do        func(*world)
		want      string // rule; "" if nothing is wrong
	}{
		{"ledger", "set guarantee ledger", whole, ""},
		{"staged", "set profile draft95", whole, ""},
		{"ack-after-commit", "set guarantee ack-after-commit", whole, ""},
		{"ledger, altered to -1", "set guarantee ledger", giveUp("alter"), ""},
		{"ledger, deleted", "set guarantee ledger", giveUp("delete"), ""},
		{"ledger, with the group", "set guarantee ledger", giveUp("group"), ""},
		{"staged, altered to -1", "set profile draft95", giveUp("alter"), ""},
		{"staged, deleted", "set profile kip93", giveUp("delete"), ""},
		{"staged, with the group", "set profile draft95", giveUp("group"), ""},
		{"ack-after-commit, deleted", "set guarantee ack-after-commit", giveUp("delete"), ""},
		{"staged, altered to -1, and nobody said so", "set profile draft95", giveUpUntold("alter"), "duplicate"},
		{"staged, deleted, and nobody said so", "set profile draft95", giveUpUntold("delete"), "duplicate"},
		{"staged, with the group, and nobody said so", "set profile draft95", giveUpUntold("group"), "duplicate"},
		{"acknowledger", "set form acknowledger", whole, ""},
		{"acknowledger, deleted", "set form acknowledger\nset profile kip93", giveUp("delete"), ""},
		{"acknowledger, and nobody said so", "set form acknowledger", giveUpUntold("alter"), "duplicate"},
		{"acknowledger, and it is not done", "set form acknowledger", notDone, "lost"},
		{"ledger, and nobody said so", "set guarantee ledger", untold, "duplicate"},
		{"ledger, and it is not done", "set guarantee ledger", notDone, "lost"},
		{"staged, and it is not done", "set profile draft95", notDone, "lost"},
		{"Kafka's offsets alone, and not the ledger", "set guarantee ledger", halfDone, "I1 lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse(strings.NewReader(tt.set + "\n0s start p0\n1s produce 8\n1s poison 2\n20s produce 3"))
			if err != nil {
				t.Fatal(err)
			}
			s.Ops = slices.Insert(s.Ops, len(s.Ops)-1, Op{At: 10 * time.Second, Verb: "reset", do: tt.do})
			r := Run(t, s)
			switch {
			case tt.want == "" && r.Wrong != nil, tt.want != "" && (r.Wrong == nil || rule(r.Wrong[0]) != tt.want):
				t.Errorf("found %q, want %q\n%s", r.Wrong, tt.want, strings.Join(r.Journal, "\n"))
			case tt.want == "" && (len(r.Fed) != 13 || r.Fed[0].times != 2 || r.Fed[12].times != 1):
				t.Errorf("fed %v: want 10 that are done twice, and 3 once", r.Fed)
			}
		})
	}
}
