package producer

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// BenchmarkTransaction is one record per transaction on an embedded broker:
// produced, acknowledged, or both.
func BenchmarkTransaction(b *testing.B) {
	for _, c := range []struct {
		name                 string
		produce, acknowledge bool
	}{{"produce", true, false}, {"acknowledge", false, true}, {"both", true, true}} {
		b.Run(c.name, func(b *testing.B) {
			ctx := testkit.Deadline(b, 10*time.Minute)
			w := start(b, setup{})
			cons, p := w.consumer(b, "g", shareconsumer.MaxPollRecords(1)), w.producer(b, "tx")
			if err := p.InitTransactions(ctx); err != nil {
				b.Fatal(err)
			}
			value := make([]byte, 100)
			for b.Loop() {
				var in Acknowledgements
				var batch *shareconsumer.Batch
				if c.acknowledge {
					b.StopTimer()
					w.feed(ctx, b, 1)
					batch = poll(ctx, b, cons)
					in = batch
					b.StartTimer()
				}
				out, err := p.InTransaction(ctx, in, func(ctx context.Context, tx *Txn) error {
					if c.acknowledge {
						batch.AcceptRest()
					}
					if !c.produce {
						return nil
					}
					return tx.Produce(ctx, &kgo.Record{Topic: "out", Value: value})
				})
				if out != sharetxn.Committed {
					b.Fatal(out, err)
				}
			}
		})
	}
}
