package conformance

import (
	"context"
	"fmt"
	"maps"
	"strings"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// membership is joining, staying and leaving (KIP-932, ShareGroupHeartbeat).
var membership = []Case{
	{Name: "membership/the first answer assigns nothing", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		m := x.Member(x.Group(ctx), t.Name)
		resp, err := m.Join(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("heartbeat interval", resp.HeartbeatIntervalMillis, int32(500))
		x.Same("member id", resp.MemberID, &m.ID)
		have, err := m.Settle(ctx, 2)
		x.Must(err)
		x.Same("partitions", have, map[byhand.Partition]bool{t.Part(0): true, t.Part(1): true})
	}},
	{Name: "membership/the heartbeat interval is a group config", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx, "share.heartbeat.interval.ms=700"), 1, t.Name)
		x.Same("heartbeat interval", x.beat(ctx, m).HeartbeatIntervalMillis, int32(700))
	}},
	{Name: "membership/an unchanged assignment is not told again", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		before := m.Epoch
		resp := x.beat(ctx, m)
		x.Same("assignment", byhand.Assigned(resp), map[byhand.Partition]bool(nil))
		x.Same("epoch", resp.MemberEpoch, before)
	}},
	{Name: "membership/who tells the subscription again is told the assignment", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		before := m.Epoch
		resp := x.subscribe(ctx, m, t.Name)
		x.Same("assignment", byhand.Assigned(resp), map[byhand.Partition]bool{t.Part(0): true})
		x.Same("epoch", resp.MemberEpoch, before)
	}},
	{Name: "membership/a member that is known joins again with epoch 0", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		before := m.Epoch
		resp, err := m.Join(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("epoch", resp.MemberEpoch, before)
		x.Same("assignment", byhand.Assigned(resp), map[byhand.Partition]bool{t.Part(0): true})
	}},
	{Name: "membership/the epoch before is accepted, older and newer ones are fenced", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		group := x.Group(ctx)
		m := x.Joined(ctx, group, 2, t.Name)
		first := m.Epoch
		second := x.moves(ctx, m, func() { x.Joined(ctx, group, 1, t.Name) })
		m.Epoch = first
		x.Same("epoch after a heartbeat at the one before", x.beat(ctx, m).MemberEpoch, second)
		third := x.moves(ctx, m, func() { x.join(ctx, x.Member(group, t.Name)) })
		for _, epoch := range []int32{first, third + 1} {
			m.Epoch = epoch
			resp, err := m.Beat(ctx)
			x.Must(err)
			x.Same(fmt.Sprintf("code at epoch %d of %d", epoch, third), resp.ErrorCode, kerr.FencedMemberEpoch.Code)
		}
		m.Epoch = third
		x.Same("epoch after that", x.beat(ctx, m).MemberEpoch, third)
	}},
	{Name: "membership/a fenced member joins again with its id", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		epoch := m.Epoch
		m.Epoch += 7
		resp, err := m.Beat(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.FencedMemberEpoch.Code)
		resp, err = m.Join(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("epoch", resp.MemberEpoch, epoch)
	}},
	{Name: "membership/an unknown member", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		x.Joined(ctx, group, 1, t.Name)
		stranger := x.Member(group, t.Name)
		stranger.Epoch = 1
		resp, err := stranger.Beat(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.UnknownMemberID.Code)
		resp, err = stranger.Leave(ctx)
		x.Must(err)
		x.Same("code of leaving", resp.ErrorCode, kerr.UnknownMemberID.Code)
	}},
	{Name: "membership/a group that does not exist", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Member(x.Fresh("g"), t.Name)
		m.Epoch = 1
		resp, err := m.Beat(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.GroupIDNotFound.Code)
		resp, err = m.Leave(ctx)
		x.Must(err)
		x.Same("code of leaving", resp.ErrorCode, kerr.GroupIDNotFound.Code)
	}},
	{Name: "membership/leave, and leave again", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		epoch := m.Epoch
		resp, err := m.Leave(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.Same("epoch", resp.MemberEpoch, int32(-1))
		x.Same("member id", resp.MemberID, &m.ID)
		x.Same("assignment", byhand.Assigned(resp), map[byhand.Partition]bool(nil))
		resp, err = m.Leave(ctx)
		x.Must(err)
		x.Same("code of the second", resp.ErrorCode, kerr.UnknownMemberID.Code)
		m.Epoch = epoch
		resp, err = m.Beat(ctx)
		x.Must(err)
		x.Same("code of a late heartbeat", resp.ErrorCode, kerr.UnknownMemberID.Code)
		_, err = m.Settle(ctx, 1) // the id may be used again
		x.Must(err)
	}},
	{Name: "membership/two members share the partitions", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 4)
		group := x.Group(ctx)
		a, b := x.Joined(ctx, group, 4, t.Name), x.Member(group, t.Name)
		both := x.disjoint(ctx, a, b, 2)
		x.Same("partitions of both", len(both), 4)
	}},
	{Name: "membership/who stays gets the partitions of who leaves", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 4)
		group := x.Group(ctx)
		a, b := x.Joined(ctx, group, 4, t.Name), x.Member(group, t.Name)
		x.disjoint(ctx, a, b, 2)
		_, err := b.Leave(ctx)
		x.Must(err)
		_, err = a.Settle(ctx, 4)
		x.Must(err)
	}},
	{Name: "membership/more members than partitions", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		for range 3 { // a share group gives one partition to many
			x.Joined(ctx, group, 1, t.Name)
		}
	}},
	{Name: "membership/a member's session times out", Run: func(ctx context.Context, x *X) {
		if !x.Target.Version().Since(4, 3) { // which takes no value below its default, whatever the broker's minimum
			code := x.AlterGroup(ctx, x.Fresh("g"), map[string]string{"share.session.timeout.ms": "2000"})
			x.Same("code of a short session", code, kerr.InvalidConfig.Code)
			return
		}
		t := x.Topic(ctx, 1)
		group := x.Group(ctx, "share.session.timeout.ms=2000")
		m := x.Joined(ctx, group, 1, t.Name)
		testkit.Eventually(ctx, x, "the group is empty", func() bool { return x.describe(ctx, group).GroupState == "Empty" })
		resp, err := m.Beat(ctx)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.UnknownMemberID.Code)
	}},
	{Name: "membership/a group is deleted only when it is empty", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		m := x.Joined(ctx, group, 1, t.Name)
		x.Same("code with a member", x.deleteGroup(ctx, group), kerr.NonEmptyGroup.Code)
		epoch := m.Epoch
		_, err := m.Leave(ctx)
		x.Must(err)
		x.Same("code without", x.deleteGroup(ctx, group), int16(0))
		x.Same("code when it is gone", x.deleteGroup(ctx, group), kerr.GroupIDNotFound.Code)
		m.Epoch = epoch
		resp, err := m.Beat(ctx)
		x.Must(err)
		x.Same("code of a heartbeat", resp.ErrorCode, kerr.GroupIDNotFound.Code)
		_, err = m.Settle(ctx, 1) // it begins anew
		x.Must(err)
	}},
	{Name: "membership/a topic is deleted and made again", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		_, err := x.Adm.DeleteTopic(ctx, t.Name)
		x.Must(err)
		x.assigned(ctx, m)
		again := x.Again(ctx, t.Name, 2)
		x.assigned(ctx, m, again.Part(0), again.Part(1))
	}},
	{Name: "membership/partitions are added", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		_, err := x.Adm.CreatePartitions(ctx, 2, t.Name)
		x.Must(err)
		x.Find(ctx, t.Name, 3)
		x.assigned(ctx, m, t.Part(0), t.Part(1), t.Part(2))
	}},
	{Name: "membership/the subscription changes", Run: func(ctx context.Context, x *X) {
		a, b := x.Topic(ctx, 1), x.Topic(ctx, 2)
		m := x.Joined(ctx, x.Group(ctx), 1, a.Name)
		x.Same("code", x.subscribe(ctx, m, a.Name, b.Name).ErrorCode, int16(0))
		x.assigned(ctx, m, a.Part(0), b.Part(0), b.Part(1))
		x.Same("code", x.subscribe(ctx, m, b.Name).ErrorCode, int16(0))
		x.assigned(ctx, m, b.Part(0), b.Part(1))
	}},
	{Name: "membership/a member ends its subscription and stays", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		m := x.Joined(ctx, x.Group(ctx), 1, t.Name)
		x.Same("code", x.subscribe(ctx, m).ErrorCode, int16(0))
		x.assigned(ctx, m)
	}},
	{Name: "membership/a topic that does not exist yet", Run: func(ctx context.Context, x *X) {
		name := x.Fresh("t")
		m := x.Member(x.Group(ctx), name)
		resp := x.join(ctx, m)
		x.Same("assignment", byhand.Assigned(resp), map[byhand.Partition]bool{})
		t := x.Again(ctx, name, 1)
		x.assigned(ctx, m, t.Part(0))
	}},
	{Name: "membership/one topic twice in a subscription", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 2)
		x.Joined(ctx, x.Group(ctx), 2, t.Name, t.Name)
	}},
	{Name: "membership/members with different subscriptions", Run: func(ctx context.Context, x *X) {
		a, b := x.Topic(ctx, 1), x.Topic(ctx, 1)
		group := x.Group(ctx)
		m, n := x.Joined(ctx, group, 1, a.Name), x.Joined(ctx, group, 1, b.Name)
		x.assigned(ctx, m, a.Part(0))
		x.assigned(ctx, n, b.Part(0))
	}},
	{Name: "membership/a rack is told once and remembered", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		m := x.Member(group, t.Name)
		rack := "rack-1"
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.RackID, req.SubscribedTopicNames = &rack, m.Topics
		resp, err := m.Heartbeat(ctx, req)
		x.Must(err)
		x.Same("code", resp.ErrorCode, int16(0))
		x.beat(ctx, m)
		members := x.describe(ctx, group).Members
		x.Same("members", len(members), 1)
		x.Same("rack", members[0].RackID, &rack)
	}},
	{Name: "membership/what a heartbeat must have", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		blank, id := "", strings.Repeat("i", 36)
		for _, bad := range []struct {
			what          string
			group, member string
			epoch         int32
			rack          *string
			topics        []string
			code          int16
		}{
			{"no group id", "", id, 0, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"a blank group id", " ", id, 0, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"no member id", group, "", 0, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"a blank member id", group, " ", 0, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"a member id of 37 characters", group, id + "i", 0, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"epoch -2", group, id, -2, nil, []string{t.Name}, kerr.InvalidRequest.Code},
			{"an empty rack", group, id, 0, &blank, []string{t.Name}, kerr.InvalidRequest.Code},
			{"no subscription", group, id, 0, nil, nil, kerr.InvalidRequest.Code},
			{"an empty subscription", group, id, 0, nil, []string{}, kerr.InvalidRequest.Code},
			{"all of it", group, id, 0, nil, []string{t.Name}, 0},
		} {
			req := kmsg.NewPtrShareGroupHeartbeatRequest()
			req.GroupID, req.MemberID, req.MemberEpoch, req.RackID, req.SubscribedTopicNames = bad.group, bad.member, bad.epoch, bad.rack, bad.topics
			kresp, err := x.Client.Broker(int(x.Target.Nodes()[0])).Request(ctx, req)
			x.Must(err)
			x.Same("code with "+bad.what, kresp.(*kmsg.ShareGroupHeartbeatResponse).ErrorCode, bad.code)
		}
	}},
	{Name: "membership/the group id of a consumer group", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		x.Same("code of the commit", x.commitOffset(ctx, group, t), int16(0))
		resp, err := x.Member(group, t.Name).Join(ctx)
		x.Must(err)
		x.Same("code of joining", resp.ErrorCode, kerr.GroupIDNotFound.Code)
	}},
	{Name: "membership/a consumer group with the id of a share group", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		x.Joined(ctx, group, 1, t.Name)
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, "consumer", 10000, 10000
		proto := kmsg.NewJoinGroupRequestProtocol()
		proto.Name, proto.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
		req.Protocols = append(req.Protocols, proto)
		resp, err := req.RequestWith(ctx, x.Client)
		x.Must(err)
		x.Same("code", resp.ErrorCode, kerr.InconsistentGroupProtocol.Code)
		newer := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		newer.Group, newer.MemberID, newer.SubscribedTopicNames = group, x.Fresh("m"), []string{t.Name}
		newer.RebalanceTimeoutMillis, newer.Topics = 10000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		beat, err := newer.RequestWith(ctx, x.Client)
		x.Must(err)
		x.Same("code of the newer protocol", beat.ErrorCode, kerr.GroupIDNotFound.Code)
		x.Same("code of a commit", x.commitOffset(ctx, group, t), kerr.GroupIDNotFound.Code)
	}},
	{Name: "membership/200 members are the most", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		m := x.Member(group, t.Name)
		x.join(ctx, m)
		join := func(id string) int16 {
			req := kmsg.NewPtrShareGroupHeartbeatRequest()
			req.MemberID, req.SubscribedTopicNames = id, m.Topics
			resp, err := m.Heartbeat(ctx, req)
			x.Must(err)
			return resp.ErrorCode
		}
		for i := range 199 {
			if code := join(fmt.Sprint("member-", i)); code != 0 {
				x.Fatalf("member %d refused: code %d", i+2, code)
			}
		}
		x.Same("code of one more", join("one-more"), kerr.GroupMaxSizeReached.Code)
		x.Same("code of one that is in", join("member-7"), int16(0))
	}},
	{Name: "membership/another broker is not the coordinator", Brokers: 3, Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		group := x.Group(ctx)
		m := x.Joined(ctx, group, 1, t.Name)
		coordinator := x.Coordinator(ctx, group)
		for _, node := range x.Target.Nodes() {
			req := kmsg.NewPtrShareGroupHeartbeatRequest()
			req.GroupID, req.MemberID, req.MemberEpoch = group, m.ID, m.Epoch
			kresp, err := x.Client.Broker(int(node)).Request(ctx, req)
			x.Must(err)
			want := kerr.NotCoordinator.Code
			if node == coordinator {
				want = 0
			}
			x.Same(fmt.Sprintf("code at broker %d, coordinator %d", node, coordinator), kresp.(*kmsg.ShareGroupHeartbeatResponse).ErrorCode, want)
		}
	}},
}

