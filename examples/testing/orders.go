// Package orders is a service whose tests are the example: handlers alone, and
// the service around them on a cluster in the test's own process.
package orders

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Order is an input.
type Order struct {
	ID       string `json:"id"`
	Customer string `json:"customer"`
	Cents    int64  `json:"cents"`
}

func parse(in *processor.Record) (o Order, err error) {
	if err := json.Unmarshal(in.Value, &o); err != nil {
		return o, fmt.Errorf("no order: %w", err)
	}
	if o.ID == "" || o.Cents <= 0 {
		return o, errors.New("an order needs an id and a price")
	}
	return o, nil
}

// Invoice makes an invoice of an order. It is a processor.Handler.
func Invoice(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	o, err := parse(in)
	if err != nil {
		return nil, processor.Reject(err)
	}
	text := fmt.Sprintf("%s owes %d.%02d for order %s", o.Customer, o.Cents/100, o.Cents%100, o.ID)
	return []*kgo.Record{{Topic: "invoices", Key: []byte(o.ID), Value: []byte(text)}}, nil
}

// Addresses looks up where customers live, all in one call; unknown customers
// are left out.
type Addresses interface {
	Find(ctx context.Context, customers []string) (map[string]string, error)
}

// Label makes parcel labels with one look-up for all orders of a call, which is
// what a BatchHandler is for.
func Label(a Addresses) processor.BatchHandler {
	return func(ctx context.Context, in *processor.Batch) error {
		orders := make(map[*processor.Record]Order)
		var customers []string
		for _, r := range in.Records() {
			o, err := parse(r)
			if err != nil {
				in.Reject(r, err)
				continue
			}
			orders[r], customers = o, append(customers, o.Customer)
		}
		found, err := a.Find(ctx, customers)
		if err != nil {
			return err // fails what is not decided yet: it is tried again
		}
		for _, r := range in.Records() {
			o, ok := orders[r]
			to, known := found[o.Customer]
			switch {
			case !ok: // rejected above
			case known:
				in.Accept(r, &kgo.Record{Topic: "labels", Key: []byte(o.ID), Value: []byte(to)})
			default:
				in.Reject(r, fmt.Errorf("customer %q has no address", o.Customer))
			}
		}
		return nil
	}
}
