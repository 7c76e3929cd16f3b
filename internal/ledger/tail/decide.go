package tail

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Entries makes the records that a transaction writes into the ledger before it
// decides positions: at least one for each source partition, with its partition
// set. A partitioner must leave them there. An error is of class usage, or the
// ledger's own.
func (l *Ledger) Entries(transactionalID string, positions []Position) ([]*kgo.Record, error) {
	if err := l.Err(); err != nil {
		return nil, err
	}
	usage := func(err error) error {
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: l.group, TransactionalID: transactionalID, Err: err}
	}
	if l.opts.Observe {
		return nil, usage(fmt.Errorf("%w: a ledger that is only observed makes no entries", sharetxn.ErrUsage))
	}
	base := entry.Entry{Generation: l.fixed.Load().Number, TransactionalID: transactionalID}
	_, _ = rand.Read(base.Nonce[:]) // it ends the program where it fails
	var out []*kgo.Record
	for _, k := range bySource(positions) {
		if l.part(k.partition) == nil {
			return nil, usage(fmt.Errorf("%w: partition %d has no ledger partition", sharetxn.ErrUsage, k.partition))
		}
		whole := base
		whole.TopicID, whole.Partition, whole.Ranges = k.topic, k.partition, ranges(k.offsets)
		for _, e := range entry.Split(whole) {
			value, err := e.Append(nil)
			if err != nil {
				return nil, usage(err)
			}
			out = append(out, &kgo.Record{Topic: l.topic, Partition: k.partition, Value: value})
		}
	}
	for _, p := range positions {
		l.starts.named(p.TopicID, p.Topic)
	}
	return out, nil
}

// Decide says whether the transaction that produced these entries may commit:
// nil if it may. It waits until the tail has read past each of them; call it
// when all are delivered. An error is a *ConflictError, for which the
// transaction must abort, or says why nothing can be decided: fatal as Err says,
// abortable if ctx ended first. It holds no transaction open longer than ctx.
func (l *Ledger) Decide(ctx context.Context, produced []*kgo.Record) error {
	var (
		began    = time.Now()
		conflict ConflictError
		events   []sharetxn.LedgerEvent
	)
	for _, r := range produced {
		v, err := entry.Parse(r.Value)
		p := l.part(r.Partition)
		if err != nil || v.Entry == nil || p == nil || r.Topic != l.topic {
			return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: l.group, Err: fmt.Errorf("%w: record %s-%d@%d is no entry of this ledger", sharetxn.ErrUsage, r.Topic, r.Partition, r.Offset)}
		}
		if err := l.reach(ctx, p, r.Offset); err != nil {
			return err
		}
		d := p.decide(r)
		switch d.Kind {
		case index.Commit, index.Conflict:
		case index.Ended:
			conflict.Ended++
		default:
			l.fail(l.newGeneration("an entry of this process is of none that is in force"))
			return l.err
		}
		for _, x := range []struct {
			verdict index.Verdict
			ranges  []entry.Range
			count   *int64
		}{
			{index.Done, d.Done, &conflict.Done},
			{index.Open, d.Open, &conflict.Open},
			{index.Below, d.Below, &conflict.Below},
			{index.Unsure, d.Unsure, &conflict.Unsure},
		} {
			if n := count(x.ranges); n > 0 {
				*x.count += n
				events = append(events, sharetxn.LedgerEvent{Event: sharetxn.LedgerConflict, Topic: l.starts.name(v.Entry.TopicID), Partition: r.Partition, Records: n, Verdict: x.verdict.String()})
			}
		}
	}
	for _, e := range events {
		e.Took = time.Since(began)
		l.tell(e)
	}
	if conflict.any() {
		return &conflict
	}
	return l.Err()
}

// reach waits until the tail is past an offset.
func (l *Ledger) reach(ctx context.Context, p *part, offset int64) error {
	for {
		moved := p.moved.wait()
		switch past := p.past(offset); {
		case l.Err() != nil:
			return l.err
		case past:
			return nil
		}
		select {
		case <-moved:
		case <-l.done:
		case <-ctx.Done():
			next, _ := p.at()
			return l.wrap(fmt.Errorf("the ledger's partition %d was read up to offset %d and not to the transaction's entry at %d%s: %w", p.n, next, offset, l.told.why(), context.Cause(ctx)))
		}
	}
}

func (p *part) past(offset int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.loadedLocked() && p.ix.Next() > offset
}

func (p *part) decide(r *kgo.Record) index.Decision {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ix.Decide(r.Offset, index.Producer{ID: r.ProducerID, Epoch: r.ProducerEpoch})
}
