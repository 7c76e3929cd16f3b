package shareconsumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestRationed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		total, claimed, sessions int
		want                     []ration // by rank
	}{
		"alone":                   {10, 0, 1, []ration{{10, false}}},
		"what is claimed is off":  {10, 7, 1, []ration{{3, false}}},
		"even":                    {9, 0, 3, []ration{{3, false}, {3, false}, {3, false}}},
		"the first get the rest":  {8, 0, 3, []ration{{3, false}, {3, false}, {2, false}}},
		"one at a time":           {1, 0, 3, []ration{{1, true}, {0, true}, {0, true}}},
		"all is claimed":          {5, 5, 2, []ration{{0, true}, {0, true}}},
		"more than all is too":    {5, 6, 1, []ration{{0, true}}},
		"as many as there are of": {2, 0, 2, []ration{{1, false}, {1, false}}},
	} {
		for rank, want := range c.want {
			if got := rationed(c.total, c.claimed, c.sessions, rank); got != want {
				t.Errorf("%s: rank %d gets %+v, want %+v", name, rank, got, want)
			}
		}
	}
}

// In RecordLimit mode no more is acquired than a poll gives out, over all
// brokers, and all records still come, once each, whichever broker has them.
func TestRecordLimit(t *testing.T) {
	for name, limit := range map[string]int{"fewer than brokers": 1, "more than brokers": 7} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 40*time.Second)
			c := startCluster(t, 20*time.Second)
			c.feed(ctx, t, 30)
			m := c.consumer(t, AcquireMode(RecordLimit), MaxPollRecords(limit))
			seen := make(map[string]bool)
			for len(seen) < 30 {
				b := poll(ctx, t, m)
				if _, _, acquired, _ := c.totals(); acquired > int64(limit) || b.Len() > limit {
					t.Fatalf("%d acquired, %d polled, limit %d", acquired, b.Len(), limit)
				}
				for _, r := range b.Records() {
					if seen[string(r.Value)] || r.DeliveryCount() != 1 {
						t.Fatalf("%s came again, delivery %d", r.Value, r.DeliveryCount())
					}
					seen[string(r.Value)] = true
				}
				b.AcceptRest()
				if err := b.CommitSync(ctx); err != nil {
					t.Fatal(err)
				}
			}
			c.waitDone(ctx, t, 30)
		})
	}
}

// Beside it, BatchOptimized acquires the whole batch of the log.
func TestBatchOptimizedTakesWholeBatches(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 5, 1)
	b := poll(ctx, t, c.consumer(t, MaxPollRecords(1)))
	if _, _, acquired, _ := c.totals(); acquired != 5 || b.Len() != 1 {
		t.Fatalf("%d acquired, %d polled", acquired, b.Len())
	}
}

// A broker that does not know the mode is never asked without it: the first Poll
// fails and says what is needed. The same brokers serve the other mode.
func TestRecordLimitNeedsShareFetch2(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startClusterWith(t, 20*time.Second, func(cfg *broker.Config) { cfg.MaxVersions = map[int16]int16{keyShareFetch: 1, keyShareAck: 1} })
	c.feed(ctx, t, 3)
	_, err := c.consumer(t, AcquireMode(RecordLimit)).Poll(ctx)
	if !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
		t.Fatalf("Poll: %v", err)
	}
	if n := c.Traffic(keyShareFetch).Requests; n != 0 {
		t.Fatalf("%d fetches were sent nevertheless", n)
	}
	gather(ctx, t, c.consumer(t), 3)
}

// In a cluster that is being upgraded the broker asked first may know the mode
// and a leader may not.
func TestRecordLimitAsksEachBroker(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 3, 1)
	old := c.Leader("in", 0)
	asked := c.onKey(18, 1<<30, func(r broker.Request) broker.Action {
		if r.Node != old || c.Traffic(keyShareBeat).Requests == 0 {
			return broker.Action{}
		}
		resp := r.Message().ResponseKind().(*kmsg.ApiVersionsResponse)
		for key := range int16(93) {
			a := kmsg.NewApiVersionsResponseApiKey()
			a.ApiKey, a.MaxVersion = key, 1
			resp.ApiKeys = append(resp.ApiKeys, a)
		}
		return broker.Action{Answer: resp}
	})
	_, err := c.consumer(t, AcquireMode(RecordLimit)).Poll(ctx)
	if !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) || asked.Load() == 0 {
		t.Fatalf("Poll: %v; %d answers changed", err, asked.Load())
	}
	if _, _, acquired, _ := c.totals(); acquired != 0 {
		t.Fatalf("%d records were acquired", acquired)
	}
}

// Two polls wait; the first takes what comes and works on it for long. The
// second must not have to wait for it.
func TestPollsDoNotWaitForEachOther(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	m := c.consumer(t)
	var wg sync.WaitGroup
	polled, cancel := context.WithCancel(ctx)
	defer cancel()
	got := make(chan *Batch, 2)
	for range 2 {
		wg.Go(func() {
			if b, err := m.Poll(polled); err == nil {
				got <- b
			}
		})
	}
	testkit.Eventually(ctx, t, "both wait", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.polling == 2
	})
	c.feedTo(ctx, t, 1, 1)
	first := <-got
	c.feedTo(ctx, t, 1, 1)
	select {
	case second := <-got:
		if first.Len() != 1 || second.Len() != 1 {
			t.Errorf("%d and %d records", first.Len(), second.Len())
		}
	case <-ctx.Done():
		t.Fatal("the second poll got nothing")
	}
	wg.Wait()
}
