package broker

import (
	"context"
	"slices"

	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyAlterAssignments = 45

	codeInvalidReplicas = 39
)

// alterAssignments gives partitions other replicas (KIP-455). There is one copy
// of each log here, so all that can be seen of it is the leader: where the
// present one is none of the new replicas, the first of these leads.
func (c *Cluster) alterAssignments(ctx context.Context, conn *front.Conn, req *kmsg.AlterPartitionAssignmentsRequest) (kmsg.Response, error) {
	kresp, err := c.broker(conn.Node).Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.AlterPartitionAssignmentsResponse)
	asked := make(map[led][]int32)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asked[led{topic: t.Topic, partition: p.Partition}] = p.Replicas
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			replicas := asked[led{topic: t.Topic, partition: p.Partition}]
			if p.ErrorCode != 0 || replicas == nil || resp.ErrorCode != 0 {
				continue
			}
			p.ErrorCode = c.reassign(t.Topic, p.Partition, replicas)
		}
	}
	return resp, nil
}

func (c *Cluster) reassign(topic string, partition int32, replicas []int32) int16 {
	nodes := int32(len(c.nodes()))
	if len(replicas) == 0 || slices.ContainsFunc(replicas, func(n int32) bool { return n < 0 || n >= nodes }) {
		return codeInvalidReplicas
	}
	if slices.Contains(replicas, c.Leader(topic, partition)) {
		return 0
	}
	if err := c.MoveLeader(topic, partition, replicas[0]); err != nil {
		c.cfg.Logger.Error("leader not moved", "topic", topic, "partition", partition, "err", err)
		return -1
	}
	return 0
}
