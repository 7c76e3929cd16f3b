package conformance

import (
	"context"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// leaders is what becomes of share partitions, sessions and members when
// partitions get other leaders and brokers end and come back.
var leaders = []Case{
	{Name: "leaders/the old one refuses and names the new one", Brokers: 3, Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		to := x.moveLeader(ctx, t)
		var got byhand.Fetched
		testkit.Eventually(ctx, x, "the old leader refuses", func() bool {
			f := byhand.NewFetch()
			f.MaxWait = 0
			var err error
			got, err = s.Fetch(ctx, f)
			x.Must(err)
			return got.Parts[p].Code == kerr.NotLeaderForPartition.Code
		})
		x.Same("leader named", got.Parts[p].Leader.LeaderID, to)
		x.Same("its address is told", slices.ContainsFunc(got.Raw.NodeEndpoints, func(e kmsg.ShareFetchResponseNodeEndpoint) bool { return e.NodeID == to && e.Port > 0 }), true)
		// For acknowledgements it is no partition of this broker any more, and nobody is named.
		x.Same("code of an acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), kerr.UnknownTopicOrPartition.Code)
		f := byhand.NewFetch()
		f.MaxWait, f.Acks = 0, one(p, 0, 1, accept)
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code of a fetch with one", got.Parts[p].Code, kerr.NotLeaderForPartition.Code)
		x.Same("code of that acknowledgement", got.Parts[p].AckCode, kerr.UnknownTopicOrPartition.Code)
		x.Same("leader named", got.Parts[p].Leader.LeaderID, to)
	}},
	{Name: "leaders/a broker that never led it", Brokers: 3, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 2)
		to := x.moveLeader(ctx, t)
		for _, node := range x.Target.Nodes() {
			if node == s.Node || node == to {
				continue
			}
			u := x.Member(group, t.Name).Session(node)
			got := x.Until(ctx, u, byhand.NewFetch(p), p)
			x.Same("code of a fetch", got.Code, kerr.NotLeaderForPartition.Code)
			x.Same("leader named", got.Leader.LeaderID, to)
			x.Same("code of an acknowledgement", x.Ack(ctx, u, p, 0, 1, accept), kerr.UnknownTopicOrPartition.Code)
		}
	}},
	{Name: "leaders/what was acquired is available at the new one, its delivery forgotten", Brokers: 3, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.moveLeader(ctx, t)
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 0, Last: 1, Count: 1})
	}},
	{Name: "leaders/what was decided stays decided, and deliveries that were handed back count", Brokers: 3, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 6)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 5, Count: 1})
		x.Same("code", x.ackAll(ctx, s, p, byhand.Ack{First: 0, Last: 0, Types: []int8{accept}}, byhand.Ack{First: 2, Last: 2, Types: []int8{release}},
			byhand.Ack{First: 3, Last: 3, Types: []int8{reject}}), int16(0))
		x.Take(ctx, s, p, byhand.Acquired{First: 2, Last: 2, Count: 2}) // this delivery will be forgotten
		x.moveLeader(ctx, t)
		u := x.At(ctx, group, t, 0)
		x.Take(ctx, u, p, byhand.Acquired{First: 1, Last: 1, Count: 1}, byhand.Acquired{First: 2, Last: 2, Count: 2}, byhand.Acquired{First: 4, Last: 5, Count: 1})
		x.Same("code", x.ackAll(ctx, u, p, byhand.Ack{First: 1, Last: 2, Types: []int8{accept}}, byhand.Ack{First: 4, Last: 5, Types: []int8{accept}}), int16(0))
		x.TakeNone(ctx, u, p)
	}},
	{Name: "leaders/the new one takes no acknowledgement of what the old one handed out", Brokers: 3, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 2)
		m, p := x.Joined(ctx, group, 1, t.Name), t.Part(0)
		x.Take(ctx, m.Session(x.Leader(ctx, t, 0)), p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		u := m.Session(x.moveLeader(ctx, t))
		f := byhand.NewFetch(p)
		f.RecordLimit, f.MaxRecords = true, 1
		x.TakeWith(ctx, u, f, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Same("code of what is not held here", x.Ack(ctx, u, p, 1, 1, accept), kerr.InvalidRecordState.Code)
		x.Same("code of what is", x.Ack(ctx, u, p, 0, 0, accept), int16(0))
	}},
	{Name: "leaders/away and back: the session lives, its locks do not", Brokers: 3, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.moveLeader(ctx, t)
		x.Take(ctx, x.At(ctx, group, t, 0), p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.moveLeaderTo(ctx, t, s.Node)
		u := x.At(ctx, group, t, 0)
		x.Take(ctx, u, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.Same("code of the first session's acknowledgement", x.Ack(ctx, s, p, 0, 1, accept), kerr.InvalidRecordState.Code)
		x.Same("code of who holds them", x.Ack(ctx, u, p, 0, 1, accept), int16(0))
	}},
	{Name: "leaders/killed: another one leads what was persisted", Brokers: 3, Alone: true, Limit: 2 * time.Minute, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		x.Same("code of accepting", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
		x.Must(x.Target.Kill(ctx, s.Node))
		testkit.Eventually(ctx, x, "another broker leads", func() bool {
			leader := x.Leader(ctx, t, 0)
			return leader >= 0 && leader != s.Node
		})
		u := x.At(ctx, group, t, 0)
		testkit.Eventually(ctx, x, "it knows that it does", func() bool {
			u.Epoch = 0
			f := byhand.NewFetch(p)
			f.MaxRecords, f.MaxWait = 0, 0
			got, err := u.Fetch(ctx, f)
			x.Must(err)
			return got.Code == 0 && got.Parts[p].Code != kerr.NotLeaderForPartition.Code
		})
		x.Take(ctx, u, p, byhand.Acquired{First: 2, Last: 3, Count: 1})
		x.Must(x.Target.Restart(ctx, s.Node))
		x.Same("code of accepting the rest", x.Ack(ctx, u, p, 2, 3, accept), int16(0))
		x.recovered(ctx)
	}},
	{Name: "leaders/the coordinator is killed: members keep their epochs", Brokers: 3, Alone: true, Limit: 2 * time.Minute, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t := x.Topic(ctx, 2)
		m := x.Joined(ctx, group, 2, t.Name)
		epoch, coordinator := m.Epoch, x.Coordinator(ctx, group)
		x.Must(x.Target.Kill(ctx, coordinator))
		x.Must(x.Target.Restart(ctx, coordinator))
		testkit.Eventually(ctx, x, "a heartbeat is answered", func() bool {
			resp, err := m.Beat(ctx)
			return err == nil && resp.ErrorCode == 0
		})
		x.Same("epoch", m.Epoch, epoch)
		x.Same("state", x.describe(ctx, group).GroupState, "Stable")
		x.assigned(ctx, m, t.Part(0), t.Part(1))
		x.recovered(ctx)
	}},
	{Name: "leaders/the only broker is killed: it comes back with all that was persisted", Alone: true, Limit: 2 * time.Minute, Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 5)
		m, p := x.Joined(ctx, group, 1, t.Name), t.Part(0)
		epoch, s := m.Epoch, m.Session(x.Leader(ctx, t, 0))
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 4, Count: 1})
		x.Same("code", x.ackAll(ctx, s, p, byhand.Ack{First: 0, Last: 0, Types: []int8{accept}}, byhand.Ack{First: 1, Last: 1, Types: []int8{release}}), int16(0))
		x.Must(x.Target.Kill(ctx, s.Node))
		x.Must(x.Target.Restart(ctx, s.Node))
		testkit.Eventually(ctx, x, "a heartbeat is answered", func() bool {
			resp, err := m.Beat(ctx)
			return err == nil && resp.ErrorCode == 0
		})
		x.Same("epoch", m.Epoch, epoch)
		testkit.Eventually(ctx, x, "a fetch is answered", func() bool { // not on a connection of before
			_, err := s.Fetch(ctx, byhand.NewFetch())
			return err == nil
		})
		x.refused(ctx, s, "the session of before", kerr.ShareSessionNotFound.Code)
		s.Epoch = 0
		x.Find(ctx, t.Name, 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 2}, byhand.Acquired{First: 2, Last: 4, Count: 1})
		x.Same("code of the rest", x.Ack(ctx, s, p, 1, 4, accept), int16(0))
		x.TakeNone(ctx, s, p)
	}},
}

