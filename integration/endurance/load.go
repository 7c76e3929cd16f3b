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

// produce sends n records of 100 bytes, over a time of about d, and waits until
// brokers have acknowledged all.
func (l *load) produce(ctx context.Context, n int, d time.Duration) error {
	const steps = 50
	tick := time.NewTicker(max(d/steps, time.Millisecond))
	defer tick.Stop()
	for step := range steps {
		for range n*(step+1)/steps - n*step/steps {
			value := make([]byte, 100)
			binary.BigEndian.PutUint64(value, uint64(l.sent))
			r := &kgo.Record{Topic: l.topic, Partition: int32(l.sent % l.partitions), Value: value}
			l.sent++
			l.cl.Produce(ctx, r, l.acknowledged)
		}
		if d == 0 {
			continue
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if err := l.cl.Flush(ctx); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.errs...)
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
