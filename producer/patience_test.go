package producer

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Who follows asks about once a transaction, however long its markers take.
func TestPatienceFindsTheMarkers(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, markers := range []time.Duration{0, 300 * time.Microsecond, 2 * time.Millisecond, 9 * time.Millisecond} {
		const transactions = 300
		var wait, late time.Duration
		asked := int64(0)
		for n := range 2 * transactions {
			questions := int64(1)
			for at := wait; at < markers; at += followBackoff {
				questions++
			}
			if n >= transactions { // it has settled
				asked += questions
				late = max(late, wait+time.Duration(questions-1)*followBackoff-markers)
			}
			wait = patience(wait, questions)
		}
		if asked > transactions*5/4 {
			t.Errorf("markers after %v: %d questions in %d transactions", markers, asked, transactions)
		}
		if most := max(followBackoff, markers*3/4) + followBackoff; late > most {
			t.Errorf("markers after %v: the answer came up to %v late, want at most %v", markers, late, most)
		}
	}
	// A coordinator that stands still is not waited for longer than that.
	wait := time.Duration(0)
	for range 100 {
		wait = patience(wait, 50)
	}
	if wait != mostPatience {
		t.Errorf("after long waits: %v, want %v", wait, mostPatience)
	}
}
