package main

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Both forms give each record out exactly once, in capitals.
func TestBothForms(t *testing.T) {
	for name, run := range map[string]func(context.Context, *sharetxn.Cluster, string, string, string, string) error{"closure": loop, "the KIP's form": kipLoop} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			b, err := broker.Start(broker.Config{
				Brokers: 3, Topics: map[string]int32{"in": 3, "out": 3}, HeartbeatInterval: 500 * time.Millisecond,
				GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			const n = 500
			want := make(map[string]bool)
			k, err := cl.Client(kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			if err != nil {
				t.Fatal(err)
			}
			defer k.Close()
			for i := range n {
				want[fmt.Sprintf("RECORD %d", i)] = true
				k.Produce(ctx, &kgo.Record{Topic: "in", Value: fmt.Appendf(nil, "record %d", i)}, nil)
			}
			if err := k.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			serve, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- run(serve, cl, "in", "out", "g", "enricher-0") }()
			for len(want) > 0 {
				fs := k.PollFetches(ctx)
				if ctx.Err() != nil {
					t.Fatalf("%d records never came", len(want))
				}
				fs.EachRecord(func(r *kgo.Record) {
					if !want[string(r.Value)] {
						t.Errorf("%s came twice, or was never sent", r.Value)
					}
					delete(want, string(r.Value))
				})
			}
			testkit.Eventually(ctx, t, "every input is done", func() bool {
				done := int64(0)
				for _, p := range b.PartitionStates("g") {
					if p.Available+p.Acquired+p.Pending > 0 {
						return false
					}
					done += p.Start
				}
				return done == n
			})
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}
