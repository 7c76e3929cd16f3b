package txnmanager

import (
	"context"
	"time"
)

// backoff are the pauses between repeats of a request. They begin short, since
// the common reason is a transaction whose markers are being written.
type backoff struct{ pause time.Duration }

const (
	firstPause = time.Millisecond
	maxPause   = 250 * time.Millisecond
)

// wait pauses, each time longer; its error is the context's.
func (b *backoff) wait(ctx context.Context) error {
	b.pause = min(max(firstPause, 2*b.pause), maxPause)
	t := time.NewTimer(b.pause)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
