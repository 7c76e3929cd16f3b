package conformance

import (
	"context"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of admin requests.
const (
	codeInvalidConfig   = 40
	codeNonEmptyGroup   = 68
	codeGroupIDNotFound = 69
)

// described is one partition of a DescribeShareGroupOffsets answer.
type described struct {
	Code  int16
	Start int64
	Lag   int64
}

// offsets describes the share partition now.
func (h *held) offsets(ctx context.Context) described {
	h.Helper()
	return h.Described(ctx, h.group, h.topic, 0)
}

// offsetsBecome waits until the share partition is described so.
func (h *held) offsetsBecome(ctx context.Context, start, lag int64) {
	h.Helper()
	want, last := described{0, start, lag}, described{}
	testkit.Eventually(ctx, h, fmt.Sprintf("start %d, lag %d", start, lag), func() bool {
		if now := h.offsets(ctx); now != last {
			last = now
			h.Logf("described: %+v", now)
		}
		return last == want
	})
}

// Described describes one share partition of a group that exists.
func (x *X) Described(ctx context.Context, group string, t Topic, partition int32) described {
	x.Helper()
	got, code := x.describeOffsets(ctx, x.Client, group, describeTopic(t.Name, partition))
	if code != 0 {
		x.Fatalf("describe offsets of %s: code %d", group, code)
	}
	return got[0]
}

func describeTopic(name string, partitions ...int32) []kmsg.DescribeShareGroupOffsetsRequestGroupTopic {
	rt := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	rt.Topic, rt.Partitions = name, partitions
	return []kmsg.DescribeShareGroupOffsetsRequestGroupTopic{rt}
}

// describeOffsets gives the partitions in the answer's order, and the group's
// code; no topics mean all.
func (x *X) describeOffsets(ctx context.Context, by *kgo.Client, group string, topics []kmsg.DescribeShareGroupOffsetsRequestGroupTopic) (out []described, code int16) {
	x.Helper()
	rg := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	rg.GroupID, rg.Topics = group, topics
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.Groups = append(req.Groups, rg)
	resp, err := req.RequestWith(ctx, by)
	x.Must(err)
	for _, t := range resp.Groups[0].Topics {
		for _, p := range t.Partitions {
			out = append(out, described{p.ErrorCode, p.StartOffset, p.Lag})
		}
	}
	return out, resp.Groups[0].ErrorCode
}

// alter sets the start of one partition and gives the codes of the answer and
// of the partition; the latter is 0 where the answer names none.
func (x *X) alter(ctx context.Context, group, topic string, partition int32, start int64) (codes [2]int16) {
	x.Helper()
	rp := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	rp.Partition, rp.StartOffset = partition, start
	rt := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID, req.Topics = group, append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	codes[0] = resp.ErrorCode
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			codes[1] = p.ErrorCode
		}
	}
	return codes
}

// forget deletes the offsets of a topic and gives the codes of the answer and of
// the topic.
func (x *X) forget(ctx context.Context, group, topic string) (codes [2]int16) {
	x.Helper()
	rt := kmsg.NewDeleteShareGroupOffsetsRequestTopic()
	rt.Topic = topic
	req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	req.GroupID, req.Topics = group, append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	codes[0] = resp.ErrorCode
	for _, t := range resp.Topics {
		codes[1] = t.ErrorCode
	}
	return codes
}

// left closes the session and leaves the group, which is empty then.
func (h *held) left(ctx context.Context) *held {
	h.Helper()
	if h.s.Epoch > 0 {
		_, err := h.s.CloseSession(ctx, nil)
		h.Must(err)
	}
	resp, err := h.m.Leave(ctx)
	h.Must(err)
	h.Same("code of leaving", resp.ErrorCode, int16(0))
	return h
}

