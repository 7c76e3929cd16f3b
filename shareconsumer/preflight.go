package shareconsumer

import (
	"context"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/preflight"
)

// preflight tells a poll, once, why a member gets no partitions where the brokers'
// internal topics cannot be created. Heartbeats go on: it may heal.
func (c *Consumer) preflight(ctx context.Context) {
	defer c.wg.Done()
	fault := preflight.Watch(ctx, c.core, c.works, preflight.Offsets, preflight.ShareState)
	if fault == nil {
		return
	}
	c.core.Logger().Error("sharetxn: the member gets no partitions", "group", c.group, "err", fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.assigned) == 0 {
		c.tell(&sharetxn.Error{Op: "Poll", Class: sharetxn.ClassAbortable, Group: c.group, Err: fault})
	}
}

// works tells whether the member has partitions.
func (c *Consumer) works() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.assigned) > 0
}
