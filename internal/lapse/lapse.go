// Package lapse lets time pass.
package lapse

import (
	"context"
	"time"
)

// For waits for d; false if ctx ended first. Where d is not above 0 it does not wait,
// and says whether ctx has ended.
func For(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
