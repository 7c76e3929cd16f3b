package broker

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

func start(t *testing.T, cfg Config) *Cluster {
	t.Helper()
	c, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func client(t *testing.T, c *Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.Seeds()...), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func feed(ctx context.Context, t *testing.T, c *Cluster, topic string, n int) {
	t.Helper()
	cl := client(t, c)
	for i := range n {
		cl.Produce(ctx, &kgo.Record{Topic: topic, Value: fmt.Appendf(nil, "%d", i)}, nil)
	}
	if err := cl.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

var earliest = map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}}

// kgo's own share consumer drains a topic, with two members on three brokers.
func TestKgoShareConsumer(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 3}, GroupConfigs: earliest, HeartbeatInterval: 100 * time.Millisecond})
	const n = 2000
	feed(ctx, t, c, "in", n)
	got := make(chan string, n)
	for range 2 {
		cl := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))
		go func() {
			for {
				fs := cl.PollFetches(ctx)
				if fs.IsClientClosed() || ctx.Err() != nil {
					return
				}
				fs.EachRecord(func(r *kgo.Record) { r.Ack(kgo.AckAccept); got <- string(r.Value) })
			}
		}()
	}
	seen := make(map[string]int)
	for len(seen) < n {
		select {
		case v := <-got:
			seen[v]++
		case <-ctx.Done():
			t.Fatalf("%d of %d records after the deadline", len(seen), n)
		}
	}
	for v, k := range seen {
		if k != 1 {
			t.Fatalf("record %s was delivered %d times", v, k)
		}
	}
	waitDrained(ctx, t, c, "g", "in", n)
	if !c.engine.Groups()["g"] {
		t.Fatal("the group is not known")
	}
}

// waitDrained waits until every offset of the topic is done for the group.
func waitDrained(ctx context.Context, t *testing.T, c *Cluster, group, topic string, n int64) {
	t.Helper()
	testkit.Eventually(ctx, t, "group "+group+" drained", func() bool {
		done := int64(0)
		for _, p := range c.PartitionStates(group) {
			if p.Topic != c.TopicID(topic) {
				continue
			}
			if p.Available+p.Acquired+p.Pending > 0 {
				return false
			}
			done += p.Start
		}
		return done == n
	})
}

// kgo's own transactions commit and abort; a read_committed reader sees only
// what was committed, and nothing stays open.
func TestKgoTransactions(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	p := client(t, c, kgo.TransactionalID("kgo-1"))
	want := make(map[string]bool)
	for i := range 20 {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		commit := kgo.TransactionEndTry(i%3 != 0)
		for j := range 5 {
			v := fmt.Sprintf("%d-%d", i, j)
			if commit {
				want[v] = true
			}
			p.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(v)}, func(_ *kgo.Record, err error) {
				if err != nil {
					t.Errorf("produce: %v", err)
				}
			})
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(ctx, commit); err != nil {
			t.Fatal(err)
		}
	}
	r := client(t, c, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for len(want) > 0 {
		fs := r.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d committed records never came", len(want))
		}
		fs.EachRecord(func(rec *kgo.Record) {
			if !want[string(rec.Value)] {
				t.Errorf("read %s, which was aborted or read before", rec.Value)
			}
			delete(want, string(rec.Value))
		})
	}
	adm := kadm.NewClient(r)
	txns, err := adm.ListTransactions(ctx, nil, nil)
	if err != nil || len(txns) != 1 {
		t.Fatalf("transactions %v, %v", txns, err)
	}
	committed, err := adm.ListCommittedOffsets(ctx, "out")
	if err != nil {
		t.Fatal(err)
	}
	ends, err := adm.ListEndOffsets(ctx, "out")
	if err != nil {
		t.Fatal(err)
	}
	committed.Each(func(o kadm.ListedOffset) {
		if e, _ := ends.Lookup(o.Topic, o.Partition); e.Offset != o.Offset {
			t.Errorf("partition %d: last stable offset %d, high watermark %d", o.Partition, o.Offset, e.Offset)
		}
	})
}
