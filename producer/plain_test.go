package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

func stock(c *broker.Config) { c.Stock44 = true }

// copied is a transaction that copies all of bs to "out" and rejects "2".
func copied(ctx context.Context, p *Producer, bs []*shareconsumer.Batch) (sharetxn.Outcome, error) {
	return p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
		for _, b := range bs {
			for _, r := range b.Records() {
				if string(r.Value) == "2" {
					r.Reject()
					continue
				}
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
					return err
				}
				r.Accept()
			}
		}
		return nil
	})
}

// AckAfterCommit works where nothing can be staged: an abort gives the batches
// back at no cost, a commit acknowledges them, releases included, and not a byte
// goes out on a staging key.
func TestAckAfterCommit(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	hook := &recorder{}
	w := start(t, setup{edit: stock, hooks: []sharetxn.Hook{hook}})
	w.feed(ctx, t, 6)
	c, p := w.consumer(t, "g"), w.producer(t, "tx", AckAfterCommit())
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	bs := gather(ctx, t, c, 6)
	boom := errors.New("boom")
	out, err := p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
		if err := copyAll(ctx, tx, bs[0]); err != nil {
			return err
		}
		return boom
	})
	if out != sharetxn.Aborted || !errors.Is(err, boom) || count(bs) != 6 {
		t.Fatalf("%v, %v, %d records", out, err, count(bs))
	}
	if done, _, acquired, _ := w.totals("g"); done != 0 || acquired != 6 {
		t.Fatalf("after the abort %d are done and %d acquired", done, acquired)
	}
	if out, err := copied(ctx, p, bs); out != sharetxn.Committed || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	w.waitDone(ctx, t, "g", 6)
	same(t, "visible outputs", w.visible(ctx, t, "out"), "0", "1", "3", "4", "5")
	ends, _, _ := hook.seen()
	if e := ends[len(ends)-1]; e.Records != 6 || e.Outputs != 5 || e.LockMargin < time.Second {
		t.Errorf("hooks saw %+v", e)
	}

	// Nothing produced, so nothing can be doubled: no EndTxn, and done all the same.
	w.feed(ctx, t, 3)
	bs = gather(ctx, t, c, 3)
	bs[0].Records()[0].Release()
	ended := w.Traffic(keyEndTxn).Requests
	out, err = p.InTransaction(ctx, join(bs), func(context.Context, *Txn) error {
		for _, b := range bs {
			b.AcceptRest()
		}
		return nil
	})
	if out != sharetxn.Committed || err != nil || w.Traffic(keyEndTxn).Requests != ended {
		t.Fatalf("%v, %v, %d EndTxn", out, err, w.Traffic(keyEndTxn).Requests-ended)
	}
	again := poll(ctx, t, c)
	if again.Len() != 1 || again.Records()[0].DeliveryCount() != 2 {
		t.Errorf("the released record came as %v", values(again))
	}
	for _, key := range []int16{93, 95} {
		if got := w.Traffic(key).Requests; got != 0 {
			t.Errorf("%d requests on key %d", got, key)
		}
	}
}

// While the outcome is unknown nothing is acknowledged and nothing given back;
// what is found then decides.
func TestAckAfterCommitUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		lose    broker.Action
		timeout time.Duration
		want    sharetxn.Outcome
	}{
		"was committed": {broker.Action{LoseAnswer: true}, 15 * time.Second, sharetxn.Committed},
		"timed out":     {broker.Action{LoseRequest: true}, 400 * time.Millisecond, sharetxn.Aborted},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{edit: stock})
			w.feed(ctx, t, 3)
			cons := w.consumer(t, "g")
			p := w.producer(t, "tx", AckAfterCommit(), ResolveTimeout(unresolved), TransactionTimeout(c.timeout), LockMargin(10*time.Millisecond))
			if err := p.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			bs := gather(ctx, t, cons, 3)
			f := w.inject(keyEndTxn, 1<<30, always(c.lose))
			if out, err := copied(ctx, p, bs); out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
				t.Fatalf("%v, %v", out, err)
			}
			if f.fired.Load() == 0 {
				t.Fatal("nothing was lost")
			}
			if done, available, acquired, _ := w.totals("g"); done+available != 0 || acquired != 3 {
				t.Fatalf("while unknown: %d done, %d available, %d acquired", done, available, acquired)
			}
			testkit.Eventually(ctx, t, "the broker has decided", func() bool {
				got := fmt.Sprint(w.txn("tx").Status)
				return c.want == sharetxn.Committed && got == "CompleteCommit" || c.want == sharetxn.Aborted && got == "CompleteAbort"
			})
			w.SetIntercept(nil)
			if err := p.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			if c.want == sharetxn.Aborted {
				if done, _, acquired, _ := w.totals("g"); done != 0 || acquired != 3 || count(bs) != 3 {
					t.Fatalf("after the abort: %d done, %d acquired, %d in hand", done, acquired, count(bs))
				}
				if out, err := copied(ctx, p, bs); out != sharetxn.Committed || err != nil {
					t.Fatalf("%v, %v", out, err)
				}
			}
			w.waitDone(ctx, t, "g", 3)
			same(t, "visible outputs", w.visible(ctx, t, "out"), "0", "1")
		})
	}
}

