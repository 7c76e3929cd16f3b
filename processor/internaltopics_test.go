package processor_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Brokers whose internal topics cannot be created: the log names the setting
// within seconds, Run works if brokers join in time, and else ends with what is
// wrong, well before it would give up on brokers that are out of reach.
func TestInternalTopics(t *testing.T) {
	for name, joins := range map[string]bool{"a broker joins": true, "none joins": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 60*time.Second)
			b, err := broker.Start(broker.Config{
				Topics: map[string]int32{"in": 1, "out": 1, "dead": 1}, OffsetReset: "earliest", HeartbeatInterval: 100 * time.Millisecond,
				InternalReplicas: broker.InternalReplicas{Offsets: 2, Transactions: 2, ShareState: 2},
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			var log logged
			cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cl.Close)
			plain, err := cl.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer plain.Close()
			if err := plain.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("a")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			handled := make(chan struct{}, 10)
			p, err := processor.New(cl, processor.Config{
				Group: "g", Topics: []string{"in"}, DeadLetter: processor.DeadLetter{Topic: "dead"}, InputIsolation: processor.AllowReadUncommitted,
				Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) {
					handled <- struct{}{}
					return nil, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			defer stop()
			done := make(chan error, 1)
			go func() { done <- p.Run(running) }()
			testkit.Eventually(ctx, t, "the setting is in the log", func() bool { return log.count("transaction.state.log.replication.factor=1") > 0 })
			if !joins {
				err := <-done
				if _, ok := errors.AsType[*sharetxn.InternalTopicsError](err); !ok {
					t.Errorf("Run: %v", err)
				}
				return
			}
			if _, err := b.AddNode(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-handled:
			case err := <-done:
				t.Fatalf("Run: %v", err)
			}
			stop()
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}
