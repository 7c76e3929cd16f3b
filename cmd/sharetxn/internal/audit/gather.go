package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// silence is how long a topic may give nothing before its end is reached.
const silence = 20 * time.Second

func gather(ctx context.Context, cfg Config, cl *kgo.Client) (Facts, error) {
	adm := kadm.NewClient(cl)
	f := Facts{Records: make(map[string][]Record), Progress: make(map[int32]Progress)}
	// High watermarks first: what is below them is what is judged.
	ends, err := adm.ListEndOffsets(ctx, cfg.Topics.all()...)
	if err = errors.Join(err, ends.Error()); err != nil {
		return f, fmt.Errorf("high watermarks: %w", err)
	}
	stable, err := adm.ListCommittedOffsets(ctx, cfg.Topics.all()...)
	if err = errors.Join(err, stable.Error()); err != nil {
		return f, fmt.Errorf("last stable offsets: %w", err)
	}
	ends.Each(func(e kadm.ListedOffset) {
		if s, _ := stable.Lookup(e.Topic, e.Partition); s.Offset < e.Offset {
			f.Unstable = append(f.Unstable, fmt.Sprintf("%s-%d", e.Topic, e.Partition))
		}
	})
	markers := make(map[marker]bool)
	for _, topic := range cfg.Topics.all() {
		if f.Records[topic], err = read(ctx, cfg.Seeds, topic, stable, markers); err != nil {
			return f, err
		}
	}
	for m := range markers {
		if m.commit {
			f.Commits++
		} else {
			f.Aborts++
		}
	}
	if err := f.group(ctx, cfg, adm, ends); err != nil {
		return f, err
	}
	txns, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil {
		return f, fmt.Errorf("transactions: %w", err)
	}
	for id, t := range txns {
		if !strings.HasPrefix(id, cfg.Ours) {
			continue
		}
		switch t.State {
		case "Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
			f.Open++
		}
	}
	if f.Inside, err = cfg.Inside(ctx); err != nil {
		return f, fmt.Errorf("history: %w", err)
	}
	return f, nil
}

// marker is the end of one transaction, found once on every partition that took
// part: with transaction.version 2 each has an epoch of its own.
type marker struct {
	producer int64
	epoch    int16
	commit   bool
}

// read gives all that a read_committed reader sees up to the last stable offset
// that was captured before, and notes the markers. Aborted records are not
// returned, so the end is told by position, not by count: the last thing
// before a stable end is a marker or a visible record.
func read(ctx context.Context, seeds []string, topic string, until kadm.ListedOffsets, markers map[marker]bool) ([]Record, error) {
	from := make(map[int32]kgo.Offset)
	left := make(map[int32]int64)
	for _, o := range until[topic] {
		if o.Offset > 0 {
			from[o.Partition] = kgo.NewOffset().At(0)
			left[o.Partition] = o.Offset
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.DisableClientMetrics(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	var out []Record
	for len(left) > 0 {
		fs, err := poll(ctx, cl)
		if err != nil {
			return nil, fmt.Errorf("reading %s, partitions not read to the end %v: %w", topic, left, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				if commit, ok := parseMarker(r.Key); ok {
					markers[marker{r.ProducerID, r.ProducerEpoch, commit}] = true
				}
				return
			}
			out = append(out, record(r))
		})
	}
	return out, nil
}

func poll(ctx context.Context, cl *kgo.Client) (kgo.Fetches, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, silence, fmt.Errorf("nothing came for %v", silence))
	defer cancel()
	fs := cl.PollFetches(ctx)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return fs, fs.Err()
}

func record(r *kgo.Record) Record {
	out := Record{Source: Source{r.Partition, r.Offset}, Key: string(r.Key), Value: string(r.Value)}
	for _, h := range r.Headers {
		if h.Key == ReasonHeader {
			out.Reason = string(h.Value)
		}
	}
	return out
}

// parseMarker reads the key of a control record: version, type; 0 is an abort
// and 1 a commit, others end no transaction.
func parseMarker(key []byte) (commit, ok bool) {
	if len(key) < 4 {
		return false, false
	}
	switch binary.BigEndian.Uint16(key[2:]) {
	case 0:
		return false, true
	case 1:
		return true, true
	}
	return false, false
}

// group asks the share group's coordinator for its lag and its members. A group
// that the brokers do not know has read nothing: Judge tells whether it had to.
func (f *Facts) group(ctx context.Context, cfg Config, adm *kadm.Client, ends kadm.ListedOffsets) error {
	for _, e := range ends[cfg.Topics.Source] {
		f.Progress[e.Partition] = Progress{Start: -1, End: e.Offset, Lag: -1}
	}
	offsets, err := adm.DescribeShareGroupOffsets(ctx, cfg.Group)
	if err = errors.Join(err, known(offsets[cfg.Group].Err)); err != nil {
		return fmt.Errorf("offsets of share group %s: %w", cfg.Group, err)
	}
	for _, p := range offsets[cfg.Group].Offsets[cfg.Topics.Source] {
		if p.Err != nil {
			return fmt.Errorf("share partition %s-%d: %w", p.Topic, p.Partition, p.Err)
		}
		f.Progress[p.Partition] = Progress{Start: p.StartOffset, End: f.Progress[p.Partition].End, Lag: p.Lag}
	}
	groups, err := adm.DescribeShareGroups(ctx, cfg.Group)
	if err = errors.Join(err, known(groups[cfg.Group].Err)); err != nil {
		return fmt.Errorf("share group %s: %w", cfg.Group, err)
	}
	f.Members = len(groups[cfg.Group].Members)
	return nil
}

// known passes over the answer that a group does not exist.
func known(err error) error {
	if errors.Is(err, kerr.GroupIDNotFound) {
		return nil
	}
	return err
}
