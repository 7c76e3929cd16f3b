package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin is what admin clients see of share groups.
var admin = []Case{
	{Name: "admin/list groups by type and state", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 1)
		empty := x.Holder(ctx, x.Group(ctx), h.topic).left(ctx)
		classic := x.Fresh("cg")
		x.commits(ctx, classic, h.topic, 0)
		ours := []string{h.group, empty.group, classic}
		for _, c := range []struct {
			what          string
			types, states []string
			want          []string
		}{
			{"all", nil, nil, []string{h.group + " share Stable share", empty.group + " share Empty share", classic + " classic Empty "}},
			{"share", []string{"share"}, nil, []string{h.group + " share Stable share", empty.group + " share Empty share"}},
			{"classic", []string{"classic"}, nil, []string{classic + " classic Empty "}},
			{"stable", nil, []string{"Stable"}, []string{h.group + " share Stable share"}},
			{"empty share", []string{"share"}, []string{"Empty"}, []string{empty.group + " share Empty share"}},
			{"whatever case", []string{"SHARE"}, []string{"STABLE"}, []string{h.group + " share Stable share"}},
			{"dead", nil, []string{"Dead"}, nil},
		} {
			slices.Sort(c.want)
			x.Same(c.what, x.listGroups(ctx, ours, c.types, c.states), c.want)
		}
	}},
	{Name: "admin/describe a group", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 1)
		g := x.describe(ctx, h.group)
		x.Same("group", []any{g.ErrorCode, g.GroupState, g.Assignor, len(g.Members)}, []any{int16(0), "Stable", "simple", 1})
		x.Same("epochs", g.GroupEpoch == g.AssignmentEpoch && g.GroupEpoch == h.m.Epoch, true)
		m := g.Members[0]
		x.Same("member", []any{m.MemberID, m.MemberEpoch, m.SubscribedTopicNames, m.RackID == nil}, []any{h.m.ID, h.m.Epoch, []string{h.topic.Name}, true})
		var assigned []any
		for _, tp := range m.Assignment.TopicPartitions {
			assigned = append(assigned, tp.Topic, tp.TopicID, tp.Partitions)
		}
		x.Same("assignment", assigned, []any{h.topic.Name, h.topic.ID, []int32{0}})
		h.left(ctx)
		g = x.describe(ctx, h.group)
		x.Same("empty", []any{g.ErrorCode, g.GroupState, len(g.Members)}, []any{int16(0), "Empty", 0})
	}},
	{Name: "admin/describe what is not there", Run: func(ctx context.Context, x *X) {
		g := x.describe(ctx, x.Fresh("nobody"))
		x.Same("group", []any{g.ErrorCode, g.GroupState}, []any{int16(codeGroupIDNotFound), ""})
	}},
	{Name: "admin/delete groups", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1)
		x.Same("a member is there", x.deleteGroup(ctx, h.group), int16(codeNonEmptyGroup))
		x.Same("accept", h.ack(ctx, "0:1"), int16(0))
		h.left(ctx)
		x.Same("empty", x.deleteGroup(ctx, h.group), int16(0))
		x.Same("once more", x.deleteGroup(ctx, h.group), int16(codeGroupIDNotFound))
		testkit.Eventually(ctx, x, "its offsets are gone", func() bool { return h.offsets(ctx).Start == -1 })
		x.Same("not listed", x.listGroups(ctx, []string{h.group}, nil, nil), []string(nil))
	}},
	{Name: "admin/delete records, and again", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.Same("to the end of an empty log", x.trim(ctx, t, 0, -1), trimmed{0, 0})
		x.Feed(ctx, t, 0, 10)
		for _, step := range []struct {
			partition int32
			to        int64
			want      trimmed
		}{
			{0, 5, trimmed{0, 5}},
			{0, 3, trimmed{0, 5}}, // done already
			{0, 5, trimmed{0, 5}},
			{0, 11, trimmed{kerr.OffsetOutOfRange.Code, -1}},
			{0, -2, trimmed{kerr.OffsetOutOfRange.Code, -1}},
			{0, -1, trimmed{0, 10}},
			{0, 0, trimmed{0, 10}},
			{7, 0, trimmed{kerr.UnknownTopicOrPartition.Code, -1}},
		} {
			x.Same(fmt.Sprintf("partition %d to %d", step.partition, step.to), x.trim(ctx, t, step.partition, step.to), step.want)
		}
	}},
	{Name: "admin/topics are made for who asks for that", Run: func(ctx context.Context, x *X) {
		asks := func(name string, allow bool) {
			req := kmsg.NewPtrMetadataRequest()
			req.Topics, req.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{{Topic: &name}}, allow
			_, err := req.RequestWith(ctx, x.Client)
			x.Must(err)
		}
		made, not := x.Fresh("t"), x.Fresh("t")
		asks(not, false)
		asks(made, true)
		x.Find(ctx, made, 1)
		topics, err := x.Adm.ListTopics(ctx, not)
		x.Must(err)
		x.Same("not asked to", errors.Is(topics[not].Err, kerr.UnknownTopicOrPartition), true)
	}},
}

// trimmed is a partition's answer to DeleteRecords.
type trimmed struct {
	code int16
	low  int64
}

// trim sends DeleteRecords to the leader of partition 0.
func (x *X) trim(ctx context.Context, t Topic, partition int32, to int64) trimmed {
	x.Helper()
	req := kmsg.NewPtrDeleteRecordsRequest()
	req.TimeoutMillis = 10_000
	req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: t.Name, Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: partition, Offset: to}}}}
	kresp, err := x.Client.Broker(int(x.Leader(ctx, t, 0))).RetriableRequest(ctx, req)
	x.Must(err)
	p := kresp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
	return trimmed{p.ErrorCode, p.LowWatermark}
}

// listGroups gives those of some groups that a list has, as "id type state
// protocol".
func (x *X) listGroups(ctx context.Context, some, types, states []string) (out []string) {
	x.Helper()
	for _, node := range x.Target.Nodes() {
		req := kmsg.NewPtrListGroupsRequest()
		req.TypesFilter, req.StatesFilter = types, states
		kresp, err := x.Client.Broker(int(node)).RetriableRequest(ctx, req)
		x.Must(err)
		for _, g := range kresp.(*kmsg.ListGroupsResponse).Groups {
			if slices.Contains(some, g.Group) {
				out = append(out, g.Group+" "+g.GroupType+" "+g.GroupState+" "+g.ProtocolType)
			}
		}
	}
	slices.Sort(out)
	return out
}
