package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// watch feeds the input, and knows when it is worked off.
type watch struct {
	cfg    Config
	lines  [][]byte
	site   site
	times  times
	count  *counts
	client *kgo.Client
	admin  *kadm.Client
	tell   func(string)
	log    *slog.Logger

	director *director
	piece    int           // records fed at once while faults are to come
	stall    time.Duration // so long without progress is an error

	fed  int
	left int64 // of these
}

// run tells progress once a second and returns when the group's coordinator
// says that its lag is 0 wherever something was fed, and all was fed. What
// members report plays no part in that. While faults are to come it feeds no
// more than they need, so that the members have work as long as any is
// outstanding. It fails if they make no progress.
func (w *watch) run(ctx context.Context) error {
	ask, tell := time.NewTicker(20*time.Millisecond), time.NewTicker(time.Second)
	defer ask.Stop()
	defer tell.Stop()
	started := time.Now()
	type state struct {
		fed       int
		left      int64
		over      int // strikes
		committed int64
	}
	var last state
	moved := started
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tell.C:
			aborts, err := w.aborts(ctx)
			if err != nil {
				return err
			}
			w.tell(w.progress(time.Since(started), aborts))
		case <-ask.C:
			done, err := w.step(ctx)
			if err != nil || done {
				return err
			}
			_, over := w.director.sofar()
			if now := (state{w.fed, w.left, over, w.count.committed.Load()}); now != last {
				moved, last = time.Now(), now
			}
			if time.Since(moved) > w.stall {
				return fmt.Errorf("no progress for %v; %d of %d records are left", w.stall, int64(len(w.lines))-w.done(), len(w.lines))
			}
		}
	}
}

// step asks how far the group is and feeds.
func (w *watch) step(ctx context.Context) (done bool, err error) {
	left, err := lag(ctx, w.admin, w.site.names(), w.fed)
	switch {
	case kerr.IsRetriable(err): // a coordinator that is not there yet, or moves; stall bounds it
		return false, nil
	case err != nil:
		return false, err
	}
	w.left = left
	n := min(w.next(), len(w.lines)-w.fed)
	if n == 0 {
		return w.left == 0 && w.fed == len(w.lines) && w.director.idle(), nil
	}
	err = feed(ctx, w.client, w.site.names().Source, w.lines[w.fed:w.fed+n], w.fed)
	w.fed, w.left = w.fed+n, w.left+int64(n)
	return false, err
}

// done is how many records the group has done.
func (w *watch) done() int64 { return int64(w.fed) - w.left }

// next is how much to feed now.
func (w *watch) next() int {
	switch {
	case w.director.settled():
		return len(w.lines)
	case w.director.hungry() && w.left < int64(w.piece):
		return w.piece
	}
	return 0
}

// aborts is how many transactions were aborted so far.
func (w *watch) aborts(ctx context.Context) (int, error) {
	return w.site.aborts(ctx, w.count.aborted.Load())
}

func (w *watch) progress(after time.Duration, aborts int) string {
	n := w.done()
	return fmt.Sprintf("%d of %d records, %d transactions committed, %d aborted, %.0f records/s", n, len(w.lines), w.count.committed.Load(), aborts, float64(n)/after.Seconds())
}

// lag is how many of the records fed are not done for the group.
func lag(ctx context.Context, adm *kadm.Client, at names, input int) (int64, error) {
	groups, err := adm.DescribeShareGroupOffsets(ctx, at.group)
	if err == nil {
		err = groups[at.group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined yet
		return 0, fmt.Errorf("lag: %w", err)
	}
	left := int64(input)
	for _, o := range groups[at.group].Offsets[at.Source] {
		if o.Err != nil {
			return 0, fmt.Errorf("lag of %s-%d: %w", at.Source, o.Partition, o.Err)
		}
		if o.Lag >= 0 { // -1: not read yet, so all of it is left
			left -= fed(input, o.Partition) - o.Lag
		}
	}
	return left, nil
}

// gone waits until the group has no members: those killed leave it only when
// their sessions end. Of any that stays longer the audit tells.
func (w *watch) gone(ctx context.Context) {
	group, told := w.site.names().group, false
	await(ctx, w.times.patience(), func() bool {
		groups, err := w.admin.DescribeShareGroups(ctx, group)
		n := len(groups[group].Members)
		if n > 0 && !told {
			w.tell(fmt.Sprintf("nothing is left; waiting for the sessions of what was killed to end (%d, up to %v)", n, w.times.session))
			told = true
		}
		return err == nil && n == 0
	})
}
