package sharetxntest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copier is a service: it copies topic "in" to topic "out" in transactions.
type copier struct {
	cl   *sharetxn.Cluster
	id   string
	each func(*shareconsumer.Record) error // before a record is copied; nil: nothing
}

func (s copier) Run(ctx context.Context) error {
	c, err := shareconsumer.New(s.cl, "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	p, err := producer.New(s.cl, "copier"+s.id)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			_, err = p.InTransaction(ctx, batch, func(ctx context.Context, txn *producer.Txn) error {
				return s.copy(ctx, txn, batch)
			})
		}
		if sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

func (s copier) copy(ctx context.Context, txn *producer.Txn, batch *shareconsumer.Batch) error {
	for _, r := range batch.Records() {
		if s.each != nil {
			if err := s.each(r); err != nil {
				return err
			}
		}
		if err := txn.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
			return err
		}
		r.Accept()
	}
	return nil
}

// numbers are n records for topic "in".
func numbers(n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}
	}
	return rs
}

// wantNumbers holds a topic against numbers(n), each once.
func wantNumbers(t *testing.T, c *Cluster, topic string, n int) {
	t.Helper()
	seen := make(map[string]int)
	for _, r := range c.Committed(t, topic) {
		seen[string(r.Value)]++
	}
	for i := range n {
		if v := fmt.Sprint(i); seen[v] != 1 {
			t.Errorf("%s is visible %d times on %s", v, seen[v], topic)
		}
	}
	if len(seen) != n {
		t.Errorf("%d different values on %s, want %d", len(seen), topic, n)
	}
}

// worlds runs a test twice: on sockets and the wall clock, and in a bubble.
func worlds(t *testing.T, fn func(t *testing.T)) {
	t.Run("real", fn)
	t.Run("virtual", func(t *testing.T) { synctest.Test(t, fn) })
}

func TestCopy(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, Brokers(3), Topic("in", 3))
		rs := numbers(90)
		k.Feed(t, rs...)
		spread := make(map[int32]int)
		for _, r := range rs {
			spread[r.Partition]++
		}
		if len(spread) != 3 || spread[0] != 30 || spread[1] != 30 {
			t.Errorf("records by partition: %v", spread)
		}
		wantNumbers(t, k, "in", 90)
		if got := k.Committed(t, "out"); got != nil {
			t.Errorf("%d records before anything ran", len(got))
		}
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		wantNumbers(t, k, "out", 90)
		k.AssertExactlyOnce(t, "g", "out")
		if n := k.Requests(EndTxnKey); n == 0 || k.Requests(StageKey) == 0 || k.Requests(28) != 0 {
			t.Errorf("%d transactions ended", n)
		}
		k.WaitDrained(t, "g")
	})
}

// Locks of half a minute end within milliseconds.
func TestVirtualLock(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1))
		k.Feed(t, numbers(1)...)
		c, err := shareconsumer.New(k.Connect(t), "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Explicit))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		began := time.Now()
		for delivery := range int32(3) {
			b, err := c.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Records()[0].DeliveryCount(); got != delivery+1 {
				t.Errorf("delivery %d, want %d", got, delivery+1)
			}
			if d := time.Since(began); d < time.Duration(delivery)*30*time.Second || d > time.Duration(delivery)*31*time.Second+time.Second {
				t.Errorf("delivery %d after %v", delivery+1, d)
			}
		}
	})
	if d := time.Since(real); d > 10*time.Second {
		t.Errorf("a virtual minute took %v", d)
	}
}
