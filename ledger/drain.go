package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// drainage sees to it that a ledger is not needed any more.
type drainage struct {
	cl         *sharetxn.Cluster
	client     *kgo.Client
	op, group  string
	partitions int
	since      time.Time // since when the group has been without members
	out        *Moved
}

// place is a source partition.
type place struct {
	topic     string
	partition int32
}

// undone are the offsets, by source partition, that a committed transaction has
// done and that may not be acknowledged.
type undone map[place]map[int64]bool

func (u undone) len() (n int) {
	for _, offsets := range u {
		n += len(offsets)
	}
	return n
}

// openLook is how often a ledger with open transactions is read again.
const openLook = time.Second

func (d *drainage) run(ctx context.Context) error {
	var open []string
	for {
		before, err := d.load(ctx)
		if err == nil {
			if open = before.open(); len(open) == 0 {
				return d.settle(ctx, before)
			}
			lapse.For(ctx, openLook)
		}
		switch {
		case ctx.Err() != nil && len(open) > 0:
			return &sharetxn.Error{Op: d.op, Class: sharetxn.ClassAbortable, Group: d.group,
				Err: fmt.Errorf("transactions with entries in the ledger are open still, of transactional ids %q: they end with their timeout, or by kafka-transactions.sh --abort: %w", open, context.Cause(ctx))}
		case err != nil:
			return err
		}
	}
}

// view is the ledger as it was in the generation before the move, by partition.
type view []*partitionView

type partitionView struct {
	ix   *index.Index
	last map[[16]byte]int64 // the highest offset that an entry names, by topic
}

// load reads the ledger, as if no move had begun.
func (d *drainage) load(ctx context.Context) (v view, err error) {
	err = topic.Scan(ctx, core.Of(d.cl), d.group, func() func(*kgo.Record) error {
		v = make(view, d.partitions)
		return func(r *kgo.Record) error {
			if int(r.Partition) >= d.partitions {
				return nil // as wide as when the move began
			}
			if v[r.Partition] == nil {
				v[r.Partition] = &partitionView{index.New(d.group, r.Partition, r.Offset), make(map[[16]byte]int64)}
			}
			return v[r.Partition].see(r)
		}
	})
	return v, err
}

func (p *partitionView) see(r *kgo.Record) error {
	if !r.Attrs.IsControl() {
		parsed, err := entry.Parse(r.Value)
		switch {
		case err != nil:
			return err
		case parsed.Generation != nil && parsed.Generation.Moving():
			return p.ix.Other(r.Offset)
		case parsed.Entry != nil:
			e := parsed.Entry
			p.last[e.TopicID] = max(p.last[e.TopicID], e.Ranges[len(e.Ranges)-1].Last)
		}
	}
	_, err := tail.Tell(p.ix, r)
	return err
}

// open are the transactional ids of the oldest open entry of each partition.
func (v view) open() (ids []string) {
	for _, p := range v {
		if p == nil {
			continue
		}
		if o := p.ix.Stats().OldestOpen; o != nil {
			ids = append(ids, o.TransactionalID)
		}
	}
	return ids
}

// settle acknowledges what is done.
func (d *drainage) settle(ctx context.Context, v view) error {
	told, err := starts(ctx, kadm.NewClient(d.client), d.group)
	if err != nil {
		return err
	}
	names, err := topic.Names(ctx, d.client, v.topics())
	if err != nil {
		return topic.Failed("Metadata", d.group, "Describe on the group's topics", err)
	}
	left := v.undone(names, told)
	if left.len() == 0 {
		return nil
	}
	restore, err := d.raiseLimit(ctx)
	if err != nil {
		return err
	}
	s := settlement{drainage: d, left: left}
	return errors.Join(s.run(ctx), restore())
}

// topics are those that entries name.
func (v view) topics() [][16]byte {
	ids := make(map[[16]byte]int64)
	for _, p := range v {
		if p != nil {
			maps.Copy(ids, p.last)
		}
	}
	return slices.Collect(maps.Keys(ids))
}

// undone finds what committed transactions have done at or above the starts. Where
// the lag is 0 all is acknowledged. What a topic held that does not exist any more
// can neither be acknowledged nor done again.
func (v view) undone(names map[[16]byte]string, told kadm.ShareOffsets) undone {
	out := make(undone)
	for n, p := range v {
		if p == nil {
			continue
		}
		for id, last := range p.last {
			key := place{names[id], int32(n)}
			at, known := told[key.topic][key.partition]
			if key.topic == "" || known && at.Lag == 0 {
				continue
			}
			offsets := make(map[int64]bool)
			for offset := max(0, at.StartOffset); offset <= last; offset++ {
				if p.ix.Look(id, offset) == index.Done {
					offsets[offset] = true
				}
			}
			if len(offsets) > 0 {
				out[key] = offsets
			}
		}
	}
	return out
}
