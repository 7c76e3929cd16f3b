package shareconsumer

import (
	"iter"
	"slices"
	"sort"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
)

// lease is a range of offsets that one answer acquired for this member, or a
// part of one: brokers tell of locks by ranges, so no record has a lock of its
// own. It is unpacked, waits to be polled, and is polled as a whole; it is cut
// where something befalls a part of it. All of it belongs to c.mu.
type lease struct {
	s           *session
	tp          acks.TopicIDPartition
	first, last int64     // of its records
	count       int32     // deliveries, this one included
	fetched     time.Time // when its fetch was sent
	deadline    time.Time
	lost        error   // why it is not ours any more, where nobody decided it
	renewal     *ackJob // the last one asked for
	noRenew     bool    // the broker does not renew it
	listed      bool    // among what is held: no newer delivery has taken its place

	parcel   *parcel       // of which it is, before it is unpacked
	expected int           // records, until then
	waiting  []*kgo.Record // afterwards, before it is polled
	bytes    int           // of the answer, that they stand for
	records  []Record      // after it was polled
	live     int           // of records: not gone
}

func (l *lease) key() partKey { return keyOf(l.tp) }

// unpolled is how many records wait to be polled, or to be unpacked before that.
func (l *lease) unpolled() int {
	if l.parcel != nil {
		return l.expected
	}
	return len(l.waiting)
}

// cut makes a lease of what lies at or behind an offset; nil if that is nothing
// or all of it.
func (l *lease) cut(at int64) *lease {
	if at <= l.first || at > l.last {
		return nil
	}
	right := new(*l)
	if l.parcel != nil {
		right.first, l.last = at, at-1
		l.expected = min(l.expected, offsetsOf(l.first, l.last))
		right.expected -= l.expected
		l.bytes = int(int64(l.bytes) * int64(l.expected) / int64(max(1, l.expected+right.expected)))
		right.bytes -= l.bytes
		return right
	}
	if n := len(l.waiting); n > 0 {
		i := sort.Search(n, func(i int) bool { return l.waiting[i].Offset >= at })
		right.waiting, l.waiting = l.waiting[i:], l.waiting[:i:i]
		right.first, l.last = right.waiting[0].Offset, l.waiting[i-1].Offset
		l.bytes = int(int64(l.bytes) * int64(i) / int64(n))
		right.bytes -= l.bytes
		return right
	}
	i := sort.Search(len(l.records), func(i int) bool { return l.records[i].Offset >= at })
	right.records, l.records = l.records[i:], l.records[:i:i]
	right.first, l.last = right.records[0].Offset, l.records[i-1].Offset
	right.live = 0
	for i := range right.records {
		r := &right.records[i]
		r.lease = right
		if !r.gone {
			right.live++
		}
	}
	l.live -= right.live
	return right
}

// holdings are the leases of this member by partition, ascending and disjoint:
// the newest delivery of each offset.
type holdings map[partKey][]*lease

// from gives the place of the first lease that ends at or behind an offset.
func (h holdings) from(k partKey, offset int64) int {
	ls := h[k]
	if n := len(ls); n == 0 || ls[n-1].last < offset { // as records mostly come
		return n
	}
	return sort.Search(len(ls), func(i int) bool { return ls[i].last >= offset })
}

// add lists a lease that overlaps none that is listed.
func (h holdings) add(l *lease) {
	k := l.key()
	h[k] = slices.Insert(h[k], h.from(k, l.first), l)
	l.listed = true
}

func (h holdings) drop(l *lease) {
	if !l.listed {
		return
	}
	l.listed = false
	k := l.key()
	i := h.from(k, l.first)
	if ls := slices.Delete(h[k], i, i+1); len(ls) > 0 {
		h[k] = ls
	} else {
		delete(h, k)
	}
}

// split cuts a lease wherever it stands; nil if there was nothing to cut. c.mu
// is held.
func (c *Consumer) split(l *lease, at int64) *lease {
	right := l.cut(at)
	if right == nil {
		return nil
	}
	if l.listed {
		c.held.add(right)
	}
	if i := slices.Index(l.s.buffer, l); i >= 0 {
		l.s.buffer = slices.Insert(l.s.buffer, i+1, right)
	}
	return right
}

// carve gives the leases of a range of offsets, cut so that none reaches beyond
// it. c.mu is held.
func (c *Consumer) carve(k partKey, first, last int64) (ls []*lease) {
	for i := c.held.from(k, first); i < len(c.held[k]) && c.held[k][i].first <= last; i++ {
		l := c.held[k][i]
		if l.first < first {
			c.split(l, first) // is the next one, or lies behind
			continue
		}
		c.split(l, last+1)
		ls = append(ls, l)
	}
	return ls
}

