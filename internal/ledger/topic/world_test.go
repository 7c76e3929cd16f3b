package topic_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const group = "g"

// world is an embedded cluster and clients of it.
type world struct {
	b   *broker.Cluster
	co  *core.Cluster
	cl  *kgo.Client
	adm *kadm.Client
}

func start(t *testing.T, cfg broker.Config) *world {
	t.Helper()
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.MetadataMinAge(10*time.Millisecond)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	plain, err := cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	return &world{b, core.Of(cl), plain, kadm.NewClient(plain)}
}

// ledger makes the topic.
func (w *world) ledger(ctx context.Context, t *testing.T, partitions int) {
	t.Helper()
	if err := topic.Make(ctx, w.cl, group, partitions, 0); err != nil {
		t.Fatal(err)
	}
}

// put writes a value into a partition of the ledger.
func (w *world) put(ctx context.Context, t *testing.T, partition int32, value []byte) {
	t.Helper()
	if err := w.cl.ProduceSync(ctx, &kgo.Record{Topic: topic.Name(group), Partition: partition, Value: value}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// transaction writes values into a partition in one transaction.
func (w *world) transaction(ctx context.Context, t *testing.T, id string, end kgo.TransactionEndTry, partition int32, values ...[]byte) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.b.Seeds()...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: topic.Name(group), Partition: partition, Value: v}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(ctx, end); err != nil {
		t.Fatal(err)
	}
}

func encoded(t *testing.T, r interface{ Append([]byte) ([]byte, error) }) []byte {
	t.Helper()
	b, err := r.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func anEntry(generation int64) entry.Entry {
	return entry.Entry{Generation: generation, TransactionalID: "t", Partition: 1, Ranges: []entry.Range{{First: 3, Last: 5}}}
}

func active(number int64, guarantee string) entry.Generation {
	return entry.Generation{Number: number, Guarantee: guarantee, Phase: entry.Active, Group: group}
}

func resetting(number int64) entry.Generation {
	return entry.Generation{Number: number, Guarantee: "ledger", Phase: entry.Resetting, ResetTo: -2, Group: group}
}

func moving(number int64) entry.Generation {
	return entry.Generation{Number: number, Guarantee: "staged", Phase: entry.Resetting, Group: group}
}
