package shareconsumer

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestApart(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	run := func(first, last int64) acks.Run { return acks.Run{First: first, Last: last, Type: acks.Accept} }
	for name, c := range map[string]struct {
		runs            []acks.Run
		spans           []span
		outside, inside []acks.Run
	}{
		"nothing anew":     {[]acks.Run{run(1, 5)}, nil, []acks.Run{run(1, 5)}, nil},
		"elsewhere":        {[]acks.Run{run(1, 5)}, []span{{6, 9, 1}}, []acks.Run{run(1, 5)}, nil},
		"in the middle":    {[]acks.Run{run(1, 5)}, []span{{3, 3, 2}}, []acks.Run{run(1, 2), run(4, 5)}, []acks.Run{run(3, 3)}},
		"all of it":        {[]acks.Run{run(2, 4)}, []span{{1, 9, 2}}, nil, []acks.Run{run(2, 4)}},
		"two spans":        {[]acks.Run{run(1, 9)}, []span{{1, 2, 2}, {8, 12, 2}}, []acks.Run{run(3, 7)}, []acks.Run{run(1, 2), run(8, 9)}},
		"two runs, a span": {[]acks.Run{run(1, 3), run(5, 7)}, []span{{3, 5, 2}}, []acks.Run{run(1, 2), run(6, 7)}, []acks.Run{run(3, 3), run(5, 5)}},
	} {
		outside, inside := apart(c.runs, c.spans)
		if !slices.Equal(outside, c.outside) || !slices.Equal(inside, c.inside) {
			t.Errorf("%s: outside %v, inside %v", name, outside, inside)
		}
	}
}

// A record that was fetched and not yet polled cannot be claimed: nobody has
// seen it.
func TestUnpolledRecordIsNotClaimed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := &Consumer{held: make(holdings), batches: make(map[*Batch]struct{})}
	l := leaseOf(newSession(c, 0), 5, 6)
	c.gave(l)
	if r := c.record(l.key(), 5); r != nil {
		t.Fatalf("found %v, which nobody has polled", r)
	}
	b := c.newBatch([]*lease{l}, 2)
	if r := c.record(l.key(), 6); r != b.records[1] || !r.claimable() {
		t.Fatal("a polled record cannot be claimed")
	}
	if r := c.record(l.key(), 7); r != nil {
		t.Fatalf("found %v, which is not held", r)
	}
}

// leaseOf is a lease of records at offsets.
func leaseOf(s *session, offsets ...int64) *lease {
	l := &lease{s: s, tp: acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}, count: 1, deadline: time.Now().Add(time.Hour), first: offsets[0], last: offsets[len(offsets)-1]}
	for _, o := range offsets {
		l.waiting = append(l.waiting, &kgo.Record{Topic: "in", Offset: o})
	}
	return l
}

// gave takes a lease onto the books and unpacks it.
func (c *Consumer) gave(l *lease) {
	records := l.waiting
	l.waiting, l.parcel, l.expected = nil, &parcel{tp: l.tp, first: l.first, last: l.last}, len(records)
	c.acquire(l)
	c.unpacked(l, records)
}

// CommitAsync says what was lost before it could be sent.
func TestCommitAsyncTellsWhatWasLost(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 1, 1)
	m := c.consumer(t)
	b := poll(ctx, t, m)
	r := b.Records()[0]
	m.mu.Lock()
	m.lose(errors.New("on purpose"), func(*lease) bool { return true })
	m.mu.Unlock()
	r.Accept()
	if err := b.CommitAsync(); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("CommitAsync of a lost record: %v", err)
	}
}
