package sweep

import (
	"context"
	"testing"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// setting is what a service promises, how it is written, and the brokers that it
// runs on.
type setting struct {
	name    string
	brokers sharetxntest.Opt
	// guarantee of the service, where it is a Processor.
	guarantee processor.Guarantee
	byHand    bool // written on package producer
}

var settings = []setting{
	{name: "staged draft95", brokers: sharetxntest.Profile(sharetxn.ProfileDraft95)},
	{name: "staged kip93", brokers: sharetxntest.Profile(sharetxn.ProfileKIP93)},
	{name: "by hand draft95", brokers: sharetxntest.Profile(sharetxn.ProfileDraft95), byHand: true},
	{name: "by hand kip93", brokers: sharetxntest.Profile(sharetxn.ProfileKIP93), byHand: true},
	{name: "ledger", brokers: sharetxntest.StockKafka44(), guarantee: processor.Ledger},
	{name: "ack after commit", brokers: sharetxntest.StockKafka44(), guarantee: processor.AckAfterCommit},
}

// service makes a service that copies "in" to "out", few records at a time, so
// that several transactions are in its life.
func (s setting) service(t *testing.T, cl *sharetxn.Cluster) sharetxntest.Runner {
	t.Helper()
	if s.byHand {
		return sharetxntest.RunnerFunc(func(ctx context.Context) error { return copyByHand(ctx, cl) })
	}
	p, err := processor.New(cl, processor.Config{
		Group: "g", Topics: []string{"in"}, Instance: "here", Guarantee: s.guarantee, MaxRecords: perTransaction,
		DeadLetter: processor.DeadLetter{Topic: "dead"},
		Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return []*kgo.Record{outputOf(in.Value)}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func outputOf(value []byte) *kgo.Record { return &kgo.Record{Topic: "out", Value: value} }

// copyByHand ends with ctx, or with the first error that ends its producer or
// member.
func copyByHand(ctx context.Context, cl *sharetxn.Cluster) error {
	c, p, err := hands(cl)
	if err != nil {
		return err
	}
	defer c.Close()
	defer p.Close()
	return copyAll(ctx, c, p)
}

func hands(cl *sharetxn.Cluster) (*shareconsumer.Consumer, *producer.Producer, error) {
	c, err := shareconsumer.New(cl, "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Transactional), shareconsumer.MaxPollRecords(perTransaction))
	if err != nil {
		return nil, nil, err
	}
	p, err := producer.New(cl, "g-by-hand")
	if err != nil {
		_ = c.Close()
		return nil, nil, err
	}
	return c, p, nil
}

func copyAll(ctx context.Context, c *shareconsumer.Consumer, p *producer.Producer) error {
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			err = copyOnce(ctx, p, batch)
		}
		if sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

func copyOnce(ctx context.Context, p *producer.Producer, batch *shareconsumer.Batch) error {
	txn, err := p.Begin(ctx, batch)
	if err != nil {
		return err
	}
	defer txn.Abort(ctx) // does nothing after Commit
	for _, r := range batch.Records() {
		if err := txn.Produce(ctx, outputOf(r.Value)); err != nil {
			return err
		}
		r.Accept()
	}
	_, err = txn.Commit(ctx)
	return err
}
