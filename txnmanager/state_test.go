package txnmanager

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// grid is what the table must say, a row per state, a column per event. A
// letter is the next state; the others are refusals: e ended, o open, ? outcome
// unknown, f fenced, c closed, u uninitialised, a abort only, - no such step.
var grid = map[State]string{
	//               init ready begin fail commit abort settled lost unanswered fenced close
	Uninitialised:  "U    R     u     e    e      e     -       -    -          F      C",
	Ready:          "R    R     O     e    e      e     -       -    -          F      C",
	Open:           "o    O     o     A    E      E     -       -    -          -      C",
	AbortOnly:      "o    A     o     A    a      E     -       -    -          -      C",
	Ending:         "o    -     o     E    e      e     R       U    N          F      C",
	OutcomeUnknown: "?    -     ?     e    e      e     R       U    N          F      C",
	Fenced:         "f    f     f     e    e      e     -       -    -          F      C",
	Closed:         "c    c     c     e    e      e     c       c    c          c      C",
}

var letters = map[string]State{
	"U": Uninitialised, "R": Ready, "O": Open, "A": AbortOnly, "E": Ending, "N": OutcomeUnknown, "F": Fenced, "C": Closed,
}

var refusals = map[string]error{
	"e": sharetxn.ErrTxnEnded, "o": sharetxn.ErrTxnOpen, "?": sharetxn.ErrOutcomeUnknown, "f": sharetxn.ErrFenced,
	"c": sharetxn.ErrClosed, "u": errUninitialised, "a": errAbortOnly, "-": errNoSuchStep,
}

func TestStateTable(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	if len(grid) != int(states) {
		t.Fatalf("the grid has %d states of %d", len(grid), states)
	}
	for _, wrong := range offGrid() {
		t.Error(wrong)
	}
}

// offGrid says where the table is not what the grid says.
func offGrid() (wrong []string) {
	for s, row := range grid {
		cells := strings.Fields(row)
		if len(cells) != int(events) {
			wrong = append(wrong, fmt.Sprintf("%v: %d events of %d", s, len(cells), events))
			continue
		}
		for e, cell := range cells {
			got, err := s.next(event(e))
			to, moves := letters[cell]
			refusal, refuses := refusals[cell]
			switch {
			case moves && (err != nil || got != to):
				wrong = append(wrong, fmt.Sprintf("%v, %v: %v, %v; want %v", s, event(e), got, err, to))
			case refuses && (!errors.Is(err, refusal) || got != s):
				wrong = append(wrong, fmt.Sprintf("%v, %v: %v, %v; want to stay, refused with %v", s, event(e), got, err, refusal))
			case !moves && !refuses:
				wrong = append(wrong, fmt.Sprintf("%v, %v: unknown cell %q", s, event(e), cell))
			}
		}
	}
	return wrong
}

// An entry that was forgotten would be a refusal without a reason.
func TestStateTableIsComplete(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for s := range states {
		for e := range events {
			if st := table[s][e]; st.allowed == (st.refusal != nil) {
				t.Errorf("%v, %v: no entry", s, e)
			}
		}
		if s.String() == "" || strings.HasPrefix(s.String(), "State(") {
			t.Errorf("state %d has no name", s)
		}
	}
	for e := range events {
		if e.String() == "" {
			t.Errorf("event %d has no name", e)
		}
	}
	if got := states.String(); got != "State(8)" {
		t.Errorf("what is no state reads %q", got)
	}
}

// From AbortOnly no walk that does not end the transaction leads to a commit,
// and from OutcomeUnknown none to a new transaction or producer id before the
// outcome is settled.
func TestWalks(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	reach := func(from State, without ...event) map[State]bool {
		seen := map[State]bool{from: true}
		for todo := []State{from}; len(todo) > 0; {
			s := todo[0]
			todo = todo[1:]
			for e := range events {
				skip := false
				for _, w := range without {
					skip = skip || e == w
				}
				if to, err := s.next(e); err == nil && !skip && !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
		return seen
	}
	if got := reach(AbortOnly, evAbort); got[Ending] || got[Open] || got[Ready] {
		t.Errorf("abort only can be left: %v", got)
	}
	if got := reach(OutcomeUnknown, evSettled, evSettledLost); got[Open] || got[Ready] || got[Uninitialised] {
		t.Errorf("an unknown outcome can be passed over: %v", got)
	}
	if got := reach(Fenced, evClose); len(got) != 1 {
		t.Errorf("fenced can be left: %v", got)
	}
	if got := reach(Closed); len(got) != 1 {
		t.Errorf("closed can be left: %v", got)
	}
}
