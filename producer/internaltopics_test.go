package producer_test

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Where there can be no transaction coordinator, what initialises says why within
// seconds; nothing is lost by it, and once brokers have joined the same producer
// works.
func TestInternalTopics(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	b, err := broker.Start(broker.Config{Topics: map[string]int32{"out": 1}, InternalReplicas: broker.InternalReplicas{Transactions: 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	p, err := producer.New(cl, "id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	wantFault := func(what string, err error) {
		t.Helper()
		fault, ok := errors.AsType[*sharetxn.InternalTopicsError](err)
		if !ok || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || fault.Brokers != 1 || len(fault.Topics) != 1 || fault.Topics[0].Setting != "transaction.state.log.replication.factor" {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantFault("InitTransactions", p.InitTransactions(ctx))
	_, err = p.Begin(ctx)
	wantFault("Begin", err)
	if _, err := b.AddNode(); err != nil {
		t.Fatal(err)
	}
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("a")}); err != nil {
		t.Fatal(err)
	}
	if o, err := tx.Commit(ctx); o != sharetxn.Committed {
		t.Errorf("%v, %v", o, err)
	}
}
