package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// What a move does is decided by what the ledger says, also where another move, or
// a reset, came only half-way.
func TestPlanMove(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	says := func(number int64, guarantee string, phase entry.Phase, to int64) topic.State {
		return topic.State{Generation: entry.Generation{Number: number, Guarantee: guarantee, Phase: phase, ResetTo: to, Group: "g"}}
	}
	var (
		old     = says(1, Ledger, entry.Active, 0)
		staged  = says(2, Staged, entry.Active, 0)
		moving  = says(2, Staged, entry.Resetting, 0)
		moved   = says(2, Staged, entry.Active, 0)
		back    = says(3, Ledger, entry.Active, 0)
		setting = says(2, Ledger, entry.Resetting, -2)
		set     = says(2, Ledger, entry.Active, 0)
		ahead   = topic.State{Generation: old.Generation, Newest: 5}
	)
	for name, tc := range map[string]struct {
		states topic.States
		to     string
		want   movePlan
		err    error
	}{
		"to staged":                  {topic.States{old, old}, Staged, movePlan{Ledger, false, true}, nil},
		"to at least once":           {topic.States{old, old}, AckAfterCommit, movePlan{Ledger, false, true}, nil},
		"it is there":                {topic.States{old, old}, Ledger, movePlan{Ledger, true, false}, nil},
		"it is there, staged":        {topic.States{staged, staged}, Staged, movePlan{Staged, true, false}, nil},
		"between others":             {topic.States{staged, staged}, AckAfterCommit, movePlan{Staged, false, false}, nil},
		"to the ledger":              {topic.States{staged, staged}, Ledger, movePlan{Staged, false, false}, nil},
		"begun to drain":             {topic.States{moving, old}, Staged, movePlan{Ledger, false, true}, nil},
		"drains":                     {topic.States{moving, moving}, Staged, movePlan{Ledger, false, true}, nil},
		"drains, and is called back": {topic.States{moving, moving}, Ledger, movePlan{Ledger, false, true}, nil},
		"drained":                    {topic.States{moved, moving}, Staged, movePlan{Ledger, false, false}, nil},
		"drained, and called back":   {topic.States{moved, moving}, Ledger, movePlan{Ledger, false, false}, nil},
		"half back":                  {topic.States{staged, back}, Ledger, movePlan{Staged, false, false}, nil},
		"half back, and undone":      {topic.States{staged, back}, Staged, movePlan{Staged, false, false}, nil},
		"a reset":                    {topic.States{setting, old}, Staged, movePlan{}, topic.ErrResetting},
		"half a reset":               {topic.States{set, setting}, Staged, movePlan{}, topic.ErrMixed},
		"of no move":                 {topic.States{old, back}, Staged, movePlan{}, topic.ErrMixed},
		"entries ahead":              {topic.States{ahead, old}, Staged, movePlan{}, topic.ErrMixed},
		"none":                       {topic.States{{}, {}}, Staged, movePlan{}, topic.ErrNoGeneration},
		"widened":                    {topic.States{old, {}}, Staged, movePlan{}, topic.ErrNoGeneration},
	} {
		got, err := planMove(tc.states, tc.to)
		if got != tc.want || !errors.Is(err, tc.err) || (err == nil) != (tc.err == nil) {
			t.Errorf("%s: %+v, %v, want %+v, %v", name, got, err, tc.want, tc.err)
		}
	}
}
