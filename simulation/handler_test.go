package simulation

import (
	"slices"
	"strings"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A handler of either kind, and one whose outputs are kept elsewhere, that forgets an output is found, and calls that fail
// half-way are not.
func TestHandlersAreJudged(t *testing.T) {
	need(t)
	testkit.Deadline(t, 10*perSeed)
	for _, tt := range []struct {
		name, set string
		forgets   bool
	}{
		{"each", "set handler each", false},
		{"each, and it forgets", "set handler each", true},
		{"batch", "set handler batch", false},
		{"batch, and it forgets", "set handler batch", true},
		{"acknowledger", "set form acknowledger", false},
		{"acknowledger, and it forgets", "set form acknowledger", true},
		{"batch with the ledger", "set handler batch\nset guarantee ledger", false},
		{"batch with the ledger, and it forgets", "set handler batch\nset guarantee ledger", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := Parse(strings.NewReader(tt.set + "\n0s abort 2\n0s produce 8\n0s poison 2\n1s start p0\n5s produce 1"))
			if err != nil {
				t.Fatal(err)
			}
			if tt.forgets {
				s.Ops = slices.Insert(s.Ops, 0, Op{Verb: "forget", do: forgetOne})
			}
			r := Run(t, s)
			if found := slices.Contains(r.Wrong, "lost: out/h0 is not there"); found != tt.forgets || !found && r.Wrong != nil {
				t.Errorf("found %q\n%s", r.Wrong, strings.Join(r.Journal, "\n"))
			}
			if n := strings.Count(strings.Join(r.Journal, "\n"), errMood.Error()); n < 2 {
				t.Errorf("%d calls failed, want 2", n)
			}
		})
	}
}
