package broker

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Partitions is how many partitions a topic has; 0 if it does not exist.
func (c *Cluster) Partitions(topic string) int32 {
	return int32(len(c.kf.PartitionInfos(topic)))
}

// Bounds are the offsets of a partition's log.
func (c *Cluster) Bounds(topic string, partition int32) (share.Bounds, error) {
	return logs{c}.Bounds(context.Background(), topic, partition)
}

// chunkBytes is how much of a log is read at once, at the least one batch.
const chunkBytes = 1 << 20

// walk reads the log of a partition from its start up to end, piece by piece.
// see is told the offset it is at and says where the next piece starts.
func (c *Cluster) walk(ctx context.Context, topic string, partition int32, start, end int64, committed bool, see func(at int64, piece share.Chunk) (next int64, err error)) error {
	for at := start; at < end; {
		piece, err := logs{c}.Read(ctx, topic, partition, at, chunkBytes, committed)
		if err == nil {
			var next int64
			if next, err = see(at, piece); err == nil && next <= at {
				err = fmt.Errorf("no whole batch in %d bytes", len(piece.Records))
			}
			at = next
		}
		if err != nil {
			return fmt.Errorf("broker: log %s-%d: %w", topic, partition, err)
		}
	}
	return nil
}

// Committed gives the records of a topic that a read_committed reader sees now,
// by partition and offset. It reads the logs themselves: no client takes part.
func (c *Cluster) Committed(ctx context.Context, topic string) ([]*kgo.Record, error) {
	var out []*kgo.Record
	unpack := kgo.DefaultDecompressor()
	for p := range c.Partitions(topic) {
		bounds, err := c.Bounds(topic, p)
		if err != nil {
			return nil, fmt.Errorf("broker: log %s-%d: %w", topic, p, err)
		}
		err = c.walk(ctx, topic, p, bounds.Start, bounds.LastStable, true, func(at int64, piece share.Chunk) (int64, error) {
			raw := kmsg.NewFetchResponseTopicPartition()
			raw.Partition, raw.RecordBatches = p, piece.Records
			raw.HighWatermark, raw.LastStableOffset, raw.LogStartOffset = piece.Bounds.End, piece.Bounds.LastStable, piece.Bounds.Start
			for _, a := range piece.Aborted {
				raw.AbortedTransactions = append(raw.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
			}
			got, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
				Topic: topic, Partition: p, Offset: at, IsolationLevel: kgo.ReadCommitted(),
			}, &raw, unpack, nil)
			for _, r := range got.Records {
				if r.Offset < bounds.LastStable { // the piece itself was not cut there
					out = append(out, r)
				}
			}
			return next, got.Err
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TopicName is the name of a topic; empty if it does not exist.
func (c *Cluster) TopicName(id [16]byte) string {
	if t := c.kf.TopicIDInfo(id); t != nil {
		return t.Topic
	}
	return ""
}
