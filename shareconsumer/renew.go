package shareconsumer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
)

// renewing keeps the locks of batches that a transaction holds, or that
// KeepLocked was asked for, from ending (KIP-1222).
func (c *Consumer) renewing(ctx context.Context) {
	defer c.wg.Done()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		c.mu.Lock()
		next := c.renewDue(time.Now())
		c.mu.Unlock()
		timer.Reset(next)
		select {
		case <-timer.C:
		case <-c.renewer:
		case <-ctx.Done():
			return
		}
	}
}

func (c *Consumer) wakeRenewer() { signal(c.renewer) }

// renewDue queues the renewals that are due and gives how long until the next
// one may be; c.mu is held.
func (c *Consumer) renewDue(now time.Time) time.Duration {
	next := time.Hour
	for b := range c.batches {
		if c.noRenew || c.closed || !b.renewable(now) || b.renewal > 0 || len(b.records) == 0 {
			continue
		}
		due := renewAt(earliest(b.records), c.lock)
		if due.After(now) {
			next = min(next, due.Sub(now))
			continue
		}
		c.renew(b)
		next = min(next, c.lock/4) // look whether it was enough
	}
	return max(next, time.Millisecond)
}

// renewable: held and not yet taken by staging, or kept for a while.
func (b *Batch) renewable(now time.Time) bool {
	return b.state == held || (b.state == open && now.Before(b.keep))
}

// renewAt is when half of the lock is over: early enough to try again.
func renewAt(deadline time.Time, lock time.Duration) time.Time { return deadline.Add(-lock / 2) }

// renewed notes new deadlines, counted from when the request was sent.
func (s *session) renewed(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch, codes map[partKey]int16, sent time.Time, lock time.Duration) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if lock <= 0 { // version 1 of the API does not tell
		lock = c.lock
	}
	for tp, bs := range batches {
		k := keyOf(tp)
		if code, ok := codes[k]; !ok || code != 0 {
			continue
		}
		for _, run := range runsOf(bs) {
			for o := run.First; o <= run.Last; o++ {
				if r := c.index[k][o]; r != nil && r.node == s.node && r.lost == nil {
					r.deadline = sent.Add(lock)
				}
			}
		}
	}
	c.wakeRenewer()
}

// renewFailed deals with a renewal that was refused: records that are not ours
// any more are lost; where renewing is not to be had at all the locks just run,
// and their deadlines stay true. c.mu is held.
func (p *piece) renewFailed(tp acks.TopicIDPartition, f failure) {
	c := p.job.c
	if codeOf(f.err) == kerr.InvalidRequest.Code {
		if !c.noRenew {
			c.core.Logger().Warn("sharetxn: this broker does not renew acquisition locks", "group", c.group)
		}
		c.noRenew = true
		return
	}
	if codeOf(f.err) != kerr.InvalidRecordState.Code {
		return
	}
	for _, r := range p.records[keyOf(tp)] {
		if f.run.First <= r.Offset && r.Offset <= f.run.Last && !r.gone && (r.batch == nil || r.batch.state != frozen) {
			r.lost = f.err
		}
	}
}
