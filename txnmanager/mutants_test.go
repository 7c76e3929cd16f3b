package txnmanager

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Every cell of the state table is there for a reason: whichever is another step,
// to any state or refused for any other reason, is found.
func TestStateTableMutants(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	var steps []step
	for s := range states {
		steps = append(steps, to(s))
	}
	for _, why := range refusals {
		steps = append(steps, not(why))
	}
	mutants := 0
	for s := range states {
		for e := range events {
			was := table[s][e]
			for _, other := range steps {
				if other == was {
					continue
				}
				table[s][e] = other
				mutants++
				if len(offGrid()) != 1 {
					t.Errorf("%v, %v: %+v in place of %+v is found as %q", s, e, other, was, offGrid())
				}
			}
			table[s][e] = was
		}
	}
	t.Logf("%d mutants", mutants)
	if got := offGrid(); len(got) > 0 {
		t.Errorf("the table was not put back: %q", got)
	}
}

// Neither can an entry of the table of error codes go, or mean anything else, nor
// can what is not listed.
func TestMeaningMutants(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	mutants := 0
	found := func(r rpc, what string, code int16, v verdict) {
		t.Helper()
		mutants++
		if len(offRows(t)) == 0 {
			t.Errorf("%v: %s %d as %v is not found", r, what, code, v)
		}
	}
	for r := range rpcs {
		row := meaning[r]
		for code, was := range row.listed {
			for v := range verdicts {
				if v != was {
					row.listed[code] = v
					found(r, "code", code, v)
				}
			}
			if delete(row.listed, code); row.otherwise != was {
				found(r, "code that is not listed", code, row.otherwise)
			}
			row.listed[code] = was
		}
		for v := range verdicts {
			if v != row.otherwise {
				meaning[r].otherwise = v
				found(r, "any other code", -1, v)
			}
		}
		meaning[r].otherwise = row.otherwise
	}
	t.Logf("%d mutants", mutants)
	if got := offRows(t); len(got) > 0 {
		t.Errorf("the table was not put back: %q", got)
	}
}
