package producer

import (
	"context"
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
