package conformance

import (
	"context"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// found is what differential runs found, as cases.
var found = []Case{
	{Name: "found/the final epoch releases only partitions of the session", Run: func(ctx context.Context, x *X) {
		t, s, other := x.twoHeld(ctx)
		closed, err := s.CloseSession(ctx, nil)
		x.Must(err)
		x.Same("code of closing", closed.Code, int16(0))
		x.onlySecond(ctx, t, other)
	}},
	{Name: "found/the end of a connection releases only partitions of the session", Run: func(ctx context.Context, x *X) {
		t, s, other := x.twoHeld(ctx)
		got, err := other.Fetch(ctx, byhand.NewFetch(t.Part(0), t.Part(1)))
		x.Must(err)
		x.Same("code of opening", got.Code, int16(0))
		s.Member().CutConnections()
		x.onlySecond(ctx, t, other)
	}},
	{Name: "found/the end of a group's last connection forgets what was acquired and not in the session", Run: func(ctx context.Context, x *X) {
		t, s, other := x.twoHeld(ctx)
		x.cut(ctx, s) // else the other's session could be there before, and this one not the last
		part := x.Until(ctx, other, byhand.NewFetch(t.Part(0)), t.Part(0))
		x.Same("handed out as if for the first time", part.Acquired, []byhand.Acquired{{First: 0, Last: 2, Count: 1}})
	}},
	{Name: "found/aborted records count against what a fetch asks for", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx, "share.isolation.level=read_committed")
		x.Feed(ctx, t, 0, 3)
		x.transaction(ctx, t, 2, kgo.TryAbort) // offsets 3 and 4, the marker at 5
		m := x.Joined(ctx, group, 1, t.Name)
		s := m.Session(x.Leader(ctx, t, 0))
		f := byhand.NewFetch(t.Part(0))
		f.MaxRecords = 4
		part := x.Until(ctx, s, f, t.Part(0))
		x.Same("acquired", part.Acquired, []byhand.Acquired{{First: 0, Last: 2, Count: 1}})
		part = x.Until(ctx, s, byhand.NewFetch(), t.Part(0))
		x.Same("acquired next", part.Acquired, []byhand.Acquired{{First: 5, Last: 5, Count: 1}})
	}},
	{Name: "found/a fetch that finds aborted records only brings nothing, and the next goes on behind them", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx, "share.isolation.level=read_committed")
		x.Feed(ctx, t, 0, 1)
		s := x.Joined(ctx, group, 1, t.Name).Session(x.Leader(ctx, t, 0))
		f := byhand.NewFetch(t.Part(0))
		f.MaxRecords = 2
		x.Until(ctx, s, f, t.Part(0))
		x.transaction(ctx, t, 2, kgo.TryAbort) // offsets 1 and 2, the marker at 3
		f.Partitions = nil
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("acquired", got.Parts[t.Part(0)].Acquired, []byhand.Acquired(nil))
		part := x.Until(ctx, s, f, t.Part(0))
		x.Same("acquired next", part.Acquired, []byhand.Acquired{{First: 3, Last: 3, Count: 1}})
	}},
	{Name: "found/a group that subscribed has offsets of every partition, though unset", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		group := x.Group(ctx)
		m := x.Joined(ctx, group, 2, t.Name)
		all := func() (n int, unset bool) {
			d, err := x.Adm.DescribeShareGroupOffsets(ctx, group)
			x.Must(err)
			unset = true
			for _, p := range d[group].Offsets[t.Name] {
				n, unset = n+1, unset && p.StartOffset == -1 && p.Lag == -1
			}
			return n, unset
		}
		testkit.Eventually(ctx, x, "both partitions are listed", func() bool { n, unset := all(); return n == 2 && unset })
		left, err := m.Leave(ctx)
		x.Must(err)
		x.Same("code of leaving", left.ErrorCode, int16(0))
		n, unset := all()
		x.Same("partitions listed after the member left", n, 2)
		x.Same("without offsets", unset, true)
	}},
}

// twoHeld gives a topic whose two partitions' three records a member holds, the
// first of them forgotten in its session, and a member that holds nothing.
func (x *X) twoHeld(ctx context.Context) (t Topic, s, other *byhand.Session) {
	x.Helper()
	t = x.Topic(ctx, 2)
	group := x.Group(ctx)
	x.Feed(ctx, t, 0, 3)
	x.Feed(ctx, t, 1, 3)
	leader := x.Leader(ctx, t, 0)
	s = x.Joined(ctx, group, 2, t.Name).Session(leader)
	x.Until(ctx, s, byhand.NewFetch(t.Part(0)), t.Part(0))
	f := byhand.NewFetch(t.Part(1))
	f.Forget = []byhand.Partition{t.Part(0)}
	x.Until(ctx, s, f, t.Part(1))
	return t, s, x.Member(group, t.Name).Session(leader)
}

// onlySecond waits until the second partition's records are to be had, and then
// finds those of the first still locked.
func (x *X) onlySecond(ctx context.Context, t Topic, s *byhand.Session) {
	x.Helper()
	var list []byhand.Partition
	if s.Epoch == 0 {
		list = []byhand.Partition{t.Part(0), t.Part(1)}
	}
	got, err := s.Fetch(ctx, byhand.NewFetch(list...))
	for x.Must(err); len(got.Parts[t.Part(1)].Acquired) == 0 && ctx.Err() == nil; x.Must(err) {
		x.Same("code", got.Code, int16(0))
		x.Same("of the forgotten partition, at first", got.Parts[t.Part(0)].Acquired, []byhand.Acquired(nil))
		got, err = s.Fetch(ctx, byhand.NewFetch())
	}
	x.Same("given back", got.Parts[t.Part(1)].Acquired, []byhand.Acquired{{First: 0, Last: 2, Count: 2}})
	x.Same("of the forgotten partition", got.Parts[t.Part(0)].Acquired, []byhand.Acquired(nil))
	got, err = s.Fetch(ctx, byhand.NewFetch())
	x.Must(err)
	x.Same("of the forgotten partition, later", got.Parts[t.Part(0)].Acquired, []byhand.Acquired(nil))
}
