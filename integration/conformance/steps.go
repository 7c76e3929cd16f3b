package conformance

import (
	"context"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Types of acknowledgements (KIP-932, KIP-1222).
const (
	gap int8 = iota
	accept
	release
	reject
	renew
)

// Reader gives the session of a member that has joined and was assigned all
// partitions of the topics, with the leader of the first. It is the group's first
// member: brokers serve a partition only after it was assigned to somebody.
func (x *X) Reader(ctx context.Context, group string, n int, topics ...Topic) *byhand.Session {
	x.Helper()
	var names []string
	for _, t := range topics {
		names = append(names, t.Name)
	}
	return x.Joined(ctx, group, n, names...).Session(x.Leader(ctx, topics[0], 0))
}

// At gives the session of one more member with a partition's leader. The member
// has sent no heartbeat: leaders do not ask for one.
func (x *X) At(ctx context.Context, group string, t Topic, partition int32) *byhand.Session {
	x.Helper()
	return x.Member(group, t.Name).Session(x.Leader(ctx, t, partition))
}

// Filled gives a topic of one partition with n records in one batch, and the session
// of the group's first member with its leader.
func (x *X) Filled(ctx context.Context, group string, n int) (Topic, *byhand.Session, byhand.Partition) {
	x.Helper()
	t := x.Topic(ctx, 1)
	x.Feed(ctx, t, 0, n)
	return t, x.Reader(ctx, group, 1, t), t.Part(0)
}

// Take fetches generously until the partition hands something out, which must be
// want.
func (x *X) Take(ctx context.Context, s *byhand.Session, p byhand.Partition, want ...byhand.Acquired) byhand.FetchedPart {
	x.Helper()
	return x.TakeWith(ctx, s, byhand.NewFetch(p), p, want...)
}

// TakeWith is Take with a fetch of one's own.
func (x *X) TakeWith(ctx context.Context, s *byhand.Session, f byhand.Fetch, p byhand.Partition, want ...byhand.Acquired) byhand.FetchedPart {
	x.Helper()
	got := x.Until(ctx, s, f, p)
	if got.Code == kerr.NotLeaderForPartition.Code { // a new leader may be told so a moment after everybody else
		testkit.Eventually(ctx, x, "the leader serves the share partition", func() bool {
			got = x.Until(ctx, s, f, p)
			return got.Code != kerr.NotLeaderForPartition.Code
		})
	}
	x.Same("code", got.Code, int16(0))
	x.Same("acquired", got.Acquired, want)
	return got
}

// TakeNone fetches once, which must be good and hand nothing of the partition out.
func (x *X) TakeNone(ctx context.Context, s *byhand.Session, p byhand.Partition) {
	x.Helper()
	got, err := s.Fetch(ctx, byhand.NewFetch(p))
	x.Must(err)
	x.Same("code", got.Code, int16(0))
	x.Same("code of the partition", got.Parts[p].Code, int16(0))
	if have := got.Parts[p].Acquired; len(have) > 0 {
		x.Errorf("acquired %v, want nothing", have)
	}
}

// Ack acknowledges one range with one type and gives the partition's code.
func (x *X) Ack(ctx context.Context, s *byhand.Session, p byhand.Partition, first, last int64, t int8) int16 {
	x.Helper()
	got, err := s.Acknowledge(ctx, one(p, first, last, t), t == renew)
	x.Must(err)
	x.Same("code of the acknowledgement's answer", got.Code, int16(0))
	code, ok := got.Parts[p]
	if !ok {
		x.Errorf("the answer to the acknowledgement lacks %v", p)
	}
	return code
}

// one is one range of one partition with one type.
func one(p byhand.Partition, first, last int64, t int8) map[byhand.Partition][]byhand.Ack {
	return map[byhand.Partition][]byhand.Ack{p: {{First: first, Last: last, Types: []int8{t}}}}
}

// Opens opens a session at epoch 0 with those partitions, which must work, and
// acquires nothing.
func (x *X) Opens(ctx context.Context, s *byhand.Session, parts ...byhand.Partition) {
	x.Helper()
	s.Epoch = 0
	f := byhand.NewFetch(parts...)
	f.MaxRecords, f.MaxWait = 0, 0
	got, err := s.Fetch(ctx, f)
	x.Must(err)
	x.Same("code of opening the session", got.Code, int16(0))
}
