package shareconsumer

import (
	"context"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
)

// keptBuffered is how long after the last poll fetched records are kept locked:
// a caller that works on a batch for long finds the next one ready, and no
// record uses up its deliveries by waiting here; one that stopped polling does
// not keep records from others for ever.
const keptBuffered = 5 * time.Minute

// renewing keeps locks from ending (KIP-1222): of batches that a transaction
// holds, of those that KeepLocked was asked for, and of fetched records that
// wait to be polled.
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
// one is; c.mu is held.
func (c *Consumer) renewDue(now time.Time) time.Duration {
	next := time.Hour
	if c.noRenew || c.closed {
		return next
	}
	see := func(rs []*Record) {
		due, at := dueOf(rs, c.lock, now)
		if len(due) > 0 {
			c.renew(due)
		}
		if !at.IsZero() {
			next = min(next, at.Sub(now))
		}
	}
	working := false // on a batch whose locks are kept: then it polls again
	for b := range c.batches {
		if b.renewable(now) {
			working = true
			see(b.records)
		}
	}
	if working || now.Sub(c.polled) < keptBuffered {
		for _, s := range c.sessions {
			see(s.buffer)
		}
	}
	return max(next, time.Millisecond)
}

// renewable: held and not yet taken by staging, or kept for a while.
func (b *Batch) renewable(now time.Time) bool {
	return b.state == held || (b.state == open && now.Before(b.keep))
}

// dueOf picks the records to renew now, and when the next of the others is
// due; zero if none will be. One under way ends with a look at the rest, one
// that failed is tried again a little later.
func dueOf(rs []*Record, lock time.Duration, now time.Time) (due []*Record, next time.Time) {
	for _, r := range rs {
		if r.lost != nil || r.noRenew {
			continue
		}
		at := renewAt(r.deadline, lock)
		if j := r.renewal; j != nil {
			if j.left > 0 {
				continue
			}
			if again := j.at.Add(lock / 8); again.After(at) {
				at = again
			}
		}
		switch {
		case !at.After(now):
			due = append(due, r)
		case next.IsZero() || at.Before(next):
			next = at
		}
	}
	return due, next
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
}

// notRenewed deals with what a renewal did not get. INVALID_REQUEST: the broker
// knows no renewals at all. INVALID_RECORD_STATE for every record while none of
// their locks can have ended: the group does not allow it. In both cases the
// locks just run, and the deadlines stay true. Otherwise records so refused are
// not ours any more. c.mu is held.
func (p *piece) notRenewed(failures map[partKey][]failure) {
	c := p.job.c
	var refused []*Record
	total, expired := 0, false
	now := time.Now()
	for k, rs := range p.records {
		for _, r := range rs {
			total++
			i := slices.IndexFunc(failures[k], func(f failure) bool { return f.covers(r) })
			if i < 0 {
				continue
			}
			switch codeOf(failures[k][i].err) {
			case kerr.InvalidRequest.Code:
				if !c.noRenew {
					c.core.Logger().Warn("sharetxn: this broker does not renew acquisition locks", "group", c.group)
				}
				c.noRenew = true
			case kerr.InvalidRecordState.Code:
				refused = append(refused, r)
				expired = expired || !now.Before(r.deadline)
			}
		}
	}
	if len(refused) == 0 {
		return
	}
	if len(refused) == total && !expired {
		c.core.Logger().Warn("sharetxn: acquisition locks were not renewed, they run", "group", c.group, "records", total)
		for _, r := range refused {
			r.noRenew = true
		}
		return
	}
	for _, r := range refused {
		if r.lost == nil {
			r.lost = kerr.InvalidRecordState
		}
	}
}
