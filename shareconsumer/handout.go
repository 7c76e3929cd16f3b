package shareconsumer

import (
	"cmp"
	"slices"
	"time"
)

// handOut makes a batch of what waits, what was fetched first in front, so that
// none waits until its locks end; nil if nothing waits. What has too little of
// its lock left is given back instead. A lease that fits into a poll is not cut to
// fill this one: where a range is not acknowledged as it was acquired, the broker
// keeps a state for each of its offsets. c.mu is held.
func (c *Consumer) handOut(now time.Time) *Batch {
	var late, ls []*lease
	n := 0
	for n < c.cfg.maxPollRecords {
		s := c.foremost()
		if s == nil {
			break
		}
		l := s.buffer[0]
		if l.deadline.Sub(now) < c.margin() {
			late = append(late, l)
			s.buffer = s.buffer[1:]
			continue
		}
		if left := c.cfg.maxPollRecords - n; len(l.waiting) > left {
			if len(l.waiting) <= c.cfg.maxPollRecords {
				break // the next poll gives it whole
			}
			c.split(l, l.waiting[left].Offset)
		}
		s.buffer = s.buffer[1:]
		n += len(l.waiting)
		ls = append(ls, l)
	}
	c.overdue(late)
	if n == 0 {
		return nil
	}
	return c.newBatch(ls, n)
}

// foremost gives the session whose buffer begins with what was fetched first; nil
// if all are empty. c.mu is held.
func (c *Consumer) foremost() (first *session) {
	for _, s := range c.sessions {
		if len(s.buffer) > 0 && (first == nil || s.buffer[0].fetched.Before(first.buffer[0].fetched)) {
			first = s
		}
	}
	return first
}

// newBatch makes a batch of n records that waited; c.mu is held.
func (c *Consumer) newBatch(ls []*lease, n int) *Batch {
	slices.SortFunc(ls, func(x, y *lease) int {
		return cmp.Or(cmp.Compare(x.tp.Topic, y.tp.Topic), cmp.Compare(x.tp.Partition, y.tp.Partition), cmp.Compare(x.first, y.first))
	})
	b := &Batch{c: c, records: make([]*Record, n)}
	slab := make([]Record, n)
	at := 0
	for _, l := range ls {
		from := at
		for _, kr := range c.unwait(l) {
			r := &slab[at]
			r.Record, r.TopicID, r.count, r.c, r.lease, r.batch = kr, l.tp.TopicID, l.count, c, l, b
			b.records[at] = r
			at++
		}
		l.records = slab[from:at:at]
		l.live = at - from
		l.s.out += l.live
		if b.sweepAt.Before(l.deadline) {
			b.sweepAt = l.deadline
		}
		l.s.signal() // the next fetch may be due
	}
	b.sweepAt = b.sweepAt.Add(c.lock)
	c.batches[b] = struct{}{}
	c.handed += n
	return b
}
