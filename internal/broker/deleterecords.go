package broker

import (
	"context"

	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyDeleteRecords = 21

	codeOffsetOutOfRange = 1
)

// deleteRecords has kfake move the start of logs. Two answers are Kafka's and
// not kfake's (measured): an offset below the start is reached already, so that
// asking twice is no failure, and a failure tells -1 for a low watermark.
func (c *Cluster) deleteRecords(ctx context.Context, conn *front.Conn, req *kmsg.DeleteRecordsRequest) (kmsg.Response, error) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			c.keepLog(t.Topic, p.Partition) // its end, which is nowhere else if nothing is left
		}
	}
	if err := c.durable(); err != nil {
		return nil, err
	}
	kresp, err := c.broker(conn.Node).Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.DeleteRecordsResponse)
	asked := make(map[led]int64)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			asked[led{topic: t.Topic, partition: p.Partition}] = p.Offset
		}
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if p.ErrorCode == 0 {
				c.keepLog(t.Topic, p.Partition)
				continue
			}
			p.LowWatermark = -1
			if p.ErrorCode != codeOffsetOutOfRange {
				continue
			}
			to := asked[led{topic: t.Topic, partition: p.Partition}]
			if log := c.kf.PartitionInfo(t.Topic, p.Partition); log != nil && 0 <= to && to < log.LogStartOffset {
				p.ErrorCode, p.LowWatermark = 0, log.LogStartOffset
			}
		}
	}
	return resp, nil
}
