package producer_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A commit whose marker was lost, and cannot be written again for six times the
// lock: nobody else gets its records, which are published and not acknowledged yet.
// Once it has landed they are done.
func TestLocksAreKeptWhileLanding(t *testing.T) {
	testkit.Deadline(t, 2*time.Minute) // of real time
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.StockKafka44(), sharetxntest.Topic("in", 1), sharetxntest.Topic("out", 1),
			sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 30 * time.Second}))
		for _, v := range []string{"0", "1", "2"} {
			k.Feed(t, &kgo.Record{Topic: "in", Value: []byte(v)})
		}
		member := func(cl *sharetxn.Cluster) *shareconsumer.Consumer {
			c, err := shareconsumer.New(cl, "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		cl := k.Connect(t)
		c := member(cl)
		defer c.Close()
		p, err := producer.New(cl, "tx", producer.AckAfterCommit())
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		ctx := t.Context()
		b, err := c.Poll(ctx)
		if err != nil || b.Len() != 3 {
			t.Fatal(b, err)
		}
		const addPartitions sharetxntest.Key = 24 // AddPartitionsToTxn, by which a marker is written again
		lost, healed := k.LoseMarker(t, "out", 0), make(chan struct{})
		fired := k.Inject(t, sharetxntest.Fault{Key: addPartitions, Times: sharetxntest.Always, Until: healed, Action: sharetxntest.LoseRequest()})
		out, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *producer.Txn) error {
			for _, r := range b.Records() {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
					return err
				}
				r.Accept()
			}
			return nil
		})
		if out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		<-lost
		<-fired
		other := member(k.Connect(t))
		defer other.Close()
		waiting, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		if got, err := other.Poll(waiting); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("another member got %v, %v", got, err)
		}
		close(healed)
		if err := p.Land(ctx); err != nil {
			t.Fatal(err)
		}
		k.WaitDrained(t, "g")
		if n := len(k.Committed(t, "out")); n != 3 {
			t.Errorf("%d outputs", n)
		}
	})
}
