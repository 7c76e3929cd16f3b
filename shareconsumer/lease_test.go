package shareconsumer

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"
)

func bookkeeper() (*Consumer, *session) {
	c := &Consumer{held: make(holdings), batches: make(map[*Batch]struct{}), sessions: make(map[int32]*session), cfg: defaults(), lock: time.Minute}
	s := newSession(c, 0)
	c.sessions[0] = s
	return c, s
}

// The books that are kept by range say of each offset what books kept by offset
// would say.
func TestLeasesAreAsExactAsOffsets(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	errLost := errors.New("lost")
	rapid.Check(t, func(t *rapid.T) {
		const offsets = 24
		c, s := bookkeeper()
		k := partKey{[16]byte{1}, 0}
		holder := make(map[int64]*lease) // by hand: who was given an offset last
		var records []*Record
		lost := make(map[*Record]error)
		in := make(map[int64]*parcel) // and in which answer it is, if that is not decoded
		gone := func(o int64) {
			delete(holder, o)
			delete(in, o)
		}
		type packed struct {
			*parcel
			records []*kgo.Record
		}
		var parcels []packed
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			first := rapid.Int64Range(0, offsets-1).Draw(t, "first")
			last := rapid.Int64Range(first, offsets-1).Draw(t, "last")
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0: // an answer
				var os []int64
				for o := first; o <= last; o++ {
					if rapid.Bool().Draw(t, "there") {
						os = append(os, o)
					}
				}
				if len(os) == 0 {
					continue
				}
				l := leaseOf(s, os...)
				for _, r := range records {
					if l.first <= r.Offset && r.Offset <= l.last && !r.gone && holder[r.Offset] != nil {
						lost[r] = errAgain
					}
				}
				for o := l.first; o <= l.last; o++ {
					gone(o)
				}
				for _, o := range os {
					holder[o] = l
				}
				c.displace(k, span{first: l.first, last: l.last})
				c.gave(l)
			case 1: // a poll
				if b := c.handOut(time.Now()); b != nil {
					records = append(records, b.records...)
				}
			case 2: // some are settled
				var rs []*Record
				for _, r := range records {
					if first <= r.Offset && r.Offset <= last && !r.gone {
						rs = append(rs, r)
						if !errors.Is(lost[r], errAgain) {
							gone(r.Offset)
						}
					}
				}
				c.forget(rs)
			case 3: // a part is lost
				for _, l := range c.carve(k, first, last) {
					if l.lost == nil {
						l.lost = errLost
						if l.parcel != nil {
							for o := l.first; o <= l.last; o++ {
								gone(o)
							}
						}
						for i := range l.records {
							lost[&l.records[i]] = errLost
						}
						for _, r := range l.waiting {
							gone(r.Offset)
						}
						c.unbuffer(l)
					}
				}
			case 4: // a part is renewed
				for _, l := range c.carve(k, first, last) {
					if l.first < first || l.last > last {
						t.Fatalf("carved %d-%d out of %d-%d", first, last, l.first, l.last)
					}
				}
			case 5: // an answer that waits to be decoded, of two ranges
				spans := union([]span{{first, last, 1}, {last + 2, last + 3, 2}})
				var rs []*kgo.Record
				for _, x := range spans {
					for _, r := range records {
						if x.first <= r.Offset && r.Offset <= x.last && !r.gone && holder[r.Offset] != nil {
							lost[r] = errAgain
						}
					}
					c.displace(k, x)
				}
				p := s.acquired(acks.TopicIDPartition{TopicID: k.topic, Topic: "in"}, make([]byte, 100), spans, time.Now(), time.Hour)
				for _, x := range spans {
					for o := x.first; o <= x.last; o++ {
						holder[o], in[o] = c.held[k][c.held.from(k, o)], p
						if rapid.Bool().Draw(t, "there") {
							rs = append(rs, &kgo.Record{Topic: "in", Offset: o})
						}
					}
				}
				parcels = append(parcels, packed{p, rs})
			case 6: // the oldest of them is decoded
				if len(parcels) == 0 {
					continue
				}
				p := parcels[0]
				parcels = parcels[1:]
				s.place(p.parcel, p.records, []extent{{0, 2 * offsets}}, nil)
				for o, of := range in {
					if of != p.parcel {
						continue
					}
					if delete(in, o); !slices.ContainsFunc(p.records, func(r *kgo.Record) bool { return r.Offset == o }) {
						gone(o)
					}
				}
			}
			at, unpolled, out, bytes := int64(-1), 0, 0, 0
			for _, l := range c.held[k] {
				if l.first <= at || l.last < l.first || !l.listed {
					t.Fatalf("leases %s", ranges(c.held[k]))
				}
				at = l.last
				unpolled += l.unpolled()
				bytes += l.bytes
			}
			for _, r := range records {
				if !r.gone {
					out++
				}
				if r.gone {
					continue
				}
				if !errors.Is(r.lease.lost, lost[r]) || r.Offset < r.lease.first || r.Offset > r.lease.last {
					t.Fatalf("offset %d is lost by %v, want %v", r.Offset, r.lease.lost, lost[r])
				}
				if found := c.record(k, r.Offset); (found == r) == errors.Is(lost[r], errAgain) {
					t.Fatalf("offset %d: found %v, lost by %v", r.Offset, found, lost[r])
				}
			}
			if unpolled != s.unpolled || out != s.out || bytes != c.bytes {
				t.Fatalf("%d unpolled, %d out and %d bytes on the books, want %d, %d and %d", s.unpolled, s.out, c.bytes, unpolled, out, bytes)
			}
			for o := range int64(offsets + 4) {
				i := c.held.from(k, o)
				have := i < len(c.held[k]) && c.held[k][i].first <= o && c.held[k][i].has(o)
				if have != (holder[o] != nil) {
					t.Fatalf("offset %d: held %v, want %v (%s)", o, have, holder[o] != nil, ranges(c.held[k]))
				}
			}
		}
	})
}

