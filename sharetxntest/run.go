package sharetxntest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
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
	ended := make(chan struct{})
	var failed error
	go func() {
		defer close(ended)
		failed = r.Run(run)
	}()
	err := c.drained(ctx, group, ended)
	stop()
	select {
	case <-ended:
		if !errors.Is(failed, context.Canceled) {
			err = errors.Join(failed, err) // why Run ended says more than what it left
		}
	case <-time.After(c.patience):
		err = errors.Join(err, fmt.Errorf("Run has not returned %v after the end of its context", c.patience))
	}
	if err != nil {
		t.Fatalf("sharetxntest.RunUntilDrained: %v", err)
	}
}

var errEnded = errors.New("Run has returned")
