package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A record without a verdict makes the commit an abort that names it.
func TestUndecided(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 3)
		stages := w.stages()
		var forgotten *shareconsumer.Record
		out, err := p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
			for _, b := range bs {
				for _, r := range b.Records() {
					if forgotten == nil {
						forgotten = r
						continue
					}
					r.Accept()
				}
			}
			return tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("too early")})
		})
		var re *sharetxn.RecordsError
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrUndecided) || !errors.As(err, &re) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("%v, %v", out, err)
		}
		if tp, o := forgotten.Position(); re.Topic != "in" || re.Partition != tp.Partition || len(re.Offsets) != 1 || re.Offsets[0] != o {
			t.Errorf("names %+v, want offset %d of partition %d", re, o, tp.Partition)
		}
		if handshakes := 3; w.stages() != stages+handshakes {
			t.Errorf("%d staging requests", w.stages()-stages-handshakes)
		}
		if out, err := w.one(ctx, p, bs, "it"); out != sharetxn.Committed || err != nil {
			t.Fatalf("second run: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
	})
}

// A verdict that comes after the transaction took them, and before it is ended,
// makes it an abort.
func TestLateVerdict(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, c, 3)
		r := bs[0].Records()[0]
		f := w.injectStage(1, func(broker.Request) broker.Action {
			r.Reject()
			return broker.Action{}
		})
		out, err := w.one(ctx, p, bs, "it")
		f.mustHaveFired(t, 1)
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) {
			t.Fatalf("%v, %v", out, err)
		}
		w.SetIntercept(nil)
		if out, err := w.one(ctx, p, w.again(ctx, t, c, bs, 3, 0), "again"); out != sharetxn.Committed || err != nil {
			t.Fatalf("the transaction after it: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "again")
	})
}

// A held batch is renewed: a transaction may take longer than the lock.
func TestLongerThanTheLock(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile, lock: time.Second})
		w.feed(ctx, t, 3)
		c := w.consumer(t, "g", shareconsumer.LockMargin(50*time.Millisecond))
		p := w.producer(t, "tx", LockMargin(50*time.Millisecond))
		bs := gather(ctx, t, c, 3)
		first := bs[0].Deadline()
		out, err := p.InTransaction(ctx, join(bs), func(context.Context, *Txn) error {
			testkit.Eventually(ctx, t, "the lock as it was first granted has passed", func() bool { return time.Now().After(first.Add(500 * time.Millisecond)) })
			for _, b := range bs {
				b.AcceptRest()
			}
			return nil
		})
		if out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
	})
}

// Poll, Close of the batch and Close of the consumer while a transaction holds
// the records: no acknowledgement escapes it.
func TestNothingEscapesTheTransaction(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 3)
		tx, err := p.Begin(ctx, join(bs))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bs {
			b.AcceptRest()
			b.Close()
		}
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		if _, err := c.Poll(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Poll: %v", err)
		}
		if done, _, _, pending := w.totals("g"); done != 0 || pending != 0 {
			t.Fatalf("%d records done, %d pending before the commit", done, pending)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		out, err := tx.Commit(ctx)
		if out != sharetxn.Aborted || err == nil {
			t.Fatalf("Commit after the consumer's Close: %v, %v", out, err)
		}
		if done, _, _, pending := w.totals("g"); done != 0 || pending != 0 {
			t.Fatalf("%d records done, %d pending after the abort", done, pending)
		}
		next := w.consumer(t, "g")
		if out, err := w.one(ctx, p, gather(ctx, t, next, 3), "it"); out != sharetxn.Committed || err != nil {
			t.Fatalf("the transaction after it: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
	})
}

// The closure's context is the hooks', and each transaction is seen once from
// begin to end.
func TestHooks(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		hook := &recorder{}
		w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 3)
		broken := errors.New("on purpose")
		for _, fail := range []bool{true, false} {
			_, _ = p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
				if ctx.Value(spanKey{}) != "tx" {
					t.Error("the closure's context is not the hook's")
				}
				if fail {
					return broken
				}
				for _, b := range bs {
					b.AcceptRest()
				}
				return tx.Produce(ctx, &kgo.Record{Topic: "out"}, &kgo.Record{Topic: "out"})
			})
		}
		ends, _, misuse := hook.seen()
		if len(ends) != 2 || len(misuse) != 0 {
			t.Fatalf("ends %+v, misuse %+v", ends, misuse)
		}
		if e := ends[0]; e.Outcome != sharetxn.Aborted || !errors.Is(e.Err, broken) || e.Group != "g" || e.TransactionalID != "tx" {
			t.Errorf("first: %+v", e)
		}
		if e := ends[1]; e.Outcome != sharetxn.Committed || e.Err != nil || e.Records != 3 || e.Outputs != 2 || e.Stage <= 0 || e.End <= 0 || e.LockMargin <= 0 {
			t.Errorf("second: %+v", e)
		}
	})
}