// has tells whether the lease has an offset that is not settled.
func (l *lease) has(o int64) bool {
	for _, r := range l.waiting {
		if r.Offset == o {
			return true
		}
	}
	if l.parcel != nil {
		return l.first <= o && o <= l.last
	}
	return slices.ContainsFunc(l.records, func(r Record) bool { return r.Offset == o && !r.gone })
}

func ranges(ls []*lease) (out string) {
	for _, l := range ls {
		out += fmt.Sprintf(" %d-%d", l.first, l.last)
	}
	return out
}

// An offset that is delivered anew takes back what is queued of the delivery
// before, and nothing else.
func TestAcquiringTakesBackWhatIsQueued(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	run := func(first, last int64) acks.Run { return acks.Run{First: first, Last: last, Type: acks.Accept} }
	for name, tc := range map[string]struct {
		queued        []acks.Run
		anew          []int64
		sent, tooLate []acks.Run
	}{
		"elsewhere":     {[]acks.Run{run(1, 5)}, []int64{6, 7}, []acks.Run{run(1, 5)}, nil},
		"in the middle": {[]acks.Run{run(1, 5)}, []int64{3}, []acks.Run{run(1, 2), run(4, 5)}, []acks.Run{run(3, 3)}},
		"all":           {[]acks.Run{run(2, 4)}, []int64{1, 2, 3, 4, 5}, nil, []acks.Run{run(2, 4)}},
		"two runs":      {[]acks.Run{run(1, 3), run(5, 9)}, []int64{3, 4, 5}, []acks.Run{run(1, 2), run(6, 9)}, []acks.Run{run(3, 3), run(5, 5)}},
	} {
		c, s := bookkeeper()
		other := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in", Partition: 1}
		l := leaseOf(s, tc.anew...)
		p := &piece{job: c.newJob(false, false), s: s, parts: []part{{l.tp, tc.queued}, {other, tc.queued}}}
		s.queue = append(s.queue, p)
		c.displace(l.key(), span{first: l.first, last: l.last})
		var late []acks.Run
		for _, pt := range p.stale {
			late = append(late, pt.runs...)
		}
		if !slices.Equal(p.parts[0].runs, tc.sent) || !slices.Equal(late, tc.tooLate) || !slices.Equal(p.parts[1].runs, tc.queued) {
			t.Errorf("%s: sent %v, too late %v; another partition %v", name, p.parts[0].runs, late, p.parts[1].runs)
		}
	}
}

// A poll gives acquired ranges whole, as far as they fit into one: what is
// acknowledged as it was acquired costs brokers least. Those that do not fit fill
// it.
func TestPollsGiveWholeRanges(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, tc := range map[string]struct {
		ranges [][]int64
		polls  []int
	}{
		"all fit":              {[][]int64{{0, 1}, {2, 3}}, []int{4}},
		"the second fits next": {[][]int64{{0, 1, 2}, {3, 4}}, []int{3, 2}},
		"just as many":         {[][]int64{{0, 1, 2, 3}, {4}}, []int{4, 1}},
		"one is too long":      {[][]int64{{0, 1, 2, 3, 4}, {5}}, []int{4, 2}},
		"too long for any":     {[][]int64{{0}, {1, 2, 3, 4, 5}}, []int{4, 2}},
	} {
		c, s := bookkeeper()
		c.cfg.maxPollRecords = 4
		for _, os := range tc.ranges {
			c.gave(leaseOf(s, os...))
		}
		var polls []int
		for b := c.handOut(time.Now()); b != nil; b = c.handOut(time.Now()) {
			polls = append(polls, len(b.records))
		}
		if !slices.Equal(polls, tc.polls) {
			t.Errorf("%s: %v records, want %v", name, polls, tc.polls)
		}
	}
}
