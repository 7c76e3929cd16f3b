package main

import (
	"context"
	"sync"
	"testing"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readAlong is a read_committed reader from the start of topics that lives through
// the deaths of brokers, and tells a chronicle what it comes by.
type readAlong struct {
	cl   *kgo.Client
	done chan struct{}

	mu   sync.Mutex
	next map[check.Place]int64
}

// reading starts a reader; the test ends it.
func (j job) reading(t *testing.T, to chronicle, topics ...string) *readAlong {
	t.Helper()
	connected, err := j.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(connected.Close)
	cl, err := connected.Client(kgo.ConsumeTopics(topics...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	r := &readAlong{cl: cl, done: make(chan struct{}), next: make(map[check.Place]int64)}
	go r.run(to)
	t.Cleanup(r.close)
	return r
}

func (r *readAlong) run(to chronicle) {
	defer close(r.done)
	for {
		fetches := r.cl.PollFetches(context.Background())
		if fetches.IsClientClosed() {
			return
		}
		fetches.EachRecord(func(rec *kgo.Record) {
			at := check.Place{Topic: rec.Topic, Partition: rec.Partition}
			if !rec.Attrs.IsControl() {
				to.add(check.Read{Reader: "along", At: check.At{Place: at, Offset: rec.Offset}})
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.next[at] = rec.Offset + 1
		})
	}
}

// close ends the reader. Idempotent.
func (r *readAlong) close() {
	r.cl.Close()
	<-r.done
}

// finish waits until the reader has passed all that is stable now, as another client
// is told, ends it, and says how far it came.
func (r *readAlong) finish(ctx context.Context, t *testing.T, to chronicle, ask *kgo.Client, topics ...string) {
	t.Helper()
	ends, err := kadm.NewClient(ask).ListCommittedOffsets(ctx, topics...)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the reader has read all", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		all := true
		ends.Each(func(o kadm.ListedOffset) {
			all = all && r.next[check.Place{Topic: o.Topic, Partition: o.Partition}] >= o.Offset
		})
		return all
	})
	r.close()
	for at, next := range r.next {
		to.add(check.Reached{Reader: "along", At: check.At{Place: at, Offset: next}})
	}
}
