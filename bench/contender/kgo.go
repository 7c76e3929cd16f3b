package contender

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// kgoShare is kgo's share consumer, used as its documentation has it: a poll accepts
// what the one before gave.
func kgoShare(ctx context.Context, j Job, w *watch) error {
	var mu sync.Mutex
	var refused error
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(j.Seeds, ",")...), kgo.ShareGroup(j.Group), kgo.ConsumeTopics(j.Topic),
		kgo.ShareAckCallback(func(_ *kgo.Client, rs kgo.ShareAckResults) {
			if err := rs.Error(); err != nil {
				mu.Lock()
				defer mu.Unlock()
				refused = errors.Join(refused, err)
			}
		}),
	}
	if j.Fetch > 0 {
		opts = append(opts, kgo.ShareMaxRecords(int32(j.Fetch)))
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for w.report.Records < j.Records {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		var bytes int64
		var records int
		fs.EachRecord(func(r *kgo.Record) {
			bytes += int64(len(r.Value))
			records++
		})
		w.polled(records, bytes)
	}
	cl.MarkAcks(kgo.AckAccept) // what the last poll gave
	if err := cl.FlushAcks(ctx); err != nil {
		return err
	}
	w.acknowledged()
	cl.LeaveGroup()
	mu.Lock()
	defer mu.Unlock()
	return refused
}