// offsets is a share group's starts and lags by admin requests.
var offsets = []Case{
	{Name: "offsets/describe through a life", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 10)
		x.Same("before the first fetch", h.offsets(ctx), described{0, -1, -1})
		x.Same("acquired", h.first(ctx), "0..9x1")
		x.Same("acquired only", h.offsets(ctx), described{0, -1, -1})
		x.Same("accept in the middle", h.ack(ctx, "5..6:1"), int16(0))
		h.offsetsBecome(ctx, 0, 8)
		x.Same("reject at the start", h.ack(ctx, "0..3:3"), int16(0))
		h.offsetsBecome(ctx, 0, 4) // the start trails the last write, the lag does not
		x.Feed(ctx, h.topic, 0, 5)
		h.offsetsBecome(ctx, 0, 9)
		x.Same("release", h.ack(ctx, "4:2"), int16(0))
		h.offsetsBecome(ctx, 4, 9)
		x.Same("accept to the end", h.ack(ctx, "7..9:1"), int16(0))
		h.offsetsBecome(ctx, 4, 6)
		x.Same("the rest", h.again(ctx), "4..4x2 10..14x1")
		x.Same("accept all", h.ack(ctx, "4:1 10..14:1"), int16(0))
		h.offsetsBecome(ctx, 4, 0)
		h.left(ctx)
		x.Same("when the group is empty", h.offsets(ctx), described{0, 4, 0})
		x.Feed(ctx, h.topic, 0, 3)
		h.offsetsBecome(ctx, 4, 3)
	}},
	{Name: "offsets/describe counts control records", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		p.ends(ctx, true)
		h := x.Holder(ctx, x.Group(ctx), p.topic)
		x.Same("acquired", h.first(ctx), "0..1x1")
		x.Same("accept the record", h.ack(ctx, "0:1"), int16(0))
		h.offsetsBecome(ctx, 0, 1)
		x.Same("the marker is a gap", h.ack(ctx, "1:0"), int16(0))
		h.offsetsBecome(ctx, 1, 0)
	}},
	{Name: "offsets/describe without lag", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("accept", h.ack(ctx, "0..3:1"), int16(0))
		h.offsetsBecome(ctx, 0, 6)
		got, code := x.describeOffsets(ctx, x.AtMost(90, 0), h.group, describeTopic(h.topic.Name, 0))
		x.Same("code", code, int16(0))
		x.Same("version 0", got, []described{{0, 0, -1}})
	}},
	{Name: "offsets/describe all topics", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		got, code := x.describeOffsets(ctx, x.Client, h.group, nil)
		x.Same("before anything was written", []any{got, code}, []any{[]described{{0, -1, -1}}, int16(0)})
		x.Same("accept", h.ack(ctx, "0..3:1"), int16(0))
		h.offsetsBecome(ctx, 0, 6)
		got, code = x.describeOffsets(ctx, x.Client, h.group, nil)
		x.Same("after", []any{got, code}, []any{[]described{{0, 0, 6}}, int16(0)})
	}},
	{Name: "offsets/describe what is not there", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		got, code := x.describeOffsets(ctx, x.Client, h.group, describeTopic(x.Fresh("nothing"), 0, 1))
		x.Same("code", code, int16(0))
		x.Same("an unknown topic", got, []described{{0, -1, -1}, {0, -1, -1}})
		other := x.Topic(ctx, 1)
		got, code = x.describeOffsets(ctx, x.Client, h.group, describeTopic(other.Name, 0))
		x.Same("a topic that the group never had", []any{got, code}, []any{[]described{{0, -1, -1}}, int16(0)})
		got, code = x.describeOffsets(ctx, x.Client, x.Fresh("nobody"), describeTopic(h.topic.Name, 0))
		x.Same("one topic of no group", []any{got, code}, []any{[]described{{0, -1, -1}}, int16(0)})
		got, code = x.describeOffsets(ctx, x.Client, x.Fresh("nobody"), nil)
		x.Same("all topics of no group", []any{got, code}, []any{[]described(nil), int16(0)})
	}},
	{Name: "offsets/alter", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("release", h.ack(ctx, "0..9:2"), int16(0))
		x.Same("a member is there", x.alter(ctx, h.group, h.topic.Name, 0, 3), [2]int16{codeNonEmptyGroup, 0})
		h.left(ctx)
		x.Same("forward", x.alter(ctx, h.group, h.topic.Name, 0, 3), [2]int16{})
		h.offsetsBecome(ctx, 3, 7)
		next := x.Holder(ctx, h.group, h.topic)
		x.Differs("handed out next", staleLeader, next.first(ctx), "0..9x2", "3..9x1")
		next.fencedThen(ctx, "3..9", "3..9x1") // counts are new
		x.Same("accept", next.ack(ctx, "3..9:1"), int16(0))
		next.offsetsBecome(ctx, 3, 0)
		next.left(ctx)
		x.Same("back", x.alter(ctx, h.group, h.topic.Name, 0, 0), [2]int16{})
		h.offsetsBecome(ctx, 0, 10)
		x.Feed(ctx, h.topic, 0, 1)
		last := x.Holder(ctx, h.group, h.topic)
		x.Differs("handed out when it is set back", staleLeader, last.first(ctx), "10..10x1", "0..10x1")
		last.fencedThen(ctx, "10", "0..10x1")
	}},
	{Name: "offsets/alter what is not there", Run: func(ctx context.Context, x *X) {
		other := x.Topic(ctx, 1)
		h := x.Held(ctx, 10).left(ctx)
		x.Same("partition", x.alter(ctx, h.group, h.topic.Name, 9, 0), [2]int16{0, codeUnknownPartition})
		x.Same("topic", x.alter(ctx, h.group, x.Fresh("nothing"), 0, 0), [2]int16{0, codeUnknownPartition})
		x.Same("a topic that the group never had", x.alter(ctx, h.group, other.Name, 0, 0), [2]int16{})
		testkit.Eventually(ctx, x, "it has it now", func() bool { return x.Described(ctx, h.group, other, 0) == described{0, 0, 0} })
	}},
	{Name: "offsets/alter makes a group", Run: func(ctx context.Context, x *X) {
		t, group := x.Topic(ctx, 1), x.Group(ctx)
		x.Feed(ctx, t, 0, 10)
		x.Same("codes", x.alter(ctx, group, t.Name, 0, 4), [2]int16{})
		testkit.Eventually(ctx, x, "described", func() bool { return x.Described(ctx, group, t, 0) == described{0, 4, 6} })
		x.Same("acquired", x.Holder(ctx, group, t).first(ctx), "4..9x1")
	}},
	{Name: "offsets/alter beyond the end", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10).left(ctx)
		x.Same("codes", x.alter(ctx, h.group, h.topic.Name, 0, 15), [2]int16{})
		testkit.Eventually(ctx, x, "described", func() bool { return h.offsets(ctx).Start == 15 })
	}},
	{Name: "offsets/delete", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("accept", h.ack(ctx, "0..3:1"), int16(0))
		h.offsetsBecome(ctx, 0, 6)
		x.Same("a member is there", x.forget(ctx, h.group, h.topic.Name), [2]int16{codeNonEmptyGroup, 0})
		h.left(ctx)
		x.Same("codes", x.forget(ctx, h.group, h.topic.Name), [2]int16{})
		x.Same("described", h.offsets(ctx), described{0, -1, -1})
		x.Same("once more", x.forget(ctx, h.group, h.topic.Name), [2]int16{0, codeUnknownPartition})
		next := x.Holder(ctx, h.group, h.topic)
		x.Differs("handed out next", staleLeader, next.first(ctx), "4..9x2", "0..9x1")
		next.fencedThen(ctx, "4..9", "0..9x1")
	}},
	{Name: "offsets/delete what is not there", Run: func(ctx context.Context, x *X) {
		other := x.Topic(ctx, 1)
		h := x.Held(ctx, 10).left(ctx)
		x.Same("topic", x.forget(ctx, h.group, x.Fresh("nothing")), [2]int16{0, codeUnknownPartition})
		x.Same("group", x.forget(ctx, x.Fresh("nobody"), h.topic.Name), [2]int16{codeGroupIDNotFound, 0})
		x.Same("a topic that the group never had", x.forget(ctx, h.group, other.Name), [2]int16{0, codeUnknownPartition})
	}},
	{Name: "offsets/reset to the end by default", Run: func(ctx context.Context, x *X) {
		t, group := x.Topic(ctx, 1), x.Fresh("g")
		x.Feed(ctx, t, 0, 5)
		h := x.Holder(ctx, group, t)
		h.seen(ctx, t)
	}},
	{Name: "offsets/reset to the end", Run: func(ctx context.Context, x *X) {
		t, group := x.Topic(ctx, 1), x.Group(ctx, "share.auto.offset.reset=latest")
		x.Feed(ctx, t, 0, 5)
		x.Holder(ctx, group, t).seen(ctx, t)
	}},
	{Name: "offsets/reset by duration", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		now := time.Now()
		for i, age := range []time.Duration{72 * time.Hour, 50 * time.Hour, 26 * time.Hour, time.Hour, 0} {
			x.Must(x.Client.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Value: fmt.Append(nil, i), Timestamp: now.Add(-age)}).FirstErr())
		}
		for _, c := range []struct {
			reset string
			first int
		}{{"P1D", 3}, {"PT48H", 2}, {"P2DT10H", 1}, {"P30D", 0}} {
			h := x.Holder(ctx, x.Group(ctx, "share.auto.offset.reset=by_duration:"+c.reset), t)
			x.Same(c.reset, h.gather(ctx, 5-c.first), span(c.first, 4, 1))
		}
	}},
	{Name: "offsets/a later reset moves nothing", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("accept", h.ack(ctx, "0..3:1"), int16(0))
		x.GroupConfigs(ctx, h.group, "share.auto.offset.reset=latest")
		x.Same("release", h.ack(ctx, "4..9:2"), int16(0))
		x.Same("handed out", h.again(ctx), "4..9x2")
	}},
}

// staleLeader is why Kafka goes on with what an admin request took away.
const staleLeader = "Kafka's leader keeps the old state until its next write is fenced, the embedded broker forgets at once"

// fencedThen acknowledges what a leader of Kafka handed out from its old state,
// which is refused, and then gets want.
func (h *held) fencedThen(ctx context.Context, old, want string) {
	h.Helper()
	if h.Target.Embedded() {
		return
	}
	h.Same("acknowledge what was old", h.ack(ctx, old+":1"), int16(codeNotLeader))
	h.Same("handed out then", h.first(ctx), want)
}

// seen feeds record by record until the holder, whose group begins at the end,
// gets one, which must be none of those that were there before.
func (h *held) seen(ctx context.Context, t Topic) {
	h.Helper()
	have, err := h.Adm.ListEndOffsets(ctx, t.Name)
	h.Must(err)
	end, _ := have.Lookup(t.Name, 0)
	var got string
	for got == "" {
		got = h.again(ctx)
		h.Feed(ctx, t, 0, 1)
	}
	if first := parseAcquired(got)[0]; first.First < end.Offset || first.Count != 1 {
		h.Errorf("acquired %s, want nothing below %d", got, end.Offset)
	}
}
