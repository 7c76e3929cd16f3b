package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// watch tells progress once a second and returns when the group's coordinator
// says that its lag is 0 wherever something was fed. What members report plays
// no part in that. It fails if they make no progress.
func (p *pipeline) watch(ctx context.Context) error {
	k, err := p.cl.Client()
	if err != nil {
		return err
	}
	defer k.Close()
	adm := kadm.NewClient(k)
	ask, tell := time.NewTicker(50*time.Millisecond), time.NewTicker(time.Second)
	defer ask.Stop()
	defer tell.Stop()
	started := time.Now()
	moved, records := started, int64(0)
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tell.C:
			fmt.Fprintln(p.cfg.Stderr, p.progress(time.Since(started)))
		case <-ask.C:
			lag, err := lag(ctx, adm, p.input)
			if err != nil || lag == 0 {
				return err
			}
			if n := p.count.records.Load(); n != records {
				moved, records = time.Now(), n
			}
			if time.Since(moved) > p.stall {
				return fmt.Errorf("no transaction was committed for %v; %d of %d records are left", p.stall, lag, p.input)
			}
		}
	}
}

func (p *pipeline) progress(after time.Duration) string {
	n := p.count.records.Load()
	return fmt.Sprintf("%d of %d records, %d transactions, %d aborts, %.0f records/s", n, p.input, p.count.committed.Load(), p.count.aborted.Load(), float64(n)/after.Seconds())
}

// lag is how many of the records fed are not done for the group.
func lag(ctx context.Context, adm *kadm.Client, input int) (int64, error) {
	groups, err := adm.DescribeShareGroupOffsets(ctx, group)
	if err == nil {
		err = groups[group].Err
	}
	if err != nil && !errors.Is(err, kerr.GroupIDNotFound) { // nobody has joined yet
		return 0, fmt.Errorf("lag: %w", err)
	}
	left := int64(input)
	for _, o := range groups[group].Offsets[topics.Source] {
		if o.Err != nil {
			return 0, fmt.Errorf("lag of %s-%d: %w", topics.Source, o.Partition, o.Err)
		}
		if o.Lag >= 0 { // -1: not read yet, so all of it is left
			left -= fed(input, o.Partition) - o.Lag
		}
	}
	return left, nil
}

// fed is how many of the input's records feed gave to a partition.
func fed(input int, partition int32) int64 {
	return int64((input + partitions - 1 - int(partition)) / partitions)
}
