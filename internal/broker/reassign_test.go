package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader that is none of the new replicas gives way to the first of them.
func TestReassignmentMovesTheLeader(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 1}})
	cl := client(t, c)
	for _, step := range []struct {
		topic    string
		replicas []int32
		code     int16
		leader   int32
	}{
		{"in", []int32{2, 1}, 0, 2},
		{"in", []int32{0, 2}, 0, 2}, // it is among them
		{"in", []int32{0}, 0, 0},
		{"in", []int32{7}, codeInvalidReplicas, 0},
		{"in", []int32{}, codeInvalidReplicas, 0},
		{"none", []int32{1}, 3, 0},
	} {
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Replicas = step.replicas
		rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		rt.Topic, rt.Partitions = step.topic, append(rt.Partitions, p)
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.Topics = append(req.Topics, rt)
		resp := ask[*kmsg.AlterPartitionAssignmentsResponse](ctx, t, cl, req)
		if code := resp.Topics[0].Partitions[0].ErrorCode; resp.ErrorCode != 0 || code != step.code {
			t.Errorf("%s to %v: codes %d and %d, want 0 and %d", step.topic, step.replicas, resp.ErrorCode, code, step.code)
		}
		if leader := c.Leader("in", 0); leader != step.leader {
			t.Errorf("%s to %v: leader %d, want %d", step.topic, step.replicas, leader, step.leader)
		}
	}
}
