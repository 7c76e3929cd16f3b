package shareconsumer

import (
	"cmp"
	"errors"
	"math"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
)

// parcel is what one answer brought of a partition, not decoded yet: that is done
// beside the next request, so that broker and decoding do not take turns. Its
// ranges are on the books from when it came, as leases that name it; what befalls
// them meanwhile (a newer delivery, a lost session, Close) takes them off, and
// then they are not handed out.
type parcel struct {
	tp    acks.TopicIDPartition
	raw   []byte
	first int64 // of its ranges
	last  int64
}

// mostPacked is how many answers of a broker may wait to be decoded when another
// fetch leaves.
const mostPacked = 1

// offsetsOf is how many a range has, as far as they can be counted.
func offsetsOf(first, last int64) int { return int(min(last-first, math.MaxInt32-1) + 1) }

// acquired takes what a partition gave onto the books; nil if that is nothing.
func (s *session) acquired(tp acks.TopicIDPartition, raw []byte, spans []span, sent time.Time, lock time.Duration) *parcel {
	if len(spans) == 0 {
		return nil
	}
	c := s.c
	p := &parcel{tp: tp, raw: raw, first: spans[0].first, last: spans[len(spans)-1].last}
	all := int64(0)
	for _, x := range spans {
		all += int64(offsetsOf(x.first, x.last))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range spans {
		n := offsetsOf(x.first, x.last)
		c.acquire(&lease{
			s: s, tp: tp, first: x.first, last: x.last, count: x.count, fetched: sent, deadline: sent.Add(lock),
			parcel: p, expected: n, bytes: int(int64(len(raw)) * int64(n) / all),
		})
	}
	return p
}

// deliver gives an answer's parcels to be unpacked. At most mostPacked wait when a
// fetch is sent, so there is room.
func (s *session) deliver(ps []*parcel) {
	if len(ps) == 0 {
		return
	}
	s.c.mu.Lock()
	s.packed++
	s.c.mu.Unlock()
	s.parcels <- ps
}

// unpacking decodes answers in the order in which they came, until the session
// ends.
func (s *session) unpacking() {
	c := s.c
	for ps := range s.parcels {
		for _, p := range ps {
			s.unpack(p)
		}
		c.mu.Lock()
		s.packed--
		c.announce() // to Drain
		c.mu.Unlock()
		s.signal() // the next fetch may be due
	}
}

// unpack decodes a parcel, and hands what is still ours of it to polls.
func (s *session) unpack(p *parcel) {
	c := s.c
	c.mu.Lock()
	left := len(c.packedIn(p))
	c.mu.Unlock()
	if left == 0 {
		return
	}
	records, known, err := decode(p.tp.Topic, p.tp.Partition, p.raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	s.place(p, records, known, err)
	c.announce()
	c.wakeRenewer()
}

// place gives what was decoded of a parcel to the leases that are left of it; c.mu
// is held.
func (s *session) place(p *parcel, records []*kgo.Record, known []extent, err error) {
	c := s.c
	ls := c.packedIn(p)
	spans := make([]span, len(ls))
	for i, l := range ls {
		spans[i] = span{l.first, l.last, l.count}
	}
	ours, holes := sift(records, spans)
	for i, l := range ls {
		if len(ours[i]) == 0 {
			c.unbuffer(l)
			continue
		}
		c.unpacked(l, ours[i])
	}
	runs, unread := fill(holes, known)
	if len(runs) > 0 {
		s.holes(p.tp, runs)
	}
	if len(unread) > 0 {
		c.tell(unreadError(c.group, p.tp.Topic, p.tp.Partition, unread, cmp.Or(err, errMissing)))
	}
}

// packedIn gives the leases that a parcel is still to be unpacked for; c.mu is
// held.
func (c *Consumer) packedIn(p *parcel) (ls []*lease) {
	k := keyOf(p.tp)
	for _, l := range c.held[k][c.held.from(k, p.first):] {
		if l.first > p.last {
			break
		}
		if l.parcel == p {
			ls = append(ls, l)
		}
	}
	return ls
}

var errMissing = errors.New("acquired records were not in the answer")

// unreadError names offsets that were acquired and could not be read.
func unreadError(group, topic string, partition int32, unread []extent, err error) error {
	re := offsetsError(topic, partition, err, func(yield func(first, last int64) bool) {
		for _, u := range unread {
			if !yield(u.first, u.last) {
				return
			}
		}
	})
	return &sharetxn.Error{Op: "Poll", Class: sharetxn.ClassAbortable, Group: group, Topic: topic, Partition: partition, Err: re}
}
