package demo

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ackAfter is the loop that a service has without KIP-1289: the outputs are
// committed in a transaction, then the inputs are acknowledged. What happens in
// between doubles the outputs. All else is as the Processor does it.
type ackAfter struct {
	id       string // transactional id
	dead     string // topic
	handler  *handler
	log      *slog.Logger
	consumer *shareconsumer.Consumer
	producer *producer.Producer
}

func newAckAfter(cl *sharetxn.Cluster, at names, now times, slot string, batch int, h *handler, log *slog.Logger) (*ackAfter, error) {
	id := at.group + "-" + slot
	c, err := shareconsumer.New(cl, at.group, shareconsumer.Topics(at.Source), shareconsumer.MaxPollRecords(batch))
	if err != nil {
		return nil, err
	}
	p, err := producer.New(cl, id, producer.AckAfterCommit(), producer.AlternateIDs(2), producer.TransactionTimeout(now.txn), producer.LockMargin(now.margin))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &ackAfter{id: id, dead: at.Dead, handler: h, log: log, consumer: c, producer: p}, nil
}

// Run works until ctx ends; the error is what is fatal.
func (a *ackAfter) Run(ctx context.Context) error {
	defer func() { // nothing is in hand, so what closing says changes nothing
		if closed := errors.Join(a.consumer.Close(), a.producer.Close()); closed != nil {
			a.log.Warn("ack-after-commit: closing", "id", a.id, "err", closed)
		}
	}()
	if err := a.producer.InitTransactions(ctx); err != nil {
		return stopped(ctx, err)
	}
	for batch, err := range a.consumer.Batches(ctx) {
		if err == nil {
			err = a.work(ctx, batch)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case sharetxn.IsFatal(err):
			return err
		case err != nil: // the records come back, done or not
			a.log.Warn("ack-after-commit: batch given back", "id", a.id, "err", err)
		}
	}
	return nil
}

// stopped passes over an error that is only the end of ctx.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && !sharetxn.IsFatal(err) {
		return nil
	}
	return err
}

// keepLocked is longer than a batch is worked on.
const keepLocked = time.Hour

// work commits what the batch becomes and then acknowledges it.
func (a *ackAfter) work(ctx context.Context, batch *shareconsumer.Batch) error {
	defer batch.Close()
	batch.KeepLocked(keepLocked)
	var outputs []*kgo.Record
	for _, r := range batch.Records() {
		outputs = append(outputs, a.become(ctx, r)...)
	}
	_, err := a.producer.InTransaction(ctx, nil, func(ctx context.Context, t *producer.Txn) error {
		return t.Produce(ctx, outputs...)
	})
	if err != nil {
		return err
	}
	batch.AcceptRest()
	return batch.CommitSync(ctx)
}

// become is what becomes of a record, dead letters included; a handler that
// fails is called again.
func (a *ackAfter) become(ctx context.Context, r *shareconsumer.Record) []*kgo.Record {
	in := &processor.Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Value: r.Value, Headers: r.Headers, DeliveryCount: r.DeliveryCount(), LockedUntil: r.AcquisitionDeadline(),
	}
	for {
		outputs, err := a.handler.guarded(ctx, in)
		if err == nil {
			return outputs
		}
		if reject, ok := errors.AsType[*processor.RejectError](err); ok {
			return []*kgo.Record{{
				Topic: a.dead, Key: r.Key, Value: r.Value,
				Headers: []kgo.RecordHeader{{Key: processor.HeaderReason, Value: []byte(reject.Reason.Error())}},
			}}
		}
		a.log.Warn("ack-after-commit: the handler failed", "id", a.id, "partition", r.Partition, "offset", r.Offset, "err", err)
	}
}
