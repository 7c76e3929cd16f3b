package broker

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// everywhere begins a transaction of producer x and writes one record to each
// partition of "out", of which node n leads partition n.
func everywhere(ctx context.Context, t *testing.T, p *kgo.Client) txn.Key {
	t.Helper()
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for partition := range int32(3) {
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: "out", Partition: partition, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return key(ctx, t, p)
}

func outLog(c *Cluster, partition int32) (stable, end int64) {
	p := c.kf.PartitionInfo("out", partition)
	return p.LastStableOffset, p.HighWatermark
}

// Markers to a leader that is parted from the coordinator wait until it is
// healed, or until another leads; those to other leaders do not.
func TestPartedMarkers(t *testing.T) {
	for name, mend := range map[string]func(c *Cluster, near, far int32) error{
		"heal":       func(c *Cluster, near, far int32) error { c.Heal(far, near); return nil },
		"new leader": func(c *Cluster, near, far int32) error { return c.MoveLeader("out", far, near) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
			p, cl := producer(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner())), client(t, c)
			k := everywhere(ctx, t, p)
			near := c.kf.CoordinatorFor("x")
			far, other := (near+1)%3, (near+2)%3
			c.Part(near, near) // a node reaches itself
			c.Part(near, far)
			_, code := end(ctx, t, cl, k, true)
			wantCode(t, "commit", code, 0)
			testkit.Eventually(ctx, t, "the others have their markers", func() bool {
				near, end := outLog(c, near)
				other, also := outLog(c, other)
				return near == 2 && end == 2 && other == 2 && also == 2
			})
			if stable, end := outLog(c, far); stable != 0 || end != 1 || view(c).Status != txn.PrepareCommit {
				t.Fatalf("stable to %d of %d, the transaction is %v", stable, end, view(c).Status)
			}
			if err := mend(c, near, far); err != nil {
				t.Fatal(err)
			}
			testkit.Eventually(ctx, t, "the transaction is complete", func() bool { return view(c).Status == txn.CompleteCommit })
			wantSettled(t, c, "out")
			if got := committed(ctx, t, c, 3); len(got) != 3 {
				t.Fatalf("read %q", got)
			}
		})
	}
}

// A leader that is parted from the coordinator cannot begin to write in a
// transaction; the client tries until it can, and others are not disturbed.
func TestPartedProduce(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	p := producer(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	near := c.kf.CoordinatorFor("x")
	far := (near + 1) % 3
	if err := p.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	c.Part(near, far)
	got := make(chan error, 1)
	p.Produce(ctx, &kgo.Record{Topic: "out", Partition: far, Value: []byte("a")}, func(_ *kgo.Record, err error) { got <- err })
	testkit.Eventually(ctx, t, "it was tried again", func() bool { return c.Traffic(keyProduce).Requests > 2 })
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: "out", Partition: near, Value: []byte("b")}).FirstErr(); err != nil {
		t.Fatalf("produce to who reaches the coordinator: %v", err)
	}
	if ps := view(c).Partitions; len(ps) != 1 || ps[0].Partition != near {
		t.Fatalf("partitions %v", ps)
	}
	if _, end := outLog(c, far); end != 0 {
		t.Fatalf("%d records were written", end)
	}
	c.Heal(near, far)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if got := committed(ctx, t, c, 2); len(got) != 2 {
		t.Fatalf("read %q", got)
	}
}

// A marker that comes again, with whatever outcome, changes nothing: not in a
// log at rest, and not while the next transaction is open there.
func TestRepeatedMarkers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	p, cl := producer(t, c, kgo.RecordPartitioner(kgo.ManualPartitioner())), client(t, c)
	k := everywhere(ctx, t, p)
	again := func(what string, stable, end int64) {
		t.Helper()
		for _, commit := range []bool{true, false} {
			for partition := range int32(3) {
				if err := (backend{c}).WriteMarker(ctx, txn.Partition{Topic: "out", Partition: partition}, k.ProducerID, k.ProducerEpoch+1, commit); err != nil {
					t.Fatal(err)
				}
				if s, e := outLog(c, partition); s != stable || e != end {
					t.Fatalf("%s: out-%d is stable to %d of %d, want %d of %d", what, partition, s, e, stable, end)
				}
			}
		}
	}
	next, code := end(ctx, t, cl, k, true)
	wantCode(t, "commit", code, 0)
	again("at rest", 2, 2)
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil { // as a retry: kgo moves to the next epoch
		t.Fatal(err)
	}
	if got := everywhere(ctx, t, p); got != next {
		t.Fatalf("the next transaction is %v, want %v", got, next)
	}
	again("while the next is open", 2, 3)
	_, code = end(ctx, t, cl, next, false)
	wantCode(t, "abort", code, 0)
	again("after it", 4, 4)
	if got := committed(ctx, t, c, 3); len(got) != 3 {
		t.Fatalf("read %q", got)
	}
}
