package shareconsumer

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// twoTopics gives a cluster that answers as before Kafka 4.4, with "in" and
// "other" of one partition each on one broker, and a member that has settled a
// record of each.
func twoTopics(ctx context.Context, t *testing.T) (*cluster, *Consumer) {
	t.Helper()
	c := startClusterWith(t, 25*time.Second, func(cfg *broker.Config) {
		slowBeats(cfg)
		cfg.Brokers, cfg.Before44, cfg.Topics = 1, true, map[string]int32{"in": 1, "other": 1}
	})
	c.put(ctx, t, "in", 0, "a")
	c.put(ctx, t, "other", 0, "b")
	m := c.consumer(t, Topics("other"))
	accept(ctx, t, m, 2)
	return c, m
}

// accept commits batches until n records came, and tells of how many topics.
func accept(ctx context.Context, t *testing.T, m *Consumer, n int) map[string]int {
	t.Helper()
	of := make(map[string]int)
	for got := 0; got < n; {
		b := poll(ctx, t, m)
		for _, r := range b.Records() {
			of[r.Topic]++
		}
		got += b.Len()
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return of
}

// One of two topics is deleted, and nobody tells but brokers that fail whole
// fetches for it: the other goes on, also with what the failed one had acquired,
// long before the locks end.
func TestDeletedTopicFailsWholeFetches(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	c, m := twoTopics(ctx, t)
	c.put(ctx, t, "in", 0, "held")
	held := poll(ctx, t, m)
	c.deleteTopic(ctx, t, "other")
	var failed atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareFetch {
			return broker.Action{}
		}
		return broker.Action{After: func(resp kmsg.Response) {
			if resp.(*kmsg.ShareFetchResponse).ErrorCode == kerr.UnknownServerError.Code {
				failed.Add(1)
			}
		}}
	})
	c.put(ctx, t, "in", 0, "c")
	came := make(chan *Batch)
	go func() {
		b, _ := m.Poll(ctx)
		came <- b
	}()
	testkit.Eventually(ctx, t, "a fetch failed as a whole", func() bool { return failed.Load() > 0 })
	// The session goes on, with what is held of it.
	held.AcceptRest()
	if err := held.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"d", "e"} {
		c.put(ctx, t, "in", 0, value)
	}
	b := <-came
	n := b.Len()
	if r := b.Records()[0]; r.Topic != "in" {
		t.Errorf("%s came", where(r))
	}
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	if of := accept(ctx, t, m, 3-n); of["other"] != 0 {
		t.Errorf("records came of %v", of)
	}
}

// A broker fails whole fetches for a topic that metadata tells of: the other goes
// on, and so does this one when the broker knows it.
func TestTopicThatFailsWholeFetches(t *testing.T) {
	ctx := testkit.Deadline(t, 40*time.Second)
	c, m := twoTopics(ctx, t)
	bad := c.TopicID("other")
	var mu sync.Mutex
	inside, failed, mended := true, 0, false // it was listed before
	c.SetIntercept(func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareFetchRequest)
		if !ok {
			return broker.Action{}
		}
		mu.Lock()
		defer mu.Unlock()
		if req.ShareSessionEpoch == 0 {
			inside = false
		}
		for _, topic := range req.Topics {
			inside = inside || topic.TopicID == bad
		}
		for _, topic := range req.ForgottenTopicsData {
			inside = inside && topic.TopicID != bad
		}
		if !inside || mended {
			return broker.Action{}
		}
		failed++
		return broker.Action{After: func(resp kmsg.Response) {
			answer := resp.(*kmsg.ShareFetchResponse)
			answer.ErrorCode, answer.Topics = kerr.UnknownServerError.Code, nil
		}}
	})
	c.put(ctx, t, "other", 0, "c")
	c.put(ctx, t, "in", 0, "d")
	if of := accept(ctx, t, m, 1); of["in"] != 1 {
		t.Errorf("records came of %v", of)
	}
	mu.Lock()
	if failed < sievePatience {
		t.Errorf("%d fetches failed", failed)
	}
	mended = true
	mu.Unlock()
	if of := accept(ctx, t, m, 1); of["other"] != 1 {
		t.Errorf("records came of %v", of)
	}
}
