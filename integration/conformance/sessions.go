package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sessions are share sessions: what a member and a broker remember of each other
// (KIP-932, ShareFetch and ShareAcknowledge).
var sessions = []Case{
	{Name: "sessions/epochs count fetches and acknowledgements", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		opened := s.Epoch
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
		x.Same("epoch after it", s.Epoch, opened+1)
		x.TakeNone(ctx, s, t.Part(0))
		x.Same("epoch after a fetch", s.Epoch, opened+2)
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 2, 3, accept), int16(0))
	}},
	{Name: "sessions/a wrong epoch is refused and not counted", Run: func(ctx context.Context, x *X) {
		_, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.TakeNone(ctx, s, p)
		x.TakeNone(ctx, s, p)
		right := s.Epoch
		for _, wrong := range []int32{right - 1, right + 1, -2} {
			s.Epoch = wrong
			x.refused(ctx, s, fmt.Sprintf("epoch %d for %d", wrong, right), kerr.InvalidShareSessionEpoch.Code)
		}
		s.Epoch = right
		x.Same("code at the right epoch", x.Ack(ctx, s, p, 0, 0, accept), int16(0))
	}},
	{Name: "sessions/no session", Run: func(ctx context.Context, x *X) {
		_, s, _ := x.Filled(ctx, x.Group(ctx), 1)
		for _, epoch := range []int32{1, 7, -1, -2} {
			s.Epoch = epoch
			x.refused(ctx, s, fmt.Sprintf("epoch %d", epoch), kerr.ShareSessionNotFound.Code)
		}
	}},
	{Name: "sessions/only a fetch opens one", Run: func(ctx context.Context, x *X) {
		_, s, p := x.Filled(ctx, x.Group(ctx), 1)
		got, err := s.Acknowledge(ctx, one(p, 0, 0, accept), false)
		x.Must(err)
		x.Same("code", got.Code, kerr.InvalidShareSessionEpoch.Code)
	}},
	{Name: "sessions/a fetch that opens one carries no acknowledgements", Run: func(ctx context.Context, x *X) {
		_, s, p := x.Filled(ctx, x.Group(ctx), 1)
		f := byhand.NewFetch(p)
		f.Acks = one(p, 0, 0, accept)
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, kerr.InvalidRequest.Code)
	}},
	{Name: "sessions/opening again replaces it and keeps the locks", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		old := s.Epoch
		x.Feed(ctx, t, 0, 1)
		s.Epoch = 0
		x.Take(ctx, s, p, byhand.Acquired{First: 2, Last: 2, Count: 1})
		now := s.Epoch
		s.Epoch = old + 7
		x.refused(ctx, s, "an epoch of the old session", kerr.InvalidShareSessionEpoch.Code)
		s.Epoch = now
		x.Same("code for what the old session acquired", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
		x.Same("code for what the new one did", x.Ack(ctx, s, p, 2, 2, accept), int16(0))
	}},
	{Name: "sessions/opening again forgets the partitions", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Opens(ctx, s)
		x.Feed(ctx, t, 0, 1)
		got, err := s.Fetch(ctx, byhand.NewFetch())
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("partitions answered", len(got.Parts), 0)
		x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 1})
	}},
	{Name: "sessions/partitions are remembered and need not be listed", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Feed(ctx, t, 0, 1)
		x.TakeWith(ctx, s, byhand.NewFetch(), p, byhand.Acquired{First: 1, Last: 1, Count: 1})
	}},
	{Name: "sessions/a partition is added later", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		x.Feed(ctx, t, 0, 1)
		x.Feed(ctx, t, 1, 1)
		s := x.Reader(ctx, x.Group(ctx), 2, t)
		x.Take(ctx, s, t.Part(0), byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Take(ctx, s, t.Part(1), byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Feed(ctx, t, 0, 1)
		x.TakeWith(ctx, s, byhand.NewFetch(), t.Part(0), byhand.Acquired{First: 1, Last: 1, Count: 1})
	}},
	{Name: "sessions/a forgotten partition is served no more and keeps its locks", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Feed(ctx, t, 0, 1)
		f := byhand.NewFetch()
		f.Forget = []byhand.Partition{p}
		for range 2 {
			got, err := s.Fetch(ctx, f)
			x.Must(err)
			x.Same("code", got.Code, int16(0))
			x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired(nil))
			f.Forget = nil
		}
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 0, accept), int16(0))
		x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 1})
	}},
	{Name: "sessions/a partition listed for its acknowledgements is added", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		f := byhand.NewFetch()
		f.Forget = []byhand.Partition{p}
		_, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Feed(ctx, t, 0, 1)
		f = byhand.NewFetch()
		f.Acks = one(p, 0, 0, accept)
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 1, Last: 1, Count: 1})
		x.Feed(ctx, t, 0, 1)
		x.TakeWith(ctx, s, byhand.NewFetch(), p, byhand.Acquired{First: 2, Last: 2, Count: 1})
	}},
	{Name: "sessions/one listed and forgotten in one request", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		f := byhand.NewFetch()
		f.Acks, f.Forget = one(p, 0, 0, accept), []byhand.Partition{p}
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("code of the acknowledgement", got.Parts[p].AckCode, int16(0))
		x.Feed(ctx, t, 0, 1)
		got, err = s.Fetch(ctx, byhand.NewFetch())
		x.Must(err)
		x.Same("acquired later", got.Parts[p].Acquired, []byhand.Acquired(nil))
	}},
	{Name: "sessions/forgetting what was never listed", Run: func(ctx context.Context, x *X) {
		t, s, p := x.Filled(ctx, x.Group(ctx), 1)
		f := byhand.NewFetch(p)
		f.Forget = []byhand.Partition{t.Part(7), {Topic: [16]byte{1}, Index: 0}}
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
	}},
	{Name: "sessions/closing with an acknowledgement releases the rest", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		got, err := s.CloseSession(ctx, one(p, 0, 1, accept))
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("code of the partition", got.Parts[p], int16(0))
		s.Epoch = -1
		x.refused(ctx, s, "closing again", kerr.ShareSessionNotFound.Code)
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 2, Last: 3, Count: 2})
	}},
	{Name: "sessions/a bad acknowledgement at the end closes it all the same", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		got, err := s.CloseSession(ctx, one(p, 0, 7, accept))
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("code of the partition", got.Parts[p], kerr.InvalidRequest.Code)
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 0, Last: 1, Count: 2})
	}},
	{Name: "sessions/a fetch closes it too, with acknowledgements", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		s.Epoch = -1
		f := byhand.NewFetch()
		f.Acks = one(p, 0, 0, accept)
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("code of the acknowledgement", got.Parts[p].AckCode, int16(0))
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired(nil))
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 1, Last: 3, Count: 2})
	}},
	{Name: "sessions/a fetch with nothing closes it", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		s.Epoch = -1
		got, err := s.Fetch(ctx, byhand.NewFetch())
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("partitions answered", len(got.Parts), 0)
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 0, Last: 1, Count: 2})
	}},
	{Name: "sessions/a cut connection releases and ends it", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 2)
		m := s.Member()
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		other := x.At(ctx, group, t, 0)
		x.Opens(ctx, other, p)
		m.CutConnections()
		x.Take(ctx, other, p, byhand.Acquired{First: 0, Last: 1, Count: 2})
		x.refused(ctx, s, "the epoch after", kerr.ShareSessionNotFound.Code)
	}},
	{Name: "sessions/a cut connection of which another session knows nothing", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		m := x.Member(group, t.Name)
		other := m.Session(x.Leader(ctx, t, 0))
		x.Opens(ctx, other, p)
		x.cut(ctx, other)
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
	}},
	{Name: "sessions/requests may come over another connection, which does not keep it", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.Filled(ctx, group, 3)
		m := s.Member()
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 2, Count: 1})
		twin := x.Member(group, t.Name)
		twin.ID = m.ID
		u := twin.Session(s.Node)
		u.Epoch = s.Epoch
		x.Same("code over another connection", x.Ack(ctx, u, p, 0, 0, accept), int16(0))
		twin.CutConnections()
		s.Epoch = u.Epoch
		x.Same("code after that was cut", x.Ack(ctx, s, p, 1, 1, accept), int16(0))
		m.CutConnections()
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 2, Last: 2, Count: 2})
	}},
	{Name: "sessions/two members have each their own records", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, a, p := x.Filled(ctx, group, 2)
		x.Feed(ctx, t, 0, 2)
		f := byhand.NewFetch(p)
		f.MaxRecords = 1
		x.TakeWith(ctx, a, f, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		b := x.At(ctx, group, t, 0)
		x.Take(ctx, b, p, byhand.Acquired{First: 2, Last: 3, Count: 1})
		x.Same("code for the other's", x.Ack(ctx, b, p, 0, 1, accept), kerr.InvalidRecordState.Code)
		x.Same("code for one's own", x.Ack(ctx, b, p, 2, 3, accept), int16(0))
		x.Same("code for the first's own", x.Ack(ctx, a, p, 0, 1, accept), int16(0))
	}},
	{Name: "sessions/one member id in two groups", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 2)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		n := x.Member(x.Group(ctx), t.Name)
		n.ID = m.ID
		_, err := n.Settle(ctx, 1)
		x.Must(err)
		for _, s := range []*byhand.Session{m.Session(x.Leader(ctx, t, 0)), n.Session(x.Leader(ctx, t, 0))} {
			x.Take(ctx, s, t.Part(0), byhand.Acquired{First: 0, Last: 1, Count: 1})
		}
	}},
	{Name: "sessions/leaving the group ends no session", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 2)
		stays := x.Joined(ctx, group, 1, t.Name)
		m, p := x.Joined(ctx, group, 1, t.Name), t.Part(0)
		s := m.Session(x.Leader(ctx, t, 0))
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		resp, err := m.Leave(ctx)
		x.Must(err)
		x.Same("code of leaving", resp.ErrorCode, int16(0))
		x.TakeNone(ctx, stays.Session(s.Node), p)
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
	}},
	{Name: "sessions/the last member's leaving ends no session either", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		_, s, p := x.Filled(ctx, group, 2)
		m := s.Member()
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		resp, err := m.Leave(ctx)
		x.Must(err)
		x.Same("code of leaving", resp.ErrorCode, int16(0))
		x.Same("state", x.describe(ctx, group).GroupState, "Empty")
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
	}},
	{Name: "sessions/a member that never sent a heartbeat is served", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, _, p := x.Filled(ctx, group, 1)
		s := x.At(ctx, group, t, 0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 0, accept), int16(0))
		x.Same("members", len(x.describe(ctx, group).Members), 1)
	}},
	{Name: "sessions/a partition that no member was ever assigned", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 1)
		got := x.Until(ctx, x.At(ctx, x.Group(ctx), t, 0), byhand.NewFetch(t.Part(0)), t.Part(0))
		x.Differs("code", "the embedded broker makes a share partition's state when it is first asked for, Kafka when it is first assigned",
			got.Code, kerr.UnknownServerError.Code, int16(0))
	}},
	{Name: "sessions/a fetch that another request of the session overtakes", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		twin := x.At(ctx, s.Member().Group, t, 0) // the same member, over another connection
		twin.Member().ID, twin.Epoch = s.Member().ID, s.Epoch+1
		type answer struct {
			got byhand.Fetched
			err error
		}
		done := make(chan answer, 1)
		go func() {
			f := byhand.NewFetch()
			f.MaxWait = int32((10 * time.Minute).Milliseconds())
			got, err := s.Fetch(ctx, f)
			done <- answer{got, err}
		}()
		testkit.Eventually(ctx, x, "the fetch is counted", func() bool {
			got, err := twin.Acknowledge(ctx, nil, false)
			x.Must(err)
			return got.Code == 0
		})
		x.Feed(ctx, t, 0, 1)
		a := <-done
		x.Must(a.err)
		x.Same("code of the fetch", a.got.Code, kerr.InvalidShareSessionEpoch.Code)
		x.Same("partitions told", len(a.got.Parts), 0)
		// What it acquired the member holds, though it was not told.
		x.Same("code of an acknowledgement", x.Ack(ctx, twin, p, 0, 1, accept), int16(0))
	}},
	{Name: "sessions/what a request must have", Run: func(ctx context.Context, x *X) {
		_, s, _ := x.Filled(ctx, x.Group(ctx), 1)
		group, empty, blank, id := x.Group(ctx), "", " ", strings.Repeat("i", 36)
		long, null := id+"i", kerr.InvalidRequest.Code
		if !x.Target.Version().Since(4, 3) {
			null = kerr.UnknownServerError.Code
		}
		for _, bad := range []struct {
			what          string
			group, member *string
			fetch, ack    int16
		}{
			{"no group id", nil, &id, null, null},
			{"no member id", &group, nil, null, null},
			{"an empty member id", &group, &empty, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code},
			{"a blank member id", &group, &blank, 0, 0}, // though no such member can join
			{"a member id of 37 characters", &group, &long, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code},
			{"all of it", &group, &id, 0, 0},
		} {
			fetch := kmsg.NewPtrShareFetchRequest()
			fetch.GroupID, fetch.MemberID, fetch.MaxRecords, fetch.MaxBytes = bad.group, bad.member, 1, 1
			kresp, err := x.Client.Broker(int(s.Node)).Request(ctx, fetch)
			x.Must(err)
			x.Same("code of a fetch with "+bad.what, kresp.(*kmsg.ShareFetchResponse).ErrorCode, bad.fetch)
			ack := kmsg.NewPtrShareAcknowledgeRequest()
			ack.GroupID, ack.MemberID, ack.ShareSessionEpoch = bad.group, bad.member, 1
			kresp, err = x.Client.Broker(int(s.Node)).Request(ctx, ack)
			x.Must(err)
			x.Same("code of an acknowledgement with "+bad.what, kresp.(*kmsg.ShareAcknowledgeResponse).ErrorCode, bad.ack)
		}
	}},
	{Name: "sessions/2000 of them are the most", Alone: true, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		m := x.Member(group)
		node := x.Target.Nodes()[0]
		open := func(i int, epoch int32) int16 {
			id := fmt.Sprint("member-", i)
			req := kmsg.NewPtrShareFetchRequest()
			req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &id, epoch
			kresp, err := m.Client().Broker(int(node)).Request(ctx, req)
			x.Must(err)
			return kresp.(*kmsg.ShareFetchResponse).ErrorCode
		}
		n, code := 0, int16(0)
		for ; code == 0 && n < 2001; n++ {
			code = open(n, 0)
		}
		x.Same("code beyond the most", code, kerr.ShareSessionLimitReached.Code)
		n-- // the one that was refused
		x.Same("code of a session that is there", open(0, 1), int16(0))
		x.Same("code of replacing it", open(0, 0), int16(0))
		x.Same("code of closing it", open(0, -1), int16(0))
		x.Same("code when there is room again", open(n, 0), int16(0))
		for i := 1; i <= n; i++ {
			x.Same("code of closing", open(i, -1), int16(0))
		}
	}},
}

// refused sends a fetch and an acknowledgement at the session's epoch; both must
// be answered with code.
func (x *X) refused(ctx context.Context, s *byhand.Session, what string, code int16) {
	x.Helper()
	got, err := s.Fetch(ctx, byhand.NewFetch())
	x.Must(err)
	x.Same("code of a fetch with "+what, got.Code, code)
	acked, err := s.Acknowledge(ctx, nil, false)
	x.Must(err)
	x.Same("code of an acknowledgement with "+what, acked.Code, code)
}

// cut cuts a member's connections and returns when the session has ended by that:
// a broker sees the end of one connection at any time before or after what
// comes over another.
func (x *X) cut(ctx context.Context, s *byhand.Session) {
	x.Helper()
	s.Member().CutConnections()
	testkit.Eventually(ctx, x, "the session has ended with its connection", func() bool {
		got, err := s.Acknowledge(ctx, nil, false)
		x.Must(err)
		return got.Code == kerr.ShareSessionNotFound.Code
	})
}
