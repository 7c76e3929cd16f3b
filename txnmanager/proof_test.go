package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A proof that was not waited for, or had no connection, denies nothing: that a broker
// does not speak it would be fatal. Seen when an abort came while a connection that was
// lost had taken the proof along.
func TestProofWithoutAnAnswerDeniesNothing(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for cause, denies := range map[error]bool{
		context.Canceled:                 false,
		context.DeadlineExceeded:         false,
		errors.New("a malformed answer"): true,
	} {
		err := fmt.Errorf("%w: broker 0: handshake: %w", probe.ErrNotProven, cause)
		if got := !cutOff(err); got != denies {
			t.Errorf("%v: denies %v, want %v", err, got, denies)
		}
	}
}
