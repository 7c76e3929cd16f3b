package sharetxntest

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
)

// reader reads along what becomes visible.
type reader struct {
	name string
	cl   *kgo.Client
	done chan struct{}

	mu   sync.Mutex
	next map[check.Place]int64
}

// ReadAlong reads the topics from their start, read_committed, while all else is
// going on, until the test ends. What it sees is part of History, where rule I8
// is about it.
func (c *Cluster) ReadAlong(t testing.TB, topics ...string) {
	t.Helper()
	parts := make(map[string]map[int32]kgo.Offset)
	for _, topic := range topics {
		n := c.broker.Partitions(topic)
		if n == 0 {
			t.Fatalf("sharetxntest.ReadAlong: topic %q does not exist: give Start the option Topic(%[1]q, partitions)", topic)
		}
		parts[topic] = make(map[int32]kgo.Offset)
		for p := range n {
			parts[topic][p] = kgo.NewOffset().AtStart()
		}
	}
	cl, err := kgo.NewClient(append(c.Kafka(), kgo.ConsumePartitions(parts), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())...)
	if err != nil {
		t.Fatalf("sharetxntest.ReadAlong: %v", err)
	}
	r := &reader{name: "r" + strconv.Itoa(len(c.readers)), cl: cl, done: make(chan struct{}), next: make(map[check.Place]int64)}
	c.readers = append(c.readers, r)
	for topic, ps := range parts {
		for p := range ps {
			r.next[check.Place{Topic: topic, Partition: p}] = 0
		}
	}
	go r.run(c.broker.Note)
	t.Cleanup(func() {
		cl.Close()
		<-r.done
	})
}

func (r *reader) run(note func(check.Event)) {
	defer close(r.done)
	for {
		fetches := r.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			at := check.Place{Topic: rec.Topic, Partition: rec.Partition}
			if !rec.Attrs.IsControl() {
				note(check.Read{Reader: r.name, At: check.At{Place: at, Offset: rec.Offset}, Sum: sum(rec)})
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.next[at] = rec.Offset + 1
		})
	}
}

func (r *reader) reached() map[check.Place]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.next)
}

// catchUp waits until a reader has seen all that is stable now, and says so. The
// last thing below a last stable offset is a visible record or a marker, and it
// is given both.
func (c *Cluster) catchUp(ctx context.Context, r *reader) error {
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		behind := ""
		for at, next := range r.reached() {
			bounds, err := c.broker.Bounds(at.Topic, at.Partition)
			if err != nil {
				return err
			}
			if next < bounds.LastStable && bounds.LastStable > bounds.Start {
				behind = fmt.Sprintf("%s-%d is read up to %d of %d", at.Topic, at.Partition, next, bounds.LastStable)
			}
		}
		if behind == "" {
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return fmt.Errorf("reader %s: %s: %w", r.name, behind, context.Cause(ctx))
		}
	}
}

// sum tells contents apart.
func sum(r *kgo.Record) string {
	h := fnv.New64a()
	_, _ = h.Write(r.Key) // never fails
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(r.Value)
	return strconv.FormatUint(h.Sum64(), 16)
}
