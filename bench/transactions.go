package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// recordBytes is the size of every value here.
const recordBytes = 100

// transactions is the contest about transactions of one record, one after
// another from one goroutine, on stock Kafka: they need nothing of KIP-1289. A
// run makes each of them after one that does not count, which finds brokers and
// gets the producer id.
func transactions(seeds []string, topic string, each int) contest {
	return contest{title: "transactions of one record, on Kafka " + kafka.Version(), ways: []way{
		{"kgo: BeginTransaction, ProduceSync, EndTransaction", func(ctx context.Context) (lap, error) {
			return kgoLoop(ctx, seeds, topic, each)
		}},
		{"producer, one transactional id", func(ctx context.Context) (lap, error) {
			return producerLoop(ctx, seeds, topic, each, "bench-one", 1)
		}},
		{"producer, AlternateIDs(2)", func(ctx context.Context) (lap, error) {
			return producerLoop(ctx, seeds, topic, each, "bench-two", 2)
		}},
	}}
}

// kgoLoop is kgo's own loop, with kgo's own defaults.
func kgoLoop(ctx context.Context, seeds []string, topic string, each int) (lap, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.TransactionalID("bench-kgo"))
	if err != nil {
		return lap{}, err
	}
	defer cl.Close()
	return clocked(each, func() error {
		if err := cl.BeginTransaction(); err != nil {
			return err
		}
		if err := cl.ProduceSync(ctx, record(topic)).FirstErr(); err != nil {
			return err
		}
		return cl.EndTransaction(ctx, kgo.TryCommit)
	})
}

func producerLoop(ctx context.Context, seeds []string, topic string, each int, id string, ids int) (_ lap, err error) {
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(seeds...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return lap{}, err
	}
	defer cl.Close()
	p, err := producer.New(cl, id, producer.AlternateIDs(ids))
	if err != nil {
		return lap{}, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	return clocked(each, func() error {
		tx, err := p.Begin(ctx)
		if err != nil {
			return err
		}
		if err := tx.Produce(ctx, record(topic)); err != nil {
			return errors.Join(err, tx.Abort(ctx))
		}
		_, err = tx.Commit(ctx)
		return err
	})
}

func record(topic string) *kgo.Record {
	return &kgo.Record{Topic: topic, Value: make([]byte, recordBytes)}
}

// clocked does it once, and then n times by the clock.
func clocked(n int, do func() error) (lap, error) {
	if err := do(); err != nil {
		return lap{}, err
	}
	began := time.Now()
	for range n {
		if err := do(); err != nil {
			return lap{}, err
		}
	}
	return lap{n, time.Since(began)}, nil
}
