package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pipeline is the members of the share group.
type pipeline struct {
	cfg   Config
	cl    *sharetxn.Cluster
	count *counts
	input int           // records fed
	stall time.Duration // no commit for so long is a failure
	dice  *dice
	log   *slog.Logger
}

var (
	errDrained = errors.New("nothing is left")
	errHandler = errors.New("the handler failed, on purpose")
)

// run runs the members until the brokers say that nothing is left.
func (p *pipeline) run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for n := range p.cfg.Members {
		wg.Go(func() {
			if err := p.member(ctx, n); err != nil {
				stop(fmt.Errorf("member %d: %w", n, err))
			}
		})
	}
	wg.Go(func() {
		if err := p.watch(ctx); err != nil {
			stop(err)
			return
		}
		stop(errDrained)
	})
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errDrained) {
		return err
	}
	return nil
}

// member is one service: poll, transform, produce, decide, commit, until ctx
// ends.
func (p *pipeline) member(ctx context.Context, n int) error {
	c, err := shareconsumer.New(p.cl, group, shareconsumer.Topics(topics.Source), shareconsumer.AcknowledgementMode(shareconsumer.Transactional),
		shareconsumer.MaxPollRecords(p.cfg.Batch), shareconsumer.MaxWait(50*time.Millisecond))
	if err != nil {
		return err
	}
	defer c.Close()
	pr, err := producer.New(p.cl, fmt.Sprintf("enricher-%d", n), producer.TransactionTimeout(txnTimeout), producer.LockMargin(lockMargin))
	if err != nil {
		return err
	}
	defer pr.Close()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			err = p.work(ctx, pr, batch)
		}
		switch {
		case ctx.Err() != nil:
			return nil // run knows why
		case sharetxn.IsFatal(err):
			return err
		case err != nil: // the records come back by themselves
			p.log.Warn("batch given back", "member", n, "err", err)
		}
	}
	return nil
}

// work runs a batch until it is committed: after an abort that came before
// staging its records are still ours.
func (p *pipeline) work(ctx context.Context, pr *producer.Producer, batch *shareconsumer.Batch) error {
	for batch.Len() > 0 {
		_, err := pr.InTransaction(ctx, batch, func(ctx context.Context, t *producer.Txn) error {
			return p.handle(ctx, t, batch)
		})
		if err != nil && (ctx.Err() != nil || !errors.Is(err, sharetxn.ErrAborted)) {
			return err
		}
	}
	return nil
}

// handle produces what each record becomes and decides it.
func (p *pipeline) handle(ctx context.Context, t *producer.Txn, batch *shareconsumer.Batch) error {
	for _, r := range batch.Records() {
		res := quake.Transform(r.Value)
		if err := t.Produce(ctx, outputs(r.Value, res)...); err != nil {
			return err
		}
		if res.Rejected() {
			r.Reject()
		} else {
			r.Accept()
		}
	}
	if !p.dice.unlucky() {
		return nil
	}
	select {
	case <-time.After(abortAfter):
	case <-ctx.Done():
	}
	return errHandler
}

// outputs are the records of one result.
func outputs(value []byte, res quake.Result) []*kgo.Record {
	if res.Rejected() {
		return []*kgo.Record{{Topic: topics.Dead, Key: res.Key, Value: value, Headers: []kgo.RecordHeader{{Key: audit.ReasonHeader, Value: []byte(res.Reason)}}}}
	}
	out := []*kgo.Record{{Topic: topics.Enriched, Key: res.Key, Value: res.Enriched}}
	if res.Alert != nil {
		out = append(out, &kgo.Record{Topic: topics.Alerts, Key: res.Key, Value: res.Alert})
	}
	return out
}