// displace makes room for a new delivery, also of offsets that it brought no
// record of. What this member still has of older ones is lost, and
// acknowledgements of them that wait to be sent are taken back: they name no
// delivery, and would hit the new one. c.mu is held.
func (c *Consumer) displace(k partKey, x span) {
	for _, old := range c.carve(k, x.first, x.last) {
		if old.lost == nil {
			c.tellLost(sharetxn.Lost{Records: old.live, Err: errAgain})
			c.tellLost(sharetxn.Lost{Records: old.unpolled(), Unpolled: true, Err: errAgain})
		}
		old.lost = errAgain
		c.held.drop(old)
		c.unbuffer(old)
	}
	for _, s := range c.sessions {
		for _, p := range s.queue {
			p.supersede(k, x)
		}
	}
}

// displaced is displace of all that one partition's answer acquired.
func (s *session) displaced(k partKey, spans []span) {
	s.c.mu.Lock()
	defer s.c.mu.Unlock()
	for _, x := range spans {
		s.c.displace(k, x)
	}
}

// acquire takes a new lease onto the books, to be unpacked; older deliveries of
// its offsets were displaced. c.mu is held.
func (c *Consumer) acquire(l *lease) {
	c.held.add(l)
	l.s.unpolled += l.unpolled()
	c.bytes += l.bytes
}

// unpacked lets a lease be polled, which has records. c.mu is held.
func (c *Consumer) unpacked(l *lease, records []*kgo.Record) {
	l.s.unpolled += len(records) - l.unpolled()
	l.parcel, l.waiting = nil, records
	l.first, l.last = records[0].Offset, records[len(records)-1].Offset
	l.s.buffer = append(l.s.buffer, l)
}

// unbuffer sees to it that nobody polls the lease; c.mu is held.
func (c *Consumer) unbuffer(l *lease) {
	if l.parcel == nil && len(l.waiting) == 0 {
		return
	}
	if i := slices.Index(l.s.buffer, l); i >= 0 {
		l.s.buffer = slices.Delete(l.s.buffer, i, i+1)
	}
	c.unwait(l)
	c.held.drop(l)
}

// unwait gives what waited, as what waits no more; c.mu is held.
func (c *Consumer) unwait(l *lease) []*kgo.Record {
	rs := l.waiting
	l.s.unpolled -= l.unpolled()
	c.bytes -= l.bytes
	l.parcel, l.waiting, l.bytes = nil, nil, 0
	return rs
}

// forget takes records that are settled, or not ours any more, off the books;
// c.mu is held.
func (c *Consumer) forget(rs []*Record) {
	for _, r := range rs {
		if r.gone {
			continue
		}
		r.gone = true
		l := r.lease
		l.s.out--
		if l.live--; l.live == 0 {
			c.held.drop(l)
		}
	}
}

// lose marks leases as not ours any more, without anybody having decided their
// records: they come back to some member. Of frozen ones, what was staged is not
// touched by it, and what was not the broker will refuse. c.mu is held.
func (c *Consumer) lose(why error, which func(*lease) bool) {
	var lost []*lease
	for _, ls := range c.held {
		for _, l := range ls {
			if l.lost == nil && which(l) {
				l.lost = why
				lost = append(lost, l)
			}
		}
	}
	polled, unpolled := 0, 0
	for _, l := range lost {
		unpolled += l.unpolled()
		c.unbuffer(l)
		for i := range l.records {
			if r := &l.records[i]; !r.gone && r.batch.state != frozen { // of a frozen one it is not known what became of it
				polled++
			}
		}
	}
	c.tellLost(sharetxn.Lost{Records: polled, Err: why})
	c.tellLost(sharetxn.Lost{Records: unpolled, Unpolled: true, Err: why})
}

// giveBack is lose where sessions are about to end: it notes what their end is to
// release. That is what waits and what is in open batches, so nothing that a
// transaction holds and may have staged. c.mu is held.
func (c *Consumer) giveBack(why error, which func(*lease) bool) {
	now := time.Now()
	for _, ls := range c.held {
		for _, l := range ls {
			if l.lost == nil && which(l) && now.Before(l.deadline) {
				l.undecided(l.s.toBack(l.tp))
			}
		}
	}
	c.lose(why, which)
}

// undecided adds the release of what no verdict was sent of and no transaction
// has; c.mu is held.
func (l *lease) undecided(back *part) {
	if l.parcel != nil {
		back.addRun(acks.Run{First: l.first, Last: l.last, Type: acks.Release})
	}
	for _, r := range l.waiting {
		back.add(r.Offset, acks.Release)
	}
	for i := range l.records {
		if r := &l.records[i]; !r.gone && r.batch.state == open {
			back.add(r.Offset, acks.Release)
		}
	}
}

// byLease gives records with the lease that neighbours have in common; each lease
// once where the records are in order. c.mu is held.
func byLease(rs []*Record) iter.Seq2[*lease, []*Record] {
	return func(yield func(*lease, []*Record) bool) {
		for len(rs) > 0 {
			l, n := rs[0].lease, 1
			for n < len(rs) && rs[n].lease == l {
				n++
			}
			if !yield(l, rs[:n]) {
				return
			}
			rs = rs[n:]
		}
	}
}
