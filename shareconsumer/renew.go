package shareconsumer

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/sharetxn/sharetxn"
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
		c.news.tell()
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
	if c.closed {
		return next
	}
	soon := func(at time.Time) { next = min(next, at.Sub(now)) }
	working := false // on a batch whose locks are kept: then it polls again
	for b := range c.batches {
		if b.renewable(now) {
			working = true
			if due := dueOf(b.records, c.lock, now, soon); len(due) > 0 {
				c.renew(due)
			}
		}
	}
	// After a fatal error no poll gets what waits.
	patient := c.fatal == nil && (working || now.Sub(c.polled) < keptBuffered)
	for _, s := range c.sessions {
		var due, late []*lease
		for _, l := range s.buffer {
			if at, ever := l.renewAt(c.lock); ever && patient {
				if !at.After(now) {
					due = append(due, l)
				} else {
					soon(at)
				}
				continue
			}
			switch at := l.deadline.Add(-c.margin()); {
			case l.renewal != nil && l.renewal.left > 0: // its end is looked at
			case at.After(now):
				soon(at)
			default:
				late = append(late, l)
			}
		}
		if len(due) > 0 {
			c.renewWaiting(due)
		}
		c.overdue(late)
	}
	return max(next, time.Millisecond)
}

// renewable: held and not yet taken by staging, committed without staging and not
// yet landed, or kept for a while.
func (b *Batch) renewable(now time.Time) bool {
	return b.state == held || (b.state == frozen && b.landing) || (b.state == open && now.Before(b.keep))
}

// dueOf picks the records to renew now, and tells when others will be due.
func dueOf(rs []*Record, lock time.Duration, now time.Time, soon func(time.Time)) (due []*Record) {
	for l, rs := range byLease(rs) {
		if at, ever := l.renewAt(lock); ever && !at.After(now) {
			due = append(due, rs...)
		} else if ever {
			soon(at)
		}
	}
	return due
}

// renewAt is when to renew a lease: when half of the lock is over, which is
// early enough to try again a little later where it failed. ever is false for
// one that is not to be renewed, or whose renewal is under way: that ends with a
// look at it.
func (l *lease) renewAt(lock time.Duration) (at time.Time, ever bool) {
	if l.lost != nil || l.noRenew || l.s.noRenew {
		return at, false
	}
	at = l.deadline.Add(-lock / 2)
	if j := l.renewal; j != nil {
		if j.left > 0 {
			return at, false
		}
		if again := j.at.Add(lock / 8); again.After(at) {
			at = again
		}
	}
	return at, true
}

// overdue gives back what nobody polled in time: other members can have it
// before its lock ends. c.mu is held.
func (c *Consumer) overdue(late []*lease) {
	if len(late) == 0 {
		return
	}
	n := 0
	for _, l := range late {
		n += len(l.waiting)
	}
	c.releaseWaiting(late)
	c.tellLost(sharetxn.Lost{Records: n, Unpolled: true, Released: true, Err: errLate})
	c.core.Logger().Warn("sharetxn: records released, nobody polled them in time", "group", c.group, "records", n)
}

// cannotRenew is how renewals fail, unsent, at a broker that has none.
func (s *session) cannotRenew() error {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	if !s.noRenew {
		return nil
	}
	return &sharetxn.Error{Op: "Renew", Class: sharetxn.ClassAbortable, Group: s.c.group, Err: fmt.Errorf("broker %d does not renew acquisition locks, Kafka 4.2 and later do; decide records before their deadline: %w", s.node, kerr.UnsupportedVersion)}
}

// renewed notes new deadlines, counted from when the request was sent.
func (s *session) renewed(parts []part, codes map[partKey]int16, sent time.Time, lock time.Duration) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if lock <= 0 { // version 1 of the API does not tell
		lock = c.lock
	}
	for _, pt := range parts {
		if code, ok := codes[keyOf(pt.tp)]; !ok || code != 0 {
			continue
		}
		for l := range s.leases(pt) {
			if l.lost == nil {
				l.deadline = sent.Add(lock)
			}
		}
	}
}

// leases gives the leases from this broker that a part is about, cut so that
// they are about nothing else; c.mu is held.
func (s *session) leases(pt part) iter.Seq[*lease] {
	return func(yield func(*lease) bool) {
		for _, r := range pt.runs {
			for _, l := range s.c.carve(keyOf(pt.tp), r.First, r.Last) {
				if l.s == s && !yield(l) {
					return
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
func (p *piece) notRenewed() {
	c := p.job.c
	var refused []*lease
	offsets, of, expired := int64(0), int64(0), false
	now := time.Now()
	for _, pt := range p.parts {
		of += pt.offsets()
	}
	for _, f := range p.failures {
		switch codeOf(f.err) {
		case kerr.InvalidRequest.Code:
			if !p.s.noRenew {
				c.core.Logger().Warn("sharetxn: this broker does not renew acquisition locks", "group", c.group, "broker", p.s.node)
			}
			p.s.noRenew = true
		case kerr.InvalidRecordState.Code:
			offsets += f.offsets()
			for l := range p.s.leases(f.part) {
				refused = append(refused, l)
				expired = expired || !now.Before(l.deadline)
			}
		}
	}
	if offsets == 0 {
		return
	}
	if offsets == of && !expired {
		c.core.Logger().Warn("sharetxn: acquisition locks were not renewed, they run", "group", c.group, "records", of)
		for _, l := range refused {
			l.noRenew = true
		}
		return
	}
	for _, l := range refused {
		if l.lost == nil {
			l.lost = kerr.InvalidRecordState
		}
		c.unbuffer(l)
	}
}

// offsets is how many the part names.
func (p part) offsets() (n int64) {
	for _, r := range p.runs {
		n += r.Last - r.First + 1
	}
	return n
}
