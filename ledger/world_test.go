package ledger_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const group = "g"

// world is an embedded cluster that looks like stock Kafka, and clients of it.
type world struct {
	b   *broker.Cluster
	cl  *sharetxn.Cluster
	raw *kgo.Client
	adm *kadm.Client
}

func start(t *testing.T, cfg broker.Config) *world {
	t.Helper()
	cfg.Stock44 = true
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
	raw, err := cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	return &world{b, cl, raw, kadm.NewClient(raw)}
}

// ensured has a ledger for topics, and a group that leaves nothing to say.
func ensured(ctx context.Context, t *testing.T, cfg broker.Config, topics ...string) *world {
	t.Helper()
	w := start(t, cfg)
	if err := ledger.Ensure(ctx, w.cl, group, topics); err != nil {
		t.Fatal(err)
	}
	if err := groupconfig.Set(ctx, w.cl, group, groupconfig.DeliveryCountLimit(10), groupconfig.IsolationLevel(groupconfig.ReadCommitted), groupconfig.AutoOffsetReset("earliest")); err != nil {
		t.Fatal(err)
	}
	return w
}

// states are what the ledger's partitions say.
func (w *world) states(ctx context.Context, t *testing.T) topic.States {
	t.Helper()
	infos, _, err := topic.Describe(ctx, w.raw, topic.Name(group))
	if err != nil {
		t.Fatal(err)
	}
	states, err := topic.ReadStates(ctx, core.Of(w.cl), group, infos[0].Partitions)
	if err != nil {
		t.Fatal(err)
	}
	return states
}

// generations are what they say of generations.
func (w *world) generations(ctx context.Context, t *testing.T) (out []entry.Generation) {
	t.Helper()
	for _, s := range w.states(ctx, t) {
		out = append(out, s.Generation)
	}
	return out
}

// write puts a generation into partitions.
func (w *world) write(ctx context.Context, t *testing.T, g entry.Generation, partitions ...int32) {
	t.Helper()
	if err := topic.WriteGeneration(ctx, core.Of(w.cl), group, g, partitions); err != nil {
		t.Fatal(err)
	}
}

func active(number int64, guarantee string) entry.Generation {
	return entry.Generation{Number: number, Guarantee: guarantee, Phase: entry.Active, Group: group}
}

func resetting(number int64) entry.Generation {
	return entry.Generation{Number: number, Guarantee: ledger.Ledger, Phase: entry.Resetting, ResetTo: -2, Group: group}
}

// member joins the group and gives what it gets first.
func (w *world) member(ctx context.Context, t *testing.T, topics ...string) *shareconsumer.Consumer {
	t.Helper()
	c, err := shareconsumer.New(w.cl, group, shareconsumer.Topics(topics...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// feed writes records into a partition of a source topic, n of them.
func (w *world) feed(ctx context.Context, t *testing.T, topic string, partition int32, n int) {
	t.Helper()
	for range n {
		if err := w.raw.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

// joined waits until the member has been given a record.
func (w *world) joined(ctx context.Context, t *testing.T, c *shareconsumer.Consumer) {
	t.Helper()
	b, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	b.Close()
}
