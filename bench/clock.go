package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/bench/contender"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// clock takes the time from the first acknowledgements that hold to the last:
// joining the group is not part of it, and what came with the first does not
// count. Safe for concurrent use.
type clock struct {
	over chan struct{} // closed when all are acknowledged, or some will never be

	mu         sync.Mutex
	left       int
	counted    int
	began, end time.Time
	err        error
}

var _ sharetxn.HookTxn = (*clock)(nil)

func newClock(records int) *clock { return &clock{over: make(chan struct{}), left: records} }

// add counts records that are acknowledged for good.
func (c *clock) add(n int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = now
	} else {
		c.counted, c.end = c.counted+n, now
	}
	c.left -= n
	switch {
	case c.left == 0:
		c.finish(nil)
	case c.left < 0:
		c.finish(fmt.Errorf("%d more acknowledgements than records", -c.left))
	}
}

// finish ends it, once; c.mu is held.
func (c *clock) finish(err error) {
	select {
	case <-c.over:
	default:
		close(c.over)
	}
	if c.err == nil {
		c.err = err
	}
}

// wait waits for the last acknowledgement.
func (c *clock) wait(ctx context.Context) error {
	select {
	case <-c.over:
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *clock) lap() lap {
	c.mu.Lock()
	defer c.mu.Unlock()
	return lap{c.counted, c.end.Sub(c.began)}
}

// OnTxnStart implements sharetxn.HookTxn.
func (c *clock) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

// OnTxnEnd implements sharetxn.HookTxn. What was aborted is done again.
func (c *clock) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	if e.Outcome == sharetxn.Committed {
		c.add(e.Records)
	}
}

// onAcknowledged is for shareconsumer.OnAcknowledged.
func (c *clock) onAcknowledged(r shareconsumer.AckResult) {
	if r.Err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.finish(r.Err)
		return
	}
	if n := contender.Accepted(r); n > 0 {
		c.add(n)
	}
}
