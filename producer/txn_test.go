package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Outputs and acknowledgements of three leaders commit together.
func TestCommit(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 30)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		var want []string
		for len(want) < 30 {
			b := poll(ctx, t, c)
			want = append(want, values(b)...)
			out, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *Txn) error { return copyAll(ctx, tx, b) })
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
		}
		w.waitDone(ctx, t, "g", 30)
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		if w.stages() == 0 {
			t.Error("nothing was staged")
		}
	})
}

func TestProduceOnly(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	var want []string
	for i := range 20 {
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		v := string(rune('a' + i))
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			if err := tx.Abort(ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		want = append(want, v)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
}

// A reason that is itself about an ended transaction, of another producer or of
// one before, is a reason like any other.
func TestAbortedBecauseAnotherHadEnded(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p, other := w.producer(t, "tx"), w.producer(t, "other")
	ended, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := ended.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		return errors.Join(tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("never")}), ended.Produce(ctx, &kgo.Record{Topic: "out"}))
	})
	if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || !errors.Is(err, sharetxn.ErrTxnEnded) {
		t.Errorf("%v, %v", out, err)
	}
	w.works(ctx, t, p, "it")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
}

// A Produce that Close overtakes, after its look at the transaction and before
// kgo, is refused like any other that is late. A Commit that waits for it lets
// Close do so.
func TestProduceOvertakenByClose(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	_, leave, err := tx.enter(ctx, "Produce")
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		out sharetxn.Outcome
		err error
	}
	ended := make(chan result, 1)
	go func() {
		out, err := tx.Commit(ctx)
		ended <- result{out, err}
	}()
	testkit.Eventually(ctx, t, "Commit takes nothing more", func() bool {
		_, leave, err := tx.enter(ctx, "Produce")
		if err == nil {
			leave()
		}
		return err != nil
	})
	if err := p.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := tx.handOver(ctx, []*kgo.Record{{Topic: "out", Value: []byte("late")}}); !errors.Is(err, sharetxn.ErrTxnEnded) {
		t.Errorf("Produce: %v", err)
	}
	leave()
	if r := <-ended; r.out != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrAborted) {
		t.Errorf("Commit: %v, %v", r.out, r.err)
	}
	w.works(ctx, t, w.producer(t, "tx"), "it")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
}