// moveLeader gives partition 0 of a topic a leader that it has not had, and gives
// that broker.
func (x *X) moveLeader(ctx context.Context, t Topic) int32 {
	x.Helper()
	nodes := x.Target.Nodes()
	to := nodes[(slices.Index(nodes, x.Leader(ctx, t, 0))+1)%len(nodes)]
	x.moveLeaderTo(ctx, t, to)
	return to
}

// moveLeaderTo makes a broker the only replica of partition 0 of a topic, and
// waits until it leads.
func (x *X) moveLeaderTo(ctx context.Context, t Topic, to int32) {
	x.Helper()
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(t.Name, 0, []int32{to})
	resps, err := x.Adm.AlterPartitionAssignments(ctx, req)
	x.Must(err)
	x.Must(resps.Error())
	testkit.Eventually(ctx, x, "the leader has moved and serves", func() bool {
		if x.Leader(ctx, t, 0) != to {
			return false
		}
		ends, err := x.Adm.ListEndOffsets(ctx, t.Name)
		return err == nil && ends.Error() == nil
	})
}

// recovered waits until every broker serves again, for the cases that follow.
func (x *X) recovered(ctx context.Context) {
	x.Helper()
	testkit.Eventually(ctx, x, "all partitions of a new topic have leaders, all brokers among them", func() bool {
		m, err := metadataRequest().RequestWith(ctx, x.Client)
		return err == nil && len(m.Brokers) == len(x.Target.Nodes())
	})
	x.Topic(ctx, 3)
}
