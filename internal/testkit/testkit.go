// Package testkit has what every test of the module uses: a deadline of its
// own for each test, a check for leaked goroutines, and waiting for a
// condition without sleeping blindly. Only tests import it.
package testkit

import (
	"context"
	"os"
	"runtime/pprof"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// Main runs the tests of a package and fails it if goroutines are left over.
// Call it from TestMain.
func Main(m *testing.M) { goleak.VerifyTestMain(m) }

// Deadline gives the test a deadline of its own: when d has passed, all
// goroutines are printed and the test binary ends, so that a hang names its
// test. The context ends a second earlier, so that calls which honour it fail
// the test in the ordinary way first. The context also ends with the test.
func Deadline(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	if d <= 2*time.Second {
		t.Fatalf("testkit.Deadline: %v is too short to be told from a slow machine", d)
	}
	name := t.Name()
	alarm := time.AfterFunc(d, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic("test " + name + " passed its own deadline of " + d.String())
	})
	ctx, cancel := context.WithTimeout(context.Background(), d-time.Second)
	t.Cleanup(func() { cancel(); alarm.Stop() })
	return ctx
}

// Eventually waits until cond is true, asking every few milliseconds, and
// fails the test with what when ctx ends first. It is for states of a broker
// that can only be asked for; where something signals, wait for the signal.
func Eventually(ctx context.Context, t testing.TB, what string, cond func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-ctx.Done():
			t.Fatalf("never came true: %s (%v)", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
