package shareconsumer

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is an embedded cluster with topic "in" of three partitions on three
// brokers and group "g" reading from the start.
type cluster struct {
	*broker.Cluster
	cl *sharetxn.Cluster
}

func startCluster(t *testing.T, lock time.Duration, hooks ...sharetxn.Hook) *cluster {
	t.Helper()
	return startClusterWith(t, lock, func(*broker.Config) {}, hooks...)
}

// startClusterWith starts one that is a little different.
func startClusterWith(t *testing.T, lock time.Duration, change func(*broker.Config), hooks ...sharetxn.Hook) *cluster {
	t.Helper()
	cfg := broker.Config{
		Brokers: 3, Topics: map[string]int32{"in": 3}, MinLockDuration: time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
		GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds())}},
	}
	change(&cfg)
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)), sharetxn.WithHooks(hooks...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &cluster{b, cl}
}

// feed produces n records whose values are "0" to "n-1", to the partitions in
// turn.
func (c *cluster) feed(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	c.feedTo(ctx, t, n, 3)
}

// feedTo does so with the first partitions only.
func (c *cluster) feedTo(ctx context.Context, t *testing.T, n, partitions int) {
	t.Helper()
	p, err := c.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range n {
		p.Produce(ctx, &kgo.Record{Topic: "in", Partition: int32(i % partitions), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("feed: %v", err)
			}
		})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) consumer(t *testing.T, opts ...Opt) *Consumer {
	t.Helper()
	m, err := New(c.cl, "g", append([]Opt{Topics("in"), MaxWait(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// totals of the group's share partitions.
func (c *cluster) totals() (done, available, acquired, pending int64) {
	for _, p := range c.PartitionStates("g") {
		done += p.Start + p.Terminal
		available += p.Available
		acquired += p.Acquired
		pending += p.Pending
	}
	return done, available, acquired, pending
}

func (c *cluster) waitDone(ctx context.Context, t *testing.T, n int64) {
	t.Helper()
	testkit.Eventually(ctx, t, fmt.Sprintf("%d offsets done and nothing else", n), func() bool {
		done, av, ac, pe := c.totals()
		return done == n && av+ac+pe == 0
	})
}

func poll(ctx context.Context, t *testing.T, m *Consumer) *Batch {
	t.Helper()
	b, err := m.Poll(ctx)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return b
}

// gather polls until n records are there.
func gather(ctx context.Context, t *testing.T, m *Consumer, n int) (rs []*Record) {
	t.Helper()
	for len(rs) < n {
		rs = append(rs, poll(ctx, t, m).Records()...)
	}
	if len(rs) > n {
		t.Fatalf("%d records, want %d", len(rs), n)
	}
	return rs
}
