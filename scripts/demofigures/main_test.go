package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

const right = `{"input":1707,"accepted":1679,"alerts":85,"rejected":28,"duplicates":0,"conceded":0,"missing":0,"unexpected":0,
	"staged":0,"lag":0,"transactions":171,"aborts":9,"seed":1,"guarantee":"staged","profile":"draft95","level":"light","faults":{
	"handler-error":{"planned":1,"fired":1},"handler-panic":{"planned":1,"fired":1},"killed":{"planned":1,"fired":1},"zombie":{"planned":1,"fired":1},
	"lost-stage-answer":{"planned":1,"fired":1},"lost-endtxn-answer":{"planned":1,"fired":1},"leader-move":{"planned":1,"fired":1},"paused":{"planned":1,"fired":2}},
	"ackAfterCommit":{"duplicates":7}}`

func TestCheck(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tt := range []struct {
		name     string
		from, to string    // replaced in the right figures
		other    [2]string // the same
		want     []string
	}{
		{name: "right"},
		{name: "one lost", from: `"accepted":1679`, to: `"accepted":1678`, want: []string{"accepted is 1678, want 1679"}},
		{name: "one doubled", from: `"duplicates":0`, to: `"duplicates":1`, want: []string{"duplicates is 1, and 0 are conceded"}},
		{name: "conceded by the draft", from: `"duplicates":0,"conceded":0`, to: `"duplicates":3,"conceded":3`, want: []string{"duplicates is 3, want 0"}},
		{name: "conceded by the text", from: `"duplicates":0,"conceded":0`, to: `"duplicates":3,"conceded":3,"profile":"kip93","was":0`, other: [2]string{`"profile":"draft95",`, ""}},
		{name: "not all conceded", from: `"duplicates":0,"conceded":0`, to: `"duplicates":3,"conceded":2`, want: []string{"duplicates is 3, and 2 are conceded"}},
		{name: "nothing said of concessions", from: `"conceded":0,`, to: ``, want: []string{"conceded is absent"}},
		{name: "at the least", from: `"aborts":9`, to: `"aborts":2`},
		{name: "too few aborts", from: `"aborts":9`, to: `"aborts":1`, want: []string{"aborts is 1, want at least 2"}},
		{name: "the ledger has fewer", from: `"aborts":9`, to: `"aborts":1`, other: [2]string{`"guarantee":"staged"`, `"guarantee":"ledger","ledger":{"done":7}`}},
		{name: "the ledger found nothing", from: `"guarantee":"staged"`, to: `"guarantee":"ledger","ledger":{"done":0}`, want: []string{"ledger found nothing done, so that the faults did not need it"}},
		{name: "nothing said of the ledger", from: `"guarantee":"staged"`, to: `"guarantee":"ledger"`, want: []string{"ledger cannot be read"}},
		{name: "none at all", from: `"aborts":9`, to: `"aborts":0`, other: [2]string{`"guarantee":"staged"`, `"guarantee":"ledger","ledger":{"done":7}`}, want: []string{"aborts is 0, want at least 1"}},
		{name: "aborts absent", from: `"aborts":9,`, to: ``, want: []string{"aborts is absent"}},
		{name: "conceded by the ledger", from: `"duplicates":0,"conceded":0`, to: `"duplicates":3,"conceded":3`, other: [2]string{`"guarantee":"staged","profile":"draft95"`, `"guarantee":"ledger","ledger":{"done":7},"profile":"none"`}, want: []string{"duplicates is 3, want 0"}},
		{name: "conceded by the guarantee", from: `"duplicates":0,"conceded":0`, to: `"duplicates":3,"conceded":3`, other: [2]string{`"guarantee":"staged","profile":"draft95"`, `"guarantee":"ack-after-commit","profile":"none"`}},
		{name: "no guarantee", from: `"guarantee":"staged"`, to: `"guarantee":"hope"`, want: []string{`guarantee is "hope", which is none`}},
		{name: "a fault did not fire", from: `"killed":{"planned":1,"fired":1}`, to: `"killed":{"planned":1,"fired":0}`, want: []string{"fault killed was planned 1 times and fired 0, want 1 at least"}},
		{name: "a kind is absent", from: `"zombie":{"planned":1,"fired":1},`, to: ``, want: []string{"fault zombie was planned 0 times and fired 0, want 1 at least"}},
		{name: "no faults", from: `"faults":{`, to: `"others":{`, want: []string{"faults cannot be read"}},
		{name: "faults turned off", from: `"level":"light"`, to: `"level":"off"`, want: []string{`level is "off", want light or heavy`}},
		{name: "nothing compared", from: `"ackAfterCommit":{"duplicates":7}`, to: `"ackAfterCommit":{"duplicates":0}`, want: []string{"ackAfterCommit shows no duplicates, so that nothing is compared"}},
		{name: "no comparison", from: `,
	"ackAfterCommit":{"duplicates":7}`, to: ``},
		{name: "absent", from: `"lag":0,`, to: ``, want: []string{"lag is absent"}},
		{name: "null", from: `"missing":0`, to: `"missing":null`, want: []string{"missing is null, not a whole number"}},
		{name: "text", from: `"input":1707`, to: `"input":"1707"`, want: []string{`input is "1707", not a whole number`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Replace(right, tt.from, tt.to, 1)
			if (in == right) != (tt.from == "") {
				t.Fatalf("%q is not in the right figures", tt.from)
			}
			in = strings.Replace(in, tt.other[0], tt.other[1], 1)
			got, err := check(strings.NewReader(in))
			if err != nil || !slices.Equal(got, tt.want) {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, in := range map[string]string{
		"nothing":       "",
		"not an object": "[1707]",
		"cut off":       right[:40],
		"more after it": right + "{}",
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := check(strings.NewReader(in)); err == nil {
				t.Errorf("taken, with complaints %q", got)
			}
		})
	}
}

// A heavy run needs each kind three times.
func TestCheckHeavy(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	heavy := strings.Replace(strings.ReplaceAll(right, `{"planned":1,"fired":1}`, `{"planned":3,"fired":3}`), `"level":"light"`, `"level":"heavy"`, 1)
	got, err := check(strings.NewReader(heavy))
	if want := []string{"fault paused was planned 1 times and fired 2, want 3 at least"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}
