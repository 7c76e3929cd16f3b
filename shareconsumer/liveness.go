package shareconsumer

import (
	"context"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
)

// lapseIn gives in how long a member that was last active at a moment, and is
// busy or not, has gone too long without a poll; 0 or less: it has. A limit of
// 0 is none.
func lapseIn(limit time.Duration, active time.Time, busy bool, now time.Time) time.Duration {
	switch {
	case limit == 0:
		return time.Hour
	case busy:
		return limit
	}
	return active.Add(limit).Sub(now)
}

// busy tells whether the member is at work though it does not call Poll: one
// that waits in it, one whose batch a transaction holds, since that would fail,
// and one that has asked to keep a batch locked. c.mu is held.
func (c *Consumer) busy(now time.Time) bool {
	if c.polling > 0 {
		return true
	}
	for b := range c.batches {
		if b.state == frozen || b.renewable(now) {
			return true
		}
	}
	return false
}

// lapse takes the member out of the group if nobody has polled for too long, and
// tells in how long that would be else. away: it is out until the next poll.
func (c *Consumer) lapse(ctx context.Context, m *memberState) (in time.Duration, away bool) {
	limit := c.cfg.maxPollInterval
	c.mu.Lock()
	if c.away {
		c.mu.Unlock()
		return 0, true
	}
	now := time.Now()
	if in = lapseIn(limit, c.active, c.busy(now), now); in > 0 {
		c.mu.Unlock()
		return in, false
	}
	why := fmt.Errorf("no Poll for %v (MaxPollInterval): the member left the group, the next Poll joins again", limit)
	c.away = true
	missing := c.outside(why)
	c.mu.Unlock()
	c.core.Logger().Warn("sharetxn: the member leaves the group, nobody polls", "group", c.group, "interval", limit)
	c.routed(missing)
	ctx, cancel := context.WithTimeout(ctx, c.cfg.closeTimeout)
	defer cancel()
	c.sessionsEnded(ctx)
	err := c.leave(ctx, &m.coordinator)
	if err != nil {
		c.core.Logger().Warn("sharetxn: leaving the group failed; it will notice by itself", "group", c.group, "err", err)
	}
	c.mu.Lock()
	c.joined = c.joined && err != nil
	c.tellMember(sharetxn.Member{Event: sharetxn.MemberLeft, Err: why})
	c.mu.Unlock()
	*m = memberState{coordinator: m.coordinator, asked: m.asked}
	return 0, true
}

// sessionsEnded waits until every session that was to be ended is, at most for
// two thirds of CloseTimeout: a broker that does not answer does not keep the
// member in the group.
func (c *Consumer) sessionsEnded(ctx context.Context) {
	patience, cancel := context.WithTimeout(ctx, c.cfg.closeTimeout*2/3)
	defer cancel()
	for {
		c.mu.Lock()
		ending := false
		for _, s := range c.sessions {
			ending = ending || s.restart || s.ending
		}
		arrived := c.arrived
		c.mu.Unlock()
		if !ending {
			return
		}
		select {
		case <-arrived:
		case <-patience.Done():
			return
		}
	}
}

// seen notes that somebody is at work; one that had left joins again. c.mu is
// held.
func (c *Consumer) seen(now time.Time) {
	c.active = now
	if c.away {
		c.away = false
		signal(c.beat)
	}
}
