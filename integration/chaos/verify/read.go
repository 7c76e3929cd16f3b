package verify

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader reads partitions from their beginning, control records included.
type reader struct {
	cl   *kgo.Client
	next map[Part]int64
	fn   func(*kgo.Record)
}

func newReader(seeds []string, isolation kgo.IsolationLevel, parts []Part, fn func(*kgo.Record)) (*reader, error) {
	at := make(map[string]map[int32]kgo.Offset)
	for _, p := range parts {
		if at[p.Topic] == nil {
			at[p.Topic] = make(map[int32]kgo.Offset)
		}
		at[p.Topic][p.Partition] = kgo.NewOffset().AtStart()
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.ConsumePartitions(at), kgo.FetchIsolationLevel(isolation), kgo.KeepControlRecords())
	if err != nil {
		return nil, err
	}
	return &reader{cl: cl, next: make(map[Part]int64), fn: fn}, nil
}

// poll takes what comes within a moment. Brokers come and go while it reads; what
// kgo tries again is no error, what was lost is.
func (r *reader) poll(ctx context.Context) error {
	soon, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	fetches := r.cl.PollFetches(soon)
	for _, f := range fetches.Errors() {
		if _, lost := errors.AsType[*kgo.ErrDataLoss](f.Err); lost {
			return fmt.Errorf("read %s/%d: %w", f.Topic, f.Partition, f.Err)
		}
	}
	fetches.EachRecord(func(rec *kgo.Record) {
		r.next[Part{rec.Topic, rec.Partition}] = rec.Offset + 1
		r.fn(rec)
	})
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read up to %v: %w", r.next, err)
	}
	return nil
}

// reached tells whether all was read that lies before to. In the end the last of
// a partition is a marker or the record of a source, which each reader is given.
func (r *reader) reached(to map[Part]int64) bool {
	for p, end := range to {
		if r.next[p] < end {
			return false
		}
	}
	return true
}

// consume reads all partitions of to up to there.
func consume(ctx context.Context, seeds []string, isolation kgo.IsolationLevel, to map[Part]int64, fn func(*kgo.Record)) error {
	parts := make([]Part, 0, len(to))
	for p := range to {
		parts = append(parts, p)
	}
	r, err := newReader(seeds, isolation, parts, fn)
	if err != nil {
		return err
	}
	defer r.cl.Close()
	for !r.reached(to) {
		if err := r.poll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Live reads along, while it happens: what becomes visible to readers of the
// committed, and what brokers write of the group's source records, which they keep
// for some minutes only.
type Live struct {
	logs   *Logs
	states *States
	all    [2]*along // of the results, of the states
}

const shareState = "__share_group_state"

// Watch begins to read these partitions, and the state of the group, until Close
// or the end of ctx.
func Watch(ctx context.Context, seeds []string, group string, parts ...Part) (*Live, error) {
	states, err := stateParts(ctx, seeds, group)
	if err != nil {
		return nil, err
	}
	l := &Live{logs: NewLogs(), states: NewStates(group)}
	results, err := newReader(seeds, kgo.ReadCommitted(), parts, l.logs.take)
	if err != nil {
		return nil, err
	}
	var failed error // one that was not understood is not a record that was not written
	next := make(map[Part]int64)
	written, err := newReader(seeds, kgo.ReadUncommitted(), states, func(r *kgo.Record) {
		p := Part{r.Topic, r.Partition}
		if begun, ok := next[p]; ok && r.Offset != begun && failed == nil {
			failed = fmt.Errorf("%v: offsets %d to %d were gone before they were read", p, begun, r.Offset-1)
		}
		next[p] = r.Offset + 1
		state, err := ParseState(r.Key, r.Value)
		if err == nil {
			err = l.states.Record(state)
		}
		if err != nil && failed == nil {
			failed = fmt.Errorf("%v offset %d: %w", p, r.Offset, err)
		}
	})
	if err != nil {
		results.cl.Close()
		return nil, err
	}
	l.all = [2]*along{follow(ctx, results, func() error { return nil }), follow(ctx, written, func() error { return failed })}
	return l, nil
}

// stateParts are the partitions of the brokers' topic of share group state. It is
// made when the first one asks for a coordinator.
func stateParts(ctx context.Context, seeds []string, group string) (parts []Part, err error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	const ofShares = 2
	ask := kmsg.NewPtrFindCoordinatorRequest()
	ask.CoordinatorType, ask.CoordinatorKeys = ofShares, []string{group + ":AAAAAAAAAAAAAAAAAAAAAA:0"}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		_, asked := cl.Request(ctx, ask)
		topics, err := kadm.NewClient(cl).ListTopicsWithInternal(ctx, shareState)
		if err == nil && asked == nil && len(topics[shareState].Partitions) > 0 {
			for p := range topics[shareState].Partitions {
				parts = append(parts, Part{shareState, p})
			}
			return parts, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("there is no topic %s: %w", shareState, errors.Join(ctx.Err(), asked, err))
		}
	}
}

// along is a reader that reads while there is more to come.
type along struct {
	r    *reader
	stop context.CancelFunc
	to   atomic.Pointer[map[Part]int64] // where to end; nil: not yet
	done chan struct{}
	err  error // read after done
}

// follow reads until it is finished, ctx ends, or failed tells of an error.
func follow(ctx context.Context, r *reader, failed func() error) *along {
	a := &along{r: r, done: make(chan struct{})}
	ctx, a.stop = context.WithCancel(ctx)
	go func() {
		defer close(a.done)
		for a.err == nil {
			if to := a.to.Load(); to != nil && a.r.reached(*to) {
				return
			}
			a.err = firstError(a.r.poll(ctx), failed())
		}
	}()
	return a
}

// finish waits until all was read that lies before to, and ends the reading.
func (a *along) finish(ctx context.Context, to map[Part]int64) error {
	a.to.Store(&to)
	select {
	case <-a.done:
	case <-ctx.Done():
		return fmt.Errorf("the reader that reads along is not there yet: %w", ctx.Err())
	}
	if a.err != nil {
		return fmt.Errorf("the reader that reads along: %w", a.err)
	}
	return nil
}

// Close ends the readers; again it does nothing.
func (l *Live) Close() {
	for _, a := range l.all {
		a.stop()
		<-a.done
		a.r.cl.Close()
	}
}
