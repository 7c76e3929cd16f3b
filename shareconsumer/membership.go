package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	leaveEpoch = -1
	// eager is how often a member asks while it has no partitions yet: brokers
	// make assignments about once a second and tell them only when asked.
	eager = 100 * time.Millisecond
	// eagerFor bounds that, so that a member more than there are partitions
	// does not ask for ever.
	eagerFor = 10 * time.Second
	// minBeat and maxBeat clamp the interval a broker asks for.
	minBeat = 50 * time.Millisecond
	maxBeat = time.Minute
)

// membership heartbeats until Close, which ends live, then waits for the
// sessions to close and leaves; ctx bounds that.
func (c *Consumer) membership(ctx, live context.Context) {
	defer c.wg.Done()
	defer close(c.left)
	m := memberState{full: true, joined: time.Now()}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for goOn := true; goOn; {
		select {
		case <-timer.C:
			var next time.Duration
			next, goOn = c.heartbeat(live, &m)
			timer.Reset(next)
		case <-live.Done():
			goOn = false
		}
	}
	<-live.Done() // after a fatal answer too
	c.depart(ctx)
}

// memberState is what the heartbeat loop alone knows.
type memberState struct {
	asked    bool // whether brokers have share groups at all
	full     bool // the next heartbeat tells everything
	joined   time.Time
	failures int
}

// heartbeat sends one and gives when the next is due; false ends the loop.
func (c *Consumer) heartbeat(ctx context.Context, m *memberState) (next time.Duration, goOn bool) {
	if !m.asked {
		ok, asked := c.supported(ctx)
		if asked && !ok {
			c.setFatal(&sharetxn.Error{Op: "Poll", Class: sharetxn.ClassFatal, Group: c.group, Err: fmt.Errorf("%w: share groups (KIP-932) need keys 76, 78 and 79 from version 1 on: Kafka 4.1 or later with share.version 1", sharetxn.ErrUnsupported)})
			return 0, false
		}
		m.asked = asked
	}
	c.mu.Lock()
	epoch := c.epoch
	c.joined = true
	c.mu.Unlock()
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = c.group, c.id, epoch
	if m.full || epoch == 0 {
		req.SubscribedTopicNames = c.cfg.topics
		if c.cfg.rack != "" {
			req.RackID = &c.cfg.rack
		}
	}
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		m.full = true // what the coordinator knows of us is not known
		if ctx.Err() != nil || errors.Is(err, kgo.ErrClientClosed) {
			return 0, false
		}
		m.failures++
		c.core.Logger().Warn("sharetxn: heartbeat failed, again", "group", c.group, "err", err)
		return backoff(m.failures), true
	}
	switch reactTo(resp.ErrorCode) {
	case stay:
		m.full, m.failures = false, 0
		interval := min(max(time.Duration(resp.HeartbeatIntervalMillis)*time.Millisecond, minBeat), maxBeat)
		if c.joinedAs(resp) == 0 && time.Since(m.joined) < eagerFor {
			interval = min(interval, eager)
		}
		return interval, true
	case again:
		m.full = true
		m.failures++
		return backoff(m.failures), true
	case rejoin:
		c.core.Logger().Warn("sharetxn: member must rejoin", "group", c.group, "code", resp.ErrorCode)
		c.fenced(brokerError("ShareGroupHeartbeat", c.group, sharetxn.ClassAbortable, resp.ErrorCode))
		m.full, m.joined = true, time.Now()
		m.failures++
		return backoff(m.failures - 1), true
	case surface:
		m.full = true
		m.failures++
		if m.failures == 1 {
			c.mu.Lock()
			c.tell(brokerError("ShareGroupHeartbeat", c.group, sharetxn.ClassAbortable, resp.ErrorCode))
			c.mu.Unlock()
		}
		return backoff(m.failures), true
	case stop:
	}
	c.setFatal(brokerError("ShareGroupHeartbeat", c.group, sharetxn.ClassFatal, resp.ErrorCode))
	return 0, false
}

// shareGroupKeys are the APIs a member needs; version 0 of them was never
// released for use.
var shareGroupKeys = []int16{76, 78, 79}

// supported asks a broker once whether there are share groups at all: kgo would
// fail each request in a way that looks like any other failure.
func (c *Consumer) supported(ctx context.Context) (ok, asked bool) {
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "sharetxn", "0"
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return false, false
	}
	has := make(map[int16]bool)
	for _, k := range resp.ApiKeys {
		has[k.ApiKey] = k.MaxVersion >= 1
	}
	for _, key := range shareGroupKeys {
		if !has[key] {
			return false, true
		}
	}
	return true, true
}

// backoff is jittered: 100 ms doubling to 2 s; nothing before the first.
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	d := min(100*time.Millisecond<<min(failures-1, 10), 2*time.Second)
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
// are now.
func (c *Consumer) joinedAs(resp *kmsg.ShareGroupHeartbeatResponse) int {
	c.mu.Lock()
	c.epoch = resp.MemberEpoch
	if resp.Assignment == nil {
		n := len(c.assigned)
		c.mu.Unlock()
		return n
	}
	c.assigned = make(map[partKey]struct{})
	for _, tp := range resp.Assignment.TopicPartitions {
		for _, p := range tp.Partitions {
			c.assigned[partKey{tp.TopicID, p}] = struct{}{}
		}
	}
	n := len(c.assigned)
	missing := c.route()
	c.mu.Unlock()
	c.routed(missing)
	return n
}

// fenced starts over: the coordinator does not know this member any more.
func (c *Consumer) fenced(why error) {
	c.mu.Lock()
	c.epoch = 0
	c.assigned = make(map[partKey]struct{})
	c.lose(fmt.Errorf("the member was removed from the group: %w", why), func(*Record) bool { return true })
	for _, s := range c.sessions {
		s.restart = true
	}
	missing := c.route()
	c.mu.Unlock()
	c.routed(missing)
}

// leave tells the coordinator; both answers that say that we are not there are
// as good.
func (c *Consumer) leave(ctx context.Context) error {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch = c.group, c.id, leaveEpoch
	resp, err := req.RequestWith(ctx, c.client)
	if err != nil {
		return err
	}
	switch resp.ErrorCode {
	case 0, kerr.UnknownMemberID.Code, kerr.GroupIDNotFound.Code:
		return nil
	}
	return brokerError("ShareGroupHeartbeat", c.group, sharetxn.ClassAbortable, resp.ErrorCode)
}
