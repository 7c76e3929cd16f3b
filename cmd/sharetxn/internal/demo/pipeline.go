package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// pipeline is the members of the share group and what they count.
type pipeline struct {
	cfg Config
	cl  *sharetxn.Cluster

	records, committed, aborted atomic.Int64

	mu    sync.Mutex
	rng   *rand.Rand
	turn  int // batches handled
	fails int // which of the present twenty fails
}

func newPipeline(cfg Config, cl *sharetxn.Cluster) *pipeline {
	return &pipeline{cfg: cfg, cl: cl, rng: rand.New(rand.NewPCG(cfg.Seed, 0))}
}

// unlucky draws one batch of every twenty.
func (p *pipeline) unlucky() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn%abortEvery == 0 {
		p.fails = p.rng.IntN(abortEvery)
	}
	hit := p.turn%abortEvery == p.fails
	p.turn++
	return hit
}

// run runs the members until the brokers say that nothing is left.
func (p *pipeline) run(ctx context.Context, input int) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	for i := range p.cfg.Members {
		wg.Go(func() {
			if err := p.member(ctx, i); err != nil {
				stop(fmt.Errorf("member %d: %w", i, err))
			}
		})
	}
	wg.Go(func() {
		err := p.watch(ctx, input)
		if err == nil {
			err = errDrained
		}
		stop(err)
	})
	wg.Wait()
	if err := context.Cause(ctx); !errors.Is(err, errDrained) {
		return err
	}
	return nil
}

var (
	errDrained = errors.New("nothing is left")
	errHandler = errors.New("the handler failed, on purpose")
)

// member is one service: poll, transform, produce, decide, commit.
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
	if err := pr.InitTransactions(ctx); err != nil {
		return err
	}
	for batch, err := range c.Batches(ctx) {
		if err != nil {
			if sharetxn.IsFatal(err) {
				return err
			}
			continue
		}
		for batch.Len() > 0 { // after an abort the records are still ours: run them again
			n := batch.Len()
			_, err := pr.InTransaction(ctx, batch, func(ctx context.Context, t *producer.Txn) error {
				return p.handle(ctx, t, batch)
			})
			switch {
			case err == nil:
				p.committed.Add(1)
				p.records.Add(int64(n))
			case ctx.Err() != nil:
				return nil
			case sharetxn.IsFatal(err):
				return err
			case errors.Is(err, sharetxn.ErrAborted):
				p.aborted.Add(1)
			}
		}
	}
	return nil
}

func (p *pipeline) handle(ctx context.Context, t *producer.Txn, batch *shareconsumer.Batch) error {
	for _, r := range batch.Records() {
		res := quake.Transform(r.Value)
		if res.Rejected() {
			r.Reject()
			if err := t.Produce(ctx, &kgo.Record{Topic: topics.Dead, Key: res.Key, Value: r.Value, Headers: []kgo.RecordHeader{{Key: audit.ReasonHeader, Value: []byte(res.Reason)}}}); err != nil {
				return err
			}
			continue
		}
		r.Accept()
		if err := t.Produce(ctx, &kgo.Record{Topic: topics.Enriched, Key: res.Key, Value: res.Enriched}); err != nil {
			return err
		}
		if res.Alert != nil {
			if err := t.Produce(ctx, &kgo.Record{Topic: topics.Alerts, Key: res.Key, Value: res.Alert}); err != nil {
				return err
			}
		}
	}
	if p.unlucky() {
		return errHandler
	}
	return nil
}

// watch tells progress and returns when the coordinator says that the group's
// lag is 0 on every partition that holds something.
func (p *pipeline) watch(ctx context.Context, input int) error {
	k, err := p.cl.Client()
	if err != nil {
		return err
	}
	defer k.Close()
	ask := time.NewTicker(50 * time.Millisecond)
	defer ask.Stop()
	started, told := time.Now(), time.Now()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ask.C:
		}
		if now := time.Now(); now.Sub(told) >= time.Second {
			told = now
			n := p.records.Load()
			fmt.Fprintf(p.cfg.Stderr, "%d of %d records, %d transactions, %d aborts, %.0f records/s\n", n, input, p.committed.Load(), p.aborted.Load(), float64(n)/now.Sub(started).Seconds())
		}
		drained, err := drained(ctx, k, input)
		if err != nil {
			return err
		}
		if drained {
			return nil
		}
	}
}

func drained(ctx context.Context, k *kgo.Client, input int) (bool, error) {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	t := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	t.Topic = topics.Source
	for p := range int32(min(input, partitions)) { // the others got nothing
		t.Partitions = append(t.Partitions, p)
	}
	g.Topics = append(g.Topics, t)
	req.Groups = append(req.Groups, g)
	resp, err := req.RequestWith(ctx, k)
	if err != nil {
		return false, err
	}
	done := 0
	for _, g := range resp.Groups {
		if g.ErrorCode == kerr.GroupIDNotFound.Code { // nobody has joined yet
			return false, nil
		}
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return false, err
		}
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return false, err
				}
				if p.Lag == 0 {
					done++
				}
			}
		}
	}
	return done == min(input, partitions), nil
}