// join is a first heartbeat, which must work.
func (x *X) join(ctx context.Context, m *byhand.Member) *kmsg.ShareGroupHeartbeatResponse {
	x.Helper()
	resp, err := m.Join(ctx)
	x.Must(err)
	if resp.ErrorCode != 0 {
		x.Fatalf("not joined: code %d", resp.ErrorCode)
	}
	return resp
}

// beat is a heartbeat that changes nothing and must work.
func (x *X) beat(ctx context.Context, m *byhand.Member) *kmsg.ShareGroupHeartbeatResponse {
	x.Helper()
	resp, err := m.Beat(ctx)
	x.Must(err)
	if resp.ErrorCode != 0 {
		x.Fatalf("heartbeat refused: code %d", resp.ErrorCode)
	}
	return resp
}

// subscribe is a heartbeat with a subscription, which is the member's from now on.
func (x *X) subscribe(ctx context.Context, m *byhand.Member, topics ...string) *kmsg.ShareGroupHeartbeatResponse {
	x.Helper()
	m.Topics = append([]string{}, topics...) // never nil: that would tell nothing
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.MemberEpoch, req.SubscribedTopicNames = m.Epoch, m.Topics
	resp, err := m.Heartbeat(ctx, req)
	x.Must(err)
	return resp
}