// It is at least once: a consumer that goes between the commit and the
// acknowledgement leaves the records to be delivered and copied again.
func TestAckAfterCommitDoubles(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{edit: stock})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.producer(t, "tx", AckAfterCommit())
	bs := gather(ctx, t, c, 3)
	came, free := make(chan struct{}), make(chan struct{})
	w.inject(keyEndTxn, 1, func(broker.Request) broker.Action { close(came); return broker.Action{Wait: free} })
	ended := make(chan error, 1)
	go func() { _, err := copied(ctx, p, bs); ended <- err }()
	select {
	case <-came:
	case <-ctx.Done():
		t.Fatal("no EndTxn")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	close(free)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if out, err := copied(ctx, p, gather(ctx, t, w.consumer(t, "g"), 3)); out != sharetxn.Committed || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	w.waitDone(ctx, t, "g", 3)
	same(t, "visible outputs", w.visible(ctx, t, "out"), "0", "0", "1", "1")
}

// A lock that has passed refuses the commit here too: others may have the records.
func TestAckAfterCommitTooLate(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{edit: stock, lock: time.Second})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.producer(t, "tx", AckAfterCommit(), LockMargin(10*time.Second))
	out, err := copied(ctx, p, gather(ctx, t, c, 3))
	if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrLockExpired) {
		t.Fatalf("%v, %v", out, err)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"))
}

// Acknowledgements in the KIP's form are staged, or nothing.
func TestAckAfterCommitRefusesTheKIPsForm(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.producer(t, "tx", AckAfterCommit())
	b := poll(ctx, t, c)
	out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		set, err := acks.FromRecords(b.Records(), acks.Accept)
		if err != nil {
			return err
		}
		return tx.SendShareAcknowledgementsToTransaction(ctx, set.Map(), c.ShareGroupMetadata())
	})
	if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrUsage) {
		t.Fatalf("%v, %v", out, err)
	}
}

// Records of a topic with ManualPartition go where they say; those of others
// where the client's partitioner says.
func TestManualPartition(t *testing.T) {
	toLast := kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
		return func(_ *kgo.Record, n int) int { return n - 1 }
	})
	for name, c := range map[string]struct {
		opts []kgo.Opt
		want int32 // of the others
	}{
		"the default":      {nil, -1},
		"one of the users": {[]kgo.Opt{kgo.RecordPartitioner(toLast)}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{edit: stock})
			p := w.producer(t, "tx", ManualPartition("in"), KafkaOptions(c.opts...))
			var mine, others []*kgo.Record
			for i := range 12 {
				mine = append(mine, &kgo.Record{Topic: "in", Partition: int32(i % 3), Key: []byte("same")})
				others = append(others, &kgo.Record{Topic: "out", Partition: int32(i % 3), Key: []byte("same")})
			}
			out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if tx.TransactionalID() != "tx" {
					t.Errorf("id %q", tx.TransactionalID())
				}
				return tx.Produce(ctx, append(mine, others...)...)
			})
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
			for i, r := range mine {
				if r.Partition != int32(i%3) {
					t.Errorf("record %d went to partition %d", i, r.Partition)
				}
			}
			for i, r := range others {
				if r.Partition != others[0].Partition || c.want >= 0 && r.Partition != c.want {
					t.Errorf("record %d of the others went to partition %d", i, r.Partition)
				}
			}
		})
	}
}
