package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A producer that is closed while its abort has no answer lets go of what it
// held: no commit was ever sent, so nothing is unknown of the records, and nobody
// else would ever give them back.
func TestCloseWithUnansweredAbort(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, how := range []string{"Abort", "Close"} {
			t.Run(how, func(t *testing.T) {
				t.Parallel()
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile})
				w.feed(ctx, t, 3)
				c := w.consumer(t, "g")
				p := w.producer(t, "tx", ResolveTimeout(unresolved), CloseTimeout(300*time.Millisecond))
				bs := gather(ctx, t, c, 3)
				tx, err := p.Begin(ctx, join(bs))
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("never")}); err != nil {
					t.Fatal(err)
				}
				f := w.inject(keyEndTxn, 1<<30, always(broker.Action{LoseRequest: true}))
				if how == "Abort" {
					if err := tx.Abort(ctx); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
						t.Fatalf("Abort: %v", err)
					}
					if n := count(bs); n != 3 {
						t.Fatalf("%d records are held while the id is in question, want 3", n)
					}
				}
				if err := p.Close(); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
					t.Errorf("Close: %v", err)
				}
				if f.fired.Load() == 0 {
					t.Fatal("the fault did not fire")
				}
				if o := tx.Outcome(); o != sharetxn.Aborted {
					t.Errorf("outcome %v", o)
				}
				w.SetIntercept(nil)
				next := w.producer(t, "tx")
				if out, err := w.one(ctx, next, bs, "it"); out != sharetxn.Committed {
					t.Fatalf("the same batches in another producer's transaction: %v, %v", out, err)
				}
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
			})
		}
	})
}

// Its neighbour: once a commit was sent nothing is given back, whatever Close
// finds; the records may be committed.
func TestCloseWithUnansweredCommit(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		t.Parallel()
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c := w.consumer(t, "g")
		p := w.producer(t, "tx", ResolveTimeout(unresolved), CloseTimeout(300*time.Millisecond))
		bs := gather(ctx, t, c, 3)
		f := w.inject(keyEndTxn, 1<<30, always(broker.Action{LoseAnswer: true}))
		var tx *Txn
		if out, err := p.InTransaction(ctx, join(bs), func(ctx context.Context, in *Txn) error {
			tx = in
			for _, b := range bs {
				b.AcceptRest()
			}
			return tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")})
		}); out != sharetxn.Unknown {
			t.Fatalf("%v, %v", out, err)
		}
		if err := p.Close(); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
			t.Errorf("Close: %v", err)
		}
		if f.fired.Load() < 2 {
			t.Fatalf("the fault fired %d times", f.fired.Load())
		}
		if o := tx.Outcome(); o != sharetxn.Unknown {
			t.Errorf("Close makes it %v", o)
		}
		w.SetIntercept(nil)
		next := w.producer(t, "tx")
		if out, err := w.one(ctx, next, bs, "again"); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) {
			t.Fatalf("what may be committed was taken again: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
	})
}

// Close ends the transaction at the broker also when a produce request is not
// answered: waiting for that takes a part of its time, not all of it.
func TestCloseWithUnansweredProduce(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", CloseTimeout(time.Second))
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	if err := tx.lane.out.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if s := w.txn("tx").Status; s != txn.Ongoing {
		t.Fatalf("the transaction is %v", s)
	}
	never := make(chan struct{})
	defer close(never)
	f := w.inject(keyProduce, 1<<30, always(broker.Action{Wait: never}))
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("second")}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the second is under way", func() bool { return f.fired.Load() > 0 })
	began := time.Now()
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if s := w.txn("tx").Status; s != txn.PrepareAbort && s != txn.CompleteAbort {
		t.Errorf("the transaction is left %v", s)
	}
}
