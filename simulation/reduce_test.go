package simulation

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
)

func TestReduceKeepsWhatFails(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	letters := func(s string) (ops []Op) {
		for _, r := range s {
			ops = append(ops, Op{Verb: string(r)})
		}
		return ops
	}
	word := func(ops []Op) string {
		var b strings.Builder
		for _, o := range ops {
			b.WriteString(o.Verb)
		}
		return b.String()
	}
	for _, tt := range []struct {
		name, ops, want string
		fails           func(string) bool
	}{
		{"one", "abcdefgh", "f", func(s string) bool { return strings.Contains(s, "f") }},
		{"two far apart, in order", "abcdefgh", "ah", func(s string) bool { return strings.Contains(s, "a") && strings.HasSuffix(s, "h") }},
		{"three of many", strings.Repeat("x", 50) + "a" + strings.Repeat("y", 30) + "b" + "z" + "c", "abc", func(s string) bool {
			return strings.Contains(s, "a") && strings.Contains(s, "b") && strings.Contains(s, "c")
		}},
		{"all of them", "abc", "abc", func(s string) bool { return s == "abc" }},
		{"none is needed", "abc", "", func(string) bool { return true }},
		{"it does not fail", "abc", "abc", func(string) bool { return false }},
		{"nothing to leave out", "", "", func(string) bool { return true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := word(Reduce(letters(tt.ops), func(ops []Op) bool { return tt.fails(word(ops)) })); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// planted is a run of a guarantee that may double records: a process that is
// killed between commit and acknowledgement does it, among much that does not.
const planted = `
set guarantee ack-after-commit
set partitions 1
set lock 5s
0s start p0
1s produce 5
2s abort 2
3s fault Metadata 1 disconnect
4s restart 2
5s produce 5
8s poison 2
10s slow 2 500ms
12s outage EndTxn 8s lose-answer
13s produce 3
15s kill p0
16s start p1
20s markers 3 2s
21s produce 2
25s leader out 1 0
26s fault EndTxn 1 lose-answer
27s produce 1
`

// A run held against a promise that its guarantee does not make fails, and is
// shortened to what makes it fail.
func TestReduceRuns(t *testing.T) {
	need(t)
	testkit.Deadline(t, 3*perSeed)
	s, err := Parse(strings.NewReader(planted))
	if err != nil {
		t.Fatal(err)
	}
	never := func(string) bool { return false }
	doubles := func(ops []Op) bool {
		r := Run(t, Script{s.Setup, ops})
		if r.Wrong != nil { // of what the guarantee does promise
			t.Errorf("%q", r.Wrong)
		}
		return slices.ContainsFunc(compare(r.Fed, r.Published, never), func(f string) bool { return rule(f) == "duplicate" })
	}
	short := Reduce(s.Ops, doubles)
	if len(short) == len(s.Ops) || len(short) > 5 {
		t.Errorf("%d of %d operations are left: %v", len(short), len(s.Ops), short)
	}
	if !doubles(short) {
		t.Error("what is left does not fail")
	}
	if s.Setup.Guarantee = processor.Ledger; doubles(s.Ops) {
		t.Error("the neighbour, guarantee ledger, doubles too")
	}
}

// A bubble that the planted run cannot leave open: the clock is the bubble's.
func TestRunIsVirtual(t *testing.T) {
	need(t)
	testkit.Deadline(t, perSeed)
	s, err := Parse(strings.NewReader("0s produce 3\n110s start p0"))
	if err != nil {
		t.Fatal(err)
	}
	r := Run(t, s)
	if r.Wrong != nil || r.Took < 110*time.Second || len(r.Published) == 0 {
		t.Errorf("took %v, published %v, wrong %q", r.Took, r.Published, r.Wrong)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if !lapse.For(t.Context(), time.Hour) || time.Since(began) != time.Hour {
			t.Errorf("an hour took %v", time.Since(began))
		}
	})
}
