package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group id means one group of one type, whichever was first.
func TestGroupIDsOfOneType(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}})
	cl := client(t, c)
	commit := func(group string) int16 {
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic, rt.TopicID = "in", c.TopicID("in")
		rt.Partitions = append(rt.Partitions, kmsg.NewOffsetCommitRequestTopicPartition())
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation, req.Topics = group, -1, []kmsg.OffsetCommitRequestTopic{rt}
		return ask[*kmsg.OffsetCommitResponse](ctx, t, cl, req).Topics[0].Partitions[0].ErrorCode
	}
	share := func(group string) int16 {
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.GroupID, req.MemberID, req.SubscribedTopicNames = group, "m", []string{"in"}
		return ask[*kmsg.ShareGroupHeartbeatResponse](ctx, t, cl, req).ErrorCode
	}
	join := func(group string) int16 {
		proto := kmsg.NewJoinGroupRequestProtocol()
		proto.Name, proto.Metadata = "range", []byte{0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
		req := kmsg.NewPtrJoinGroupRequest()
		req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = group, "consumer", 10000, 10000
		req.Protocols = append(req.Protocols, proto)
		return ask[*kmsg.JoinGroupResponse](ctx, t, cl, req).ErrorCode
	}
	consumer := func(group string) int16 {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Group, req.MemberID, req.SubscribedTopicNames, req.RebalanceTimeoutMillis = group, "m", []string{"in"}, 10000
		req.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		return ask[*kmsg.ConsumerGroupHeartbeatResponse](ctx, t, cl, req).ErrorCode
	}
	const memberIDRequired = 79 // the answer to a good first JoinGroup
	for _, step := range []struct {
		what      string
		got, want int16
	}{
		{"offsets of a new group", commit("consumers"), 0},
		{"its name for a share group", share("consumers"), codeGroupIDNotFound},
		{"a share group", share("sharers"), 0},
		{"its name for a classic member", join("sharers"), codeInconsistentProtocol},
		{"its name for a consumer group's member", consumer("sharers"), codeGroupIDNotFound},
		{"its name for offsets", commit("sharers"), codeGroupIDNotFound},
		{"another name for a classic member", join("others"), memberIDRequired},
		{"another name for a consumer group's member", consumer("more"), 0},
	} {
		if step.got != step.want {
			t.Errorf("%s: code %d, want %d", step.what, step.got, step.want)
		}
	}
}
