package endurance

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load produces, and knows what brokers acknowledged of it.
type load struct {
	cl         *kgo.Client
	topic      string
	partitions int
	sent       int

	mu      sync.Mutex
	offsets [][]int64 // acknowledged, by partition
	errs    []error
}

func newLoad(seeds []string, topic string, partitions int) (*load, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(20_000), kgo.ProducerLinger(5*time.Millisecond), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return &load{cl: cl, topic: topic, partitions: partitions, offsets: make([][]int64, partitions)}, nil
}

// produce produces n records over the time d, and is done when all are
// acknowledged. A fifth of them it keeps back and hands out one by one until over
// is closed, so that there is always something to come for who waits for a member
// to work.
func (l *load) produce(ctx context.Context, n int, d time.Duration, over <-chan struct{}) error {
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

func (l *load) send(ctx context.Context, n int) {
	for range n {
		value := make([]byte, 100)
		binary.BigEndian.PutUint64(value, uint64(l.sent))
		r := &kgo.Record{Topic: l.topic, Partition: int32(l.sent % l.partitions), Value: value}
		l.sent++
		l.cl.Produce(ctx, r, l.acknowledged)
	}
}

func (l *load) acknowledged(r *kgo.Record, err error) {
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
