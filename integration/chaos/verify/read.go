package verify

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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

// Live reads what becomes visible to readers of the committed, while it does.
type Live struct {
	logs *Logs
	r    *reader
	stop context.CancelFunc
	to   atomic.Pointer[map[Part]int64] // where to end; nil: not yet
	done chan struct{}
	err  error // read after done
}

// Watch begins to read these partitions, until Close or the end of ctx.
func Watch(ctx context.Context, seeds []string, parts ...Part) (*Live, error) {
	l := &Live{logs: NewLogs(), done: make(chan struct{})}
	var err error
	if l.r, err = newReader(seeds, kgo.ReadCommitted(), parts, l.logs.take); err != nil {
		return nil, err
	}
	ctx, l.stop = context.WithCancel(ctx)
	go func() {
		defer close(l.done)
		l.err = l.run(ctx)
	}()
	return l, nil
}

func (l *Live) run(ctx context.Context) error {
	for {
		if to := l.to.Load(); to != nil && l.r.reached(*to) {
			return nil
		}
		if err := l.r.poll(ctx); err != nil {
			return err
		}
	}
}

// finish waits until all was read that lies before to, and ends the reading.
func (l *Live) finish(ctx context.Context, to map[Part]int64) (*Logs, error) {
	l.to.Store(&to)
	select {
	case <-l.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("the reader that reads along is not there yet: %w", ctx.Err())
	}
	if l.err != nil {
		return nil, fmt.Errorf("the reader that reads along: %w", l.err)
	}
	return l.logs, nil
}

// Close ends the reader; again it does nothing.
func (l *Live) Close() {
	l.stop()
	<-l.done
	l.r.cl.Close()
}
