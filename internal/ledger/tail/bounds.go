package tail

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// bounds of a partition's log: its start, and the high watermark.
type bounds struct{ start, end int64 }

// bounds asks the leaders of these partitions, and no other broker: one that
// does not answer holds up nobody else. An error joins those of all partitions;
// what is known comes with it.
func (l *Ledger) bounds(ctx context.Context, partitions ...int32) (map[int32]bounds, error) {
	// The start first: what is deleted in between can only make it too low.
	starts, err := l.list(ctx, earliest, partitions)
	ends, also := l.list(ctx, latest, slices.Collect(maps.Keys(starts)))
	out := make(map[int32]bounds, len(ends))
	for n, end := range ends {
		out[n] = bounds{starts[n], end}
	}
	if err = errors.Join(err, also); err != nil {
		return out, fmt.Errorf("asking where the log of topic %s begins and ends: %w", l.topic, err)
	}
	return out, nil
}

// What ListOffsets takes for a time.
const (
	latest   = -1
	earliest = -2
)

func (l *Ledger) list(ctx context.Context, at int64, partitions []int32) (map[int32]int64, error) {
	if len(partitions) == 0 {
		return nil, nil
	}
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = l.topic
	missing := make(map[int32]bool, len(partitions))
	for _, n := range partitions {
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Partition, rp.Timestamp = n, at
		rt.Partitions = append(rt.Partitions, rp)
		missing[n] = true
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Topics = append(req.Topics, rt)
	var errs []error
	out := make(map[int32]int64, len(partitions))
	for _, shard := range l.client.RequestSharded(ctx, req) {
		if shard.Err != nil {
			errs = append(errs, shard.Err)
			continue
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					errs = append(errs, fmt.Errorf("partition %d: %w", p.Partition, err))
					continue
				}
				out[p.Partition] = p.Offset
				delete(missing, p.Partition)
			}
		}
	}
	if len(errs) == 0 && len(missing) > 0 {
		errs = append(errs, fmt.Errorf("partitions %v are not answered", slices.Sorted(maps.Keys(missing))))
	}
	return out, errors.Join(errs...)
}

// upTo are the partitions from one to below another.
func upTo(from, to int) (out []int32) {
	for n := from; n < to; n++ {
		out = append(out, int32(n))
	}
	return out
}
