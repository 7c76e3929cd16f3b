package orders

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/sharetxn/sharetxn/processor"
)

// A handler is a function, and a record is a literal.
func TestInvoice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, err := Invoice(t.Context(), &processor.Record{Value: []byte(`{"id":"7","customer":"ann","cents":1205}`)})
		if err != nil || len(out) != 1 || out[0].Topic != "invoices" || string(out[0].Value) != "ann owes 12.05 for order 7" {
			t.Errorf("outputs %v, error %v", out, err)
		}
		for _, bad := range []string{``, `order`, `{"id":"7"}`, `{"cents":5}`, `{"id":"7","cents":-5}`} {
			out, err := Invoice(t.Context(), &processor.Record{Value: []byte(bad)})
			if reject, ok := errors.AsType[*processor.RejectError](err); !ok || reject.Reason == nil || out != nil {
				t.Errorf("%s: outputs %v, error %v", bad, out, err)
			}
		}
	})
}

// book is an Addresses.
type book map[string]string

func (b book) Find(_ context.Context, customers []string) (map[string]string, error) {
	found := make(map[string]string)
	for _, c := range customers {
		if a, ok := b[c]; ok {
			found[c] = a
		}
	}
	return found, nil
}

// A BatchHandler is tested with a batch of literals, and what it decided.
func TestLabel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		batch := processor.NewBatch(
			&processor.Record{Value: []byte(`{"id":"7","customer":"ann","cents":5}`)},
			&processor.Record{Value: []byte(`{"id":"8","customer":"bob","cents":5}`)},
			&processor.Record{Value: []byte(`order`)},
		)
		if err := Label(book{"ann": "Rose Street 1"})(t.Context(), batch); err != nil {
			t.Fatal(err)
		}
		d := batch.Decisions()
		if d[0].Verdict != "accept" || len(d[0].Outputs) != 1 || string(d[0].Outputs[0].Value) != "Rose Street 1" {
			t.Errorf("order with an address: %+v", d[0])
		}
		if d[1].Verdict != "reject" || d[2].Verdict != "reject" {
			t.Errorf("order without an address: %+v; no order: %+v", d[1], d[2])
		}
	})
}
