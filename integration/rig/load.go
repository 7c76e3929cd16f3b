package rig

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Load produces to all partitions of a topic in turn, and knows what brokers
// acknowledged of it. One goroutine at a time may produce.
type Load struct {
	cl         *kgo.Client
	topic      string
	partitions int
	value      func(n int) []byte
	sent       atomic.Int64

	mu      sync.Mutex
	offsets [][]int64 // acknowledged, by partition
	errs    []error
}

// NewLoad makes one; value gives the n-th record's value, from 0.
func NewLoad(seeds []string, topic string, partitions int, value func(n int) []byte, opts ...kgo.Opt) (*Load, error) {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5 * time.Millisecond), kgo.MetadataMinAge(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		return nil, err
	}
	return &Load{cl: cl, topic: topic, partitions: partitions, value: value, offsets: make([][]int64, partitions)}, nil
}

// Close ends its client.
func (l *Load) Close() { l.cl.Close() }

// Sent is how many records were produced, acknowledged or not. At any time.
func (l *Load) Sent() int { return int(l.sent.Load()) }

// Offsets are those that brokers acknowledged, by partition. Only after Produce
// has returned.
func (l *Load) Offsets() [][]int64 { return l.offsets }

// Produce produces n records over the time d, and is done when all are
// acknowledged. A fifth of them it keeps back and hands out one by one until over
// is closed, so that there is always something to come for who waits for a member
// to work.
func (l *Load) Produce(ctx context.Context, n int, d time.Duration, over <-chan struct{}) error {
	const steps = 50
	kept := n / 5
	tick := time.NewTicker(max(d/steps, time.Millisecond))
	defer tick.Stop()
	for step := range steps {
		l.send(ctx, (n-kept)*(step+1)/steps-(n-kept)*step/steps)
		if d == 0 {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Enough for a minute: longer than a session takes to end and a member to join.
	tick.Reset(max(time.Minute/time.Duration(max(kept, 1)), 10*time.Millisecond))
	for waiting := kept > 0; waiting; {
		select {
		case <-tick.C:
			l.send(ctx, 1)
			kept--
			waiting = kept > 0
		case <-over:
			waiting = false
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	l.send(ctx, kept)
	if err := l.cl.Flush(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
}

func (l *Load) send(ctx context.Context, n int) {
	for range n {
		i := int(l.sent.Add(1)) - 1
		r := &kgo.Record{Topic: l.topic, Partition: int32(i % l.partitions), Value: l.value(i)}
		l.cl.Produce(ctx, r, l.acknowledged)
	}
}

func (l *Load) acknowledged(r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		if len(l.errs) < 3 {
			l.errs = append(l.errs, fmt.Errorf("produce: %w", err))
		}
		return
	}
	l.offsets[r.Partition] = append(l.offsets[r.Partition], r.Offset)
}
