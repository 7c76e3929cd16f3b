package txnmanager

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
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
	if !lapse.For(ctx, b.pause) {
		return context.Cause(ctx)
	}
	return nil
}
