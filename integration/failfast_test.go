package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Stock Kafka cannot stage acknowledgements. It also has another API on key 93
// and closes the connection for 95, so nothing may be tried there: the library
// says what is missing before anything is sent, and the records go back.
func TestNothingIsStagedOnStockKafka(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	in, out := w.topic(ctx, t, "in", 1), w.topic(ctx, t, "out", 1)
	w.feed(ctx, t, in, 3, 1)
	c := w.consumer(t, w.group(ctx, t, nil), in, shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	b, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	p := w.producer(t)

	refused := func(what string, err error) {
		t.Helper()
		u, ok := errors.AsType[*sharetxn.UnsupportedError](err)
		if !ok || !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
			t.Fatalf("%s: %v", what, err)
		}
		f := u.Found
		if f.SupportsStaging() || f.TransactionVersion != 2 || f.ShareVersion < 1 || f.WantKey != 95 || len(f.Brokers) != k.Brokers || f.Brokers[0].MaxVer != -1 {
			t.Errorf("%s: found %+v", what, f)
		}
		for _, part := range []string{fmt.Sprintf("broker %d: ", f.Brokers[0].NodeID), f.Brokers[0].Reason, "needs key 95"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not tell %q", what, err, part)
			}
		}
	}
	refused("InitTransactions", p.InitTransactions(ctx))
	_, err = p.Begin(ctx, b)
	refused("Begin with a batch", err)
	if n := w.tap.Seen(keyInitProducerID); n != 0 {
		t.Errorf("%d InitProducerId sent: somebody was fenced for nothing", n)
	}

	// A transaction that only produces needs none of that.
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: out, Value: []byte("alone")}); err != nil {
		t.Fatal(err)
	}
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatal(o, err)
	}
	if got := w.visible(ctx, t, out); !slices.Equal(got, []string{"alone"}) {
		t.Errorf("committed: %v", got)
	}

	// The batch was not taken: given back, its records come again.
	n := b.Len()
	b.Close()
	again, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r := again.Records()[0]; again.Len() != n || r.Offset != 0 || r.DeliveryCount() != 2 {
		t.Errorf("after the refusal %d records came back, first %d, delivery %d", again.Len(), r.Offset, r.DeliveryCount())
	}
	again.Close()

	for _, key := range []int16{93, 95} {
		if n := w.tap.Seen(key); n != 0 {
			t.Errorf("%d requests with key %d", n, key)
		}
	}
	if w.tap.Seen(keyShareFetch) == 0 || w.tap.Seen(keyEndTxn) == 0 {
		t.Errorf("the tap saw %d ShareFetch and %d EndTxn: it counts wrongly", w.tap.Seen(keyShareFetch), w.tap.Seen(keyEndTxn))
	}
}
