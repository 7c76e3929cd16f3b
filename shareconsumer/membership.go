package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership heartbeats until Close, which ends live, then waits for the
// sessions to close and leaves; ctx bounds that. It is the only one to talk to
// the coordinator, so one heartbeat is in flight at most.
func (c *Consumer) membership(ctx, live context.Context) {
	defer c.wg.Done()
	defer close(c.left)
	m := memberState{coordinator: coordinator{client: c.client, group: c.group}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for goOn := true; goOn; {
		select {
		case <-timer.C:
		case <-c.beat:
			m.due = time.Time{}
		case <-live.Done():
			goOn = false
			continue
		}
		var next time.Duration
		next, goOn = c.turn(live, &m)
		c.news.tell()
		timer.Reset(next)
	}
	<-live.Done() // after a fatal answer too
	c.depart(ctx, &m.coordinator)
	c.news.tell()
}

// turn does what is due and gives when to look again; false ends the loop.
func (c *Consumer) turn(ctx context.Context, m *memberState) (next time.Duration, goOn bool) {
	idle, away := c.lapse(ctx, m)
	if away {
		return time.Hour, true // the next poll wakes
	}
	if wait := time.Until(m.due); wait > 0 {
		return min(wait, idle), true
	}
	next, goOn = c.heartbeat(ctx, m)
	m.due = time.Now().Add(next)
	return min(next, idle), goOn
}

// heartbeat sends one and gives when the next is due; false ends the loop.
func (c *Consumer) heartbeat(ctx context.Context, m *memberState) (next time.Duration, goOn bool) {
	if !m.asked { // kgo would fail each request in a way that looks like any other failure
		offered, err := offers(ctx, c.client.Request)
		if lacks := lacking(c.needs(), offered); err == nil && lacks != "" {
			c.setFatal(c.unsupported(lacks))
			return 0, false
		}
		m.asked = err == nil
	}
	c.mu.Lock()
	epoch, topics, doubts := c.epoch, c.subscribed, c.doubts.had
	c.joined = true
	c.mu.Unlock()
	if now := time.Now(); epoch == 0 && m.failures == 0 || m.told != nil && !slices.Equal(m.told, topics) {
		m.await(epoch, now)
	}
	resp, op, err := m.coordinator.send(ctx, m.request(c.group, c.id, epoch, topics, c.cfg.rack))
	if err != nil {
		m.told = nil // what the coordinator has heard of us is not known
		if ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
			return 0, false
		}
		m.failures++
		c.core.Logger().Warn("sharetxn: heartbeat failed, again", "group", c.group, "rpc", op, "err", err)
		return backoff(m.failures), true
	}
	reaction := reactTo(resp.ErrorCode)
	if reaction == stay && resp.MemberEpoch > 0 {
		m.told, m.failures = topics, 0
		assigned := c.joinedAs(resp, doubts)
		return m.next(time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond, resp.MemberEpoch, assigned, time.Now()), true
	}
	m.told = nil
	m.failures++
	switch refused := brokerError(op, c.group, sharetxn.ClassAbortable, resp.ErrorCode); reaction {
	case stay: // at an epoch that no member has; sent back, -1 would be a leave
		c.core.Logger().Warn("sharetxn: a heartbeat was answered with an epoch that no member has, again", "group", c.group, "epoch", resp.MemberEpoch)
	case again:
	case seek:
		return backoff(m.failures - 1), true
	case rejoin:
		c.core.Logger().Warn("sharetxn: member must rejoin", "group", c.group, "err", refused)
		c.fenced(refused)
		m.await(0, time.Now())
		return backoff(m.failures - 1), true
	case surface:
		if m.failures == 1 {
			c.mu.Lock()
			c.tell(refused)
			c.mu.Unlock()
		}
	case stop:
		refused.Class = sharetxn.ClassFatal
		c.setFatal(refused)
		return 0, false
	}
	return backoff(m.failures), true
}

const maxBackoff = 2 * time.Second

// backoff is jittered: 100 ms doubling to 2 s; nothing before the first.
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	d := min(100*time.Millisecond<<min(failures-1, 10), maxBackoff)
	return d/2 + rand.N(d/2)
}

func (c *Consumer) setFatal(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fatal == nil {
		c.fatal = err
	}
	c.announce()
}

// joinedAs takes over epoch and assignment and gives how many partitions there
// are now; doubts is how many there were when it was asked. An assignment replaces
// the one before; none means that it stays.
func (c *Consumer) joinedAs(resp *kmsg.ShareGroupHeartbeatResponse, doubts int) int {
	c.mu.Lock()
	c.confirmed(doubts)
	was := c.epoch
	c.epoch = resp.MemberEpoch
	switch {
	case was == 0:
		c.tellMember(sharetxn.Member{Event: sharetxn.MemberJoined, Epoch: c.epoch})
	case was != c.epoch:
		c.tellMember(sharetxn.Member{Event: sharetxn.MemberEpoch, Epoch: c.epoch})
	}
	if resp.Assignment == nil {
		n, missing := len(c.assigned), was == 0 && c.uncovered()
		c.mu.Unlock()
		c.routed(missing)
		return n
	}
	c.assigned = make(map[partKey]struct{})
	for _, tp := range resp.Assignment.TopicPartitions {
		for _, p := range tp.Partitions {
			c.assigned[partKey{tp.TopicID, p}] = struct{}{}
		}
	}
	n := len(c.assigned)
	missing := c.route() || c.uncovered()
	c.mu.Unlock()
	c.routed(missing)
	return n
}

// fenced starts over: the coordinator does not know this member any more.
func (c *Consumer) fenced(why error) {
	c.mu.Lock()
	c.tellMember(sharetxn.Member{Event: sharetxn.MemberFenced, Err: why})
	missing := c.outside(fmt.Errorf("the member was removed from the group: %w", why))
	c.mu.Unlock()
	c.routed(missing)
}

// outside is a member that is in no group: nothing is its own any more, and its
// sessions are ended, so that what it had acquired goes to others at once. c.mu
// is held; call routed afterwards.
func (c *Consumer) outside(why error) (missing bool) {
	c.epoch = 0
	c.assigned = make(map[partKey]struct{})
	c.giveBack(why, func(*lease) bool { return true })
	for _, s := range c.sessions {
		s.restart = true
	}
	return c.route()
}
