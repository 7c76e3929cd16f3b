package processor_test

import (
	"context"
	"testing"

	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers lose the end of a transaction in each partition of the outputs, and in one
// of the ledger, while others of the same ids abort: every record is done once, and
// none is acknowledged whose outputs an abort could still hide.
func TestLostMarkers(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 300)
		for i := range int32(3) {
			w.LoseMarker(t, "out", i)
		}
		if on.guarantee == processor.Ledger {
			w.LoseMarker(t, topic.Name("g"), 0)
		}
		p := w.processor(t, processor.Config{
			MaxRecords: 20,
			Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
				if string(in.Value) == "150" { // what brokers refuse: its transactions abort
					return []*kgo.Record{{Topic: "out", Value: make([]byte, 3<<20)}}, nil
				}
				return []*kgo.Record{{Topic: "out", Key: in.Value, Value: in.Value}}, nil
			}),
		})
		w.RunUntilDrained(t, "g", p)
		w.want(t, 300, "150")
		w.seen.healthy(t, 3, "150")
	})
}
