package sharetxn

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestOutcomeZeroIsUnknown(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var forgotten Outcome
	if forgotten != Unknown {
		t.Fatalf("an outcome nobody set reads as %v", forgotten)
	}
	for o, want := range map[Outcome]string{Unknown: "unknown", Aborted: "aborted", Committed: "committed", 9: "Outcome(9)"} {
		if o.String() != want {
			t.Errorf("%d reads %q, want %q", o, o.String(), want)
		}
	}
}