// commitOffset commits an offset as a consumer without a membership and gives the
// code.
func (x *X) commitOffset(ctx context.Context, group string, t Topic) int16 {
	x.Helper()
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	rt.Partitions = append(rt.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	return resp.Topics[0].Partitions[0].ErrorCode
}

// moves waits for the epoch that the member gets through what do does.
func (x *X) moves(ctx context.Context, m *byhand.Member, do func()) int32 {
	x.Helper()
	before := m.Epoch
	do()
	testkit.Eventually(ctx, x, fmt.Sprintf("the member's epoch moves on from %d", before), func() bool { return x.beat(ctx, m).MemberEpoch > before })
	return m.Epoch
}

// assigned beats until exactly those partitions are the member's.
func (x *X) assigned(ctx context.Context, m *byhand.Member, parts ...byhand.Partition) {
	x.Helper()
	want := make(map[byhand.Partition]bool)
	for _, p := range parts {
		want[p] = true
	}
	var have map[byhand.Partition]bool
	for have == nil || !maps.Equal(have, want) {
		if ctx.Err() != nil {
			x.Fatalf("assigned %v, want %v", have, want)
		}
		have = byhand.Assigned(x.subscribe(ctx, m, m.Topics...)) // always told to who tells the subscription
	}
}

// disjoint beats for both until each has each partitions, none of them the
// other's, and gives all.
func (x *X) disjoint(ctx context.Context, a, b *byhand.Member, each int) map[byhand.Partition]bool {
	x.Helper()
	have := make(map[*byhand.Member]map[byhand.Partition]bool)
	for _, m := range []*byhand.Member{a, b} {
		have[m] = byhand.Assigned(x.join(ctx, m))
	}
	all := make(map[byhand.Partition]bool)
	testkit.Eventually(ctx, x, fmt.Sprintf("each of two members has %d partitions of its own", each), func() bool {
		for m := range have {
			if now := byhand.Assigned(x.beat(ctx, m)); now != nil {
				have[m] = now
			}
		}
		clear(all)
		maps.Copy(all, have[a])
		maps.Copy(all, have[b])
		return len(have[a]) == each && len(have[b]) == each && len(all) == 2*each
	})
	return all
}

// describe is what the coordinator tells of a group. It asks again over a new
// connection where the one it had ended with a broker.
func (x *X) describe(ctx context.Context, group string) kmsg.ShareGroupDescribeResponseGroup {
	x.Helper()
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.GroupIDs = []string{group}
	var resp *kmsg.ShareGroupDescribeResponse
	testkit.Eventually(ctx, x, "the description of "+group+" is answered", func() bool {
		var err error
		resp, err = req.RequestWith(ctx, x.Client)
		return err == nil
	})
	if len(resp.Groups) != 1 {
		x.Fatalf("%d groups described, want 1", len(resp.Groups))
	}
	return resp.Groups[0]
}

// deleteGroup deletes a group and gives the code.
func (x *X) deleteGroup(ctx context.Context, group string) int16 {
	x.Helper()
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = []string{group}
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	return resp.Groups[0].ErrorCode
}

// Coordinator is the broker that coordinates a group now.
func (x *X) Coordinator(ctx context.Context, group string) int32 {
	x.Helper()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKeys = []string{group}
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	x.Must(kerr.ErrorForCode(resp.Coordinators[0].ErrorCode))
	return resp.Coordinators[0].NodeID
}

// Again creates a topic by name, also one that is being deleted, and waits for
// its leaders.
func (x *X) Again(ctx context.Context, name string, partitions int32) Topic {
	x.Helper()
	testkit.Eventually(ctx, x, "topic "+name+" can be created", func() bool {
		_, err := x.Adm.CreateTopic(ctx, partitions, -1, nil, name)
		return err == nil
	})
	return x.Find(ctx, name, partitions)
}
