package topic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// scans is how often a scan begins anew because records that it was to read were
// deleted meanwhile. Truncation runs about once a minute.
const scans = 5

// errTruncated: the log's start passed the reader.
var errTruncated = errors.New("records were deleted while they were read")

// Scan reads all that the ledger topic of a group holds now, of transactions that
// are open or aborted as well, and control records, which kgo marks so: each
// partition in order, one record at a time. Where truncation overtakes it, or a
// leader is not there yet, it begins anew; fresh gives what to call for each record
// of one try.
func Scan(ctx context.Context, co *core.Cluster, group string, fresh func() func(*kgo.Record) error) error {
	overtaken := 0
	for began := time.Now(); ; {
		err := scan(ctx, co, group, fresh())
		switch {
		case errors.Is(err, errTruncated) && overtaken < scans:
			overtaken++
			continue
		case kerr.IsRetriable(err) && time.Since(began) < newFor && lapse.For(ctx, scanAgain):
			continue
		}
		return Failed("Fetch", group, "Read on topic "+Name(group), err)
	}
}

// newFor is how long a scan is tried again while leaders do not know of partitions,
// though metadata has them: of a topic that is new, or leaders that move.
const newFor = 10 * time.Second

// scanAgain is how long it waits before that.
const scanAgain = 100 * time.Millisecond

func scan(ctx context.Context, co *core.Cluster, group string, see func(*kgo.Record) error) error {
	name := Name(group)
	cl, err := co.NewClient(kgo.KeepControlRecords(), kgo.FetchIsolationLevel(kgo.ReadUncommitted()), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	if err != nil {
		return err
	}
	defer cl.Close()
	from, left, err := bounds(ctx, kadm.NewClient(cl), name)
	if err != nil || len(left) == 0 {
		return err
	}
	cl.AddConsumePartitions(map[string]map[int32]kgo.Offset{name: from})
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		for _, f := range fetches.Errors() {
			if errors.Is(f.Err, kerr.OffsetOutOfRange) {
				return errTruncated
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fmt.Errorf("partition %d: %w", f.Partition, f.Err)
		}
		for it := fetches.RecordIter(); !it.Done(); {
			r := it.Next()
			end, reading := left[r.Partition]
			if !reading {
				continue // of after the end
			}
			if err := see(r); err != nil {
				return fmt.Errorf("partition %d, offset %d: %w", r.Partition, r.Offset, err)
			}
			if r.Offset+1 >= end {
				delete(left, r.Partition)
			}
		}
	}
	return nil
}

// bounds are where to begin and where to end, of the partitions that hold
// something.
func bounds(ctx context.Context, adm *kadm.Client, name string) (from map[int32]kgo.Offset, ends map[int32]int64, err error) {
	starts, err := adm.ListStartOffsets(ctx, name)
	if err == nil {
		err = starts.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("start of topic %s: %w", name, err)
	}
	listed, err := adm.ListEndOffsets(ctx, name)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("end of topic %s: %w", name, err)
	}
	from, ends = make(map[int32]kgo.Offset), make(map[int32]int64)
	listed.Each(func(end kadm.ListedOffset) {
		if start, ok := starts.Lookup(name, end.Partition); ok && start.Offset < end.Offset {
			from[end.Partition], ends[end.Partition] = kgo.NewOffset().At(start.Offset), end.Offset
		}
	})
	return from, ends, nil
}
