package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/pprof"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	group      = "bench"
	input      = "in"
	output     = "out"
	partitions = 3
	inputBatch = 100 // records of a producer batch of the input
)

// copying is the contest about records consumed, copied and acknowledged on
// an embedded broker, at so many records a transaction.
func copying(records, perTxn int) contest {
	return contest{title: fmt.Sprintf("records copied, %d a transaction, on the embedded broker", perTxn), ways: []way{
		embedded("plain: Poll, ProduceSync, CommitSync", records, perTxn, plain(commitSync)),
		embedded("plain: Poll, ProduceSync, CommitAsync", records, perTxn, plain(commitAsync)),
		embedded("Processor, Handler", records, perTxn, processed(processor.Config{Handler: each})),
		embedded("Processor, BatchHandler", records, perTxn, processed(processor.Config{BatchHandler: all})),
	}}
}

// job is one run on a broker of its own.
type job struct {
	cl              *sharetxn.Cluster
	records, perTxn int
	clock           *clock
}

// embedded makes a way of what works on a job until its clock has seen all
// records. Each run has a broker of its own, so that none inherits another's
// logs.
func embedded(name string, records, perTxn int, work func(context.Context, job) error) way {
	return way{name, func(ctx context.Context) (lap, error) {
		return copied(ctx, fmt.Sprintf("%d/%s", perTxn, name), job{records: records, perTxn: perTxn, clock: newClock(records)}, work)
	}}
}

func copied(ctx context.Context, name string, j job, work func(context.Context, job) error) (l lap, err error) {
	var b *broker.Cluster
	if err := labelled(ctx, name+"/broker", func(context.Context) (err error) {
		b, err = broker.Start(broker.Config{Topics: map[string]int32{input: partitions, output: partitions}, OffsetReset: "earliest"})
		return err
	}); err != nil {
		return l, err
	}
	defer b.Close()
	if err := feed(ctx, b, j.records); err != nil {
		return l, err
	}
	j.cl, err = sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.WithHooks(j.clock),
		sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return l, err
	}
	defer j.cl.Close()
	if err := labelled(ctx, name+"/client", func(ctx context.Context) error { return work(ctx, j) }); err != nil {
		return l, err
	}
	return j.clock.lap(), check(ctx, b, j.records)
}

// labelled runs a part under its name in a CPU profile. The goroutines that it
// starts inherit the name.
func labelled(ctx context.Context, part string, do func(context.Context) error) (err error) {
	pprof.Do(ctx, pprof.Labels("part", part), func(ctx context.Context) { err = do(ctx) })
	return err
}

// feed lays the input down in batches of inputBatch records.
func feed(ctx context.Context, b *broker.Cluster, records int) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	for done := 0; done < records; {
		var rs []*kgo.Record
		for i := range min(partitions*inputBatch, records-done) {
			r := record(input)
			r.Partition = int32(i % partitions)
			rs = append(rs, r)
		}
		if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			return err
		}
		done += len(rs)
	}
	return nil
}

// check makes sure that what was measured is what was to be done.
func check(ctx context.Context, b *broker.Cluster, records int) error {
	out, err := b.Committed(ctx, output)
	if err != nil {
		return err
	}
	if len(out) != records {
		return fmt.Errorf("%d outputs of %d records", len(out), records)
	}
	for _, s := range b.PartitionStates(group) {
		if s.Available+s.Acquired+s.Pending > 0 {
			return fmt.Errorf("partition %d of the input is not acknowledged: %+v", s.Partition, s)
		}
	}
	return nil
}

// plain is the loop of a service that can live with duplicates: nothing ties
// its outputs to its acknowledgements.
func plain(acknowledge func(context.Context, *shareconsumer.Batch) error) func(context.Context, job) error {
	return func(ctx context.Context, j job) (err error) {
		c, err := shareconsumer.New(j.cl, group, shareconsumer.Topics(input), shareconsumer.MaxPollRecords(j.perTxn),
			shareconsumer.OnAcknowledged(j.clock.onAcknowledged))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		p, err := j.cl.Client(kgo.DisableClientMetrics())
		if err != nil {
			return err
		}
		defer p.Close()
		for left := j.records; left > 0; {
			b, err := c.Poll(ctx)
			if err != nil {
				return err
			}
			rs := b.Records()
			left -= len(rs)
			out := make([]*kgo.Record, len(rs))
			for i, r := range rs {
				out[i] = &kgo.Record{Topic: output, Key: r.Key, Value: r.Value}
			}
			if err := p.ProduceSync(ctx, out...).FirstErr(); err != nil {
				return err
			}
			b.AcceptRest()
			if err := acknowledge(ctx, b); err != nil {
				return err
			}
		}
		return j.clock.wait(ctx)
	}
}

// commitSync waits for the brokers' answers before the next poll.
func commitSync(ctx context.Context, b *shareconsumer.Batch) error { return b.CommitSync(ctx) }

// commitAsync lets the acknowledgements ride on the next fetch.
func commitAsync(_ context.Context, b *shareconsumer.Batch) error { return b.CommitAsync() }

// processed is the same service on a Processor, but for the handler with its
// defaults.
func processed(cfg processor.Config) func(context.Context, job) error {
	return func(ctx context.Context, j job) error {
		cfg := cfg
		cfg.Group, cfg.Topics, cfg.MaxRecords, cfg.DeadLetter.Discard = group, []string{input}, j.perTxn, true
		p, err := processor.New(j.cl, cfg)
		if err != nil {
			return err
		}
		running, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_ = j.clock.wait(running) // or Run has ended
			stop()
		}()
		if err := p.Run(running); err != nil {
			return err
		}
		return j.clock.wait(ctx)
	}
}

func each(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	return []*kgo.Record{copyOf(in)}, nil
}

func all(_ context.Context, in *processor.Batch) error {
	for _, r := range in.Records() {
		in.Accept(r, copyOf(r))
	}
	return nil
}

func copyOf(in *processor.Record) *kgo.Record {
	return &kgo.Record{Topic: output, Key: in.Key, Value: in.Value}
}
