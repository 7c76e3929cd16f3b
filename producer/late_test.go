package producer

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What fails of a transaction after its end, as a delivery that is answered late,
// fails nothing of the next one, which is open by then.
func TestLateFailureTouchesNoOther(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	late := errors.New("late")
	var before *Txn
	for _, value := range []string{"first", "second"} {
		tx, err := p.Begin(ctx)
		if err == nil {
			err = tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(value)})
		}
		if err != nil {
			t.Fatal(err)
		}
		if before != nil {
			if err := before.tx.FailWith(late); !errors.Is(err, late) || before.Err() != nil {
				t.Errorf("FailWith after the end: %v, and %v is kept", err, before.Err())
			}
		}
		if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
			t.Fatalf("%s: %v, %v", value, out, err)
		}
		before = tx
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), "first", "second")
}
