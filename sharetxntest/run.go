package sharetxntest

import (
	"context"
	"errors"
	"testing"
)

// Runner is *processor.Processor, or a service of one's own: Run works until
// ctx ends and then gives back what it holds.
type Runner interface {
	Run(ctx context.Context) error
}

// RunnerFunc makes a Runner of a function.
type RunnerFunc func(ctx context.Context) error

// Run calls f.
func (f RunnerFunc) Run(ctx context.Context) error { return f(ctx) }

// RunUntilDrained runs r until its group has nothing left, as WaitDrained says,
// then ends its context and waits for Run. It ends the test if the group is
// not drained in time, or if Run returns earlier or with an error; ctx's own end
// is none.
func (c *Cluster) RunUntilDrained(t testing.TB, group string, r Runner) {
	t.Helper()
	ctx, cancel := c.bounded()
	defer cancel()
	run, stop := context.WithCancel(ctx)
	defer stop()
	waiting, found := context.WithCancelCause(ctx)
	defer found(nil)
	ended := make(chan error, 1)
	go func() {
		err := r.Run(run)
		found(errEnded)
		ended <- err
	}()
	left := c.drained(waiting, group)
	stop()
	err := <-ended
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	if left != nil || err != nil {
		t.Fatalf("sharetxntest.RunUntilDrained: %v", errors.Join(left, err))
	}
}

var errEnded = errors.New("Run returned before")
