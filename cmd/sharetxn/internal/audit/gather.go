package audit

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ReasonHeader is where a dead letter says why it was rejected.
const ReasonHeader = "reason"

func gather(ctx context.Context, cfg Config, cl *kgo.Client) (Facts, error) {
	adm := kadm.NewClient(cl)
	f := Facts{Records: make(map[string][]Record), Stable: make(map[string]bool), Lag: make(map[int32]Progress)}
	ends, err := adm.ListEndOffsets(ctx, cfg.Topics.all()...)
	if err != nil {
		return f, fmt.Errorf("high watermarks: %w", err)
	}
	stable, err := adm.ListCommittedOffsets(ctx, cfg.Topics.all()...)
	if err != nil {
		return f, fmt.Errorf("last stable offsets: %w", err)
	}
	for _, topic := range cfg.Topics.all() {
		f.Stable[topic] = true
		for _, e := range ends[topic] {
			if e.Err != nil {
				return f, fmt.Errorf("%s-%d: %w", topic, e.Partition, e.Err)
			}
			if s, ok := stable.Lookup(topic, e.Partition); !ok || s.Offset != e.Offset {
				f.Stable[topic] = false
			}
		}
		if f.Records[topic], err = read(ctx, cfg.Seeds, topic, stable); err != nil {
			return f, err
		}
	}
	if err := lag(ctx, cfg, cl, ends, f.Lag); err != nil {
		return f, err
	}
	txns, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return f, fmt.Errorf("transactions: %w", err)
	}
	for _, t := range txns {
		switch t.State {
		case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
			f.Open++
		}
	}
	return f, nil
}

// read gives all that a read_committed reader sees up to the last stable offset
// that was captured before. Markers and aborted records are not returned, so
// the end is told by position, not by count.
func read(ctx context.Context, seeds []string, topic string, until kadm.ListedOffsets) ([]Record, error) {
	offsets := make(map[int32]kgo.Offset)
	left := make(map[int32]int64)
	for _, o := range until[topic] {
		if o.Offset > 0 {
			offsets[o.Partition] = kgo.NewOffset().At(0)
			left[o.Partition] = o.Offset
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []Record
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading %s: %w; %d partitions not read to the end", topic, err, len(left))
		}
		if errs := fs.Errors(); len(errs) > 0 {
			return nil, fmt.Errorf("reading %s-%d: %w", topic, errs[0].Partition, errs[0].Err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			rec := Record{Partition: r.Partition, Value: string(r.Value)}
			for _, h := range r.Headers {
				if h.Key == ReasonHeader {
					rec.Reason = string(h.Value)
				}
			}
			out = append(out, rec)
		})
	}
	return out, nil
}

// lag asks the group's coordinator; version 1 of the request gives the lag.
func lag(ctx context.Context, cfg Config, cl *kgo.Client, ends kadm.ListedOffsets, into map[int32]Progress) error {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = cfg.Group
	t := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	t.Topic = cfg.Topics.Source
	for _, e := range ends[cfg.Topics.Source] {
		t.Partitions = append(t.Partitions, e.Partition)
	}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return fmt.Errorf("share group offsets: %w", err)
	}
	for _, g := range resp.Groups {
		if g.ErrorCode == kerr.GroupIDNotFound.Code {
			return nil // judged by what was fed
		}
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return fmt.Errorf("share group %s: %w", g.GroupID, err)
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return fmt.Errorf("share partition %s-%d: %w", t.Topic, p.Partition, err)
				}
				e, _ := ends.Lookup(t.Topic, p.Partition)
				into[p.Partition] = Progress{Start: p.StartOffset, End: e.Offset, Lag: p.Lag}
			}
		}
	}
	return nil
}
