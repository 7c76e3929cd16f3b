package tail

import (
	"context"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
)

// retryWait is how long a round that failed is left alone.
const retryWait = 200 * time.Millisecond

// watch reads the starts and looks at the topic's width, now and then and when
// asked to, and asks for the log's ends when asked to.
func (l *Ledger) watch(ctx context.Context) {
	starts, widths := time.NewTicker(l.opts.Starts), time.NewTicker(l.opts.Widths)
	defer starts.Stop()
	defer widths.Stop()
	for {
		round := l.readStarts
		select {
		case <-ctx.Done():
			return
		case <-l.done:
			return
		case <-starts.C:
		case <-l.toStart:
		case <-widths.C:
			round = l.lookAgain
		case <-l.toWidth:
			round = l.lookAgain
		case <-l.toEnds:
			round = l.readEnds
		}
		bounded, cancel := context.WithTimeout(ctx, 5*askWait)
		err := round(bounded)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case sharetxn.IsFatal(err):
			l.fail(err)
			return
		case err != nil:
			l.told.trouble(l, err)
			lapse.For(ctx, retryWait)
			kick(l.toStart) // a gap may wait for it
			kick(l.toEnds)  // or a record
		}
	}
}

// lookAgain takes up partitions that the topic was given since. A topic that is
// gone must be missing twice: one broker may not know it for a moment.
func (l *Ledger) lookAgain(ctx context.Context) error {
	width, err := l.look(ctx)
	if sharetxn.IsFatal(err) {
		if lapse.For(ctx, l.opts.Starts/5); ctx.Err() != nil {
			return ctx.Err()
		}
		width, err = l.look(ctx)
	}
	if err != nil {
		return fmt.Errorf("looking at the ledger topic: %w", err)
	}
	return l.widen(ctx, width)
}
