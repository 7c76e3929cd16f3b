// Package rig is what long trials on real Kafka share: records that come in at a
// pace, members that are processes of their own and can be killed or paused, and
// brokers that die while leaders move.
package rig

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrNothing is of a fault that changed nothing, and so tried nothing.
var ErrNothing = errors.New("the fault changed nothing")

// Until asks each few milliseconds, until cond is true or ctx ends.
func Until(ctx context.Context, what string, cond func() bool) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("never came true: %s (%w)", what, ctx.Err())
		}
	}
	return nil
}
