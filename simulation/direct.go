package simulation

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// attempt is a transaction that a process began without a Processor between.
type attempt struct {
	number   int // that its outputs carry
	tx       *producer.Txn
	produced int // records
}

// byHeader of an output names its attempt.
const byHeader = "by"

// try remembers a transaction.
func (w *world) try(tx *producer.Txn) *attempt {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := &attempt{number: len(w.attempts), tx: tx}
	w.attempts = append(w.attempts, a)
	return a
}

// direct lives with packages producer and shareconsumer: each member has a
// consumer and a producer of its own.
func (p *process) direct(cl *sharetxn.Cluster) error {
	var wg sync.WaitGroup
	errs := make([]error, p.w.setup.Members)
	for n := range errs {
		wg.Go(func() { errs[n] = p.member(cl, n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (p *process) member(cl *sharetxn.Cluster, n int) (err error) {
	s := p.w.setup
	c, err := p.consumer(cl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	out, err := producer.New(cl, fmt.Sprintf("tx-%s-m%d", p.name, n), producer.AlternateIDs(s.IDs), producer.ResolveTimeout(s.Resolve),
		producer.TransactionTimeout(s.Timeout), producer.LockMargin(s.Timeout/10))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for p.works() {
		if err := p.cycle(c, out); sharetxn.IsFatal(err) { // a repeated InitProducerId fences its own producer
			return err
		}
	}
	return nil
}

// consumer of a member without a Processor.
func (p *process) consumer(cl *sharetxn.Cluster) (*shareconsumer.Consumer, error) {
	return shareconsumer.New(cl, group, shareconsumer.Topics(topicIn), shareconsumer.MaxPollRecords(p.w.setup.Batch),
		shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
}

// cycle polls once and commits.
func (p *process) cycle(c *shareconsumer.Consumer, out *producer.Producer) error {
	b, err := c.Poll(p.soft)
	if err != nil {
		return err
	}
	defer b.Close()
	return p.insist(p.soft, out, b.Len, func() (sharetxn.Outcome, error) { return p.transact(out, b) })
}

// transactor is a producer or an acknowledger.
type transactor interface {
	InitTransactions(ctx context.Context) error
}

// insist commits what is held as often as it takes: each time that a batch is given back
// costs its records a delivery. One that holds a record which is not the member's any
// more is refused for ever, and must go.
func (p *process) insist(ctx context.Context, by transactor, held func() int, commit func() (sharetxn.Outcome, error)) error {
	for held() > 0 {
		o, err := commit()
		if err != nil {
			p.w.note("%s: %v: %v", p.name, o, err)
		}
		if o == sharetxn.Unknown && !sharetxn.IsFatal(err) {
			return settle(ctx, by, err)
		}
		if o != sharetxn.Aborted || sharetxn.IsFatal(err) || errors.Is(err, sharetxn.ErrStale) || !lapse.For(ctx, 200*time.Millisecond) {
			return err
		}
	}
	return nil
}

// settle asks until a transaction whose outcome is unknown has one: its records are
// held until then, and the next poll may wait for just these.
func settle(ctx context.Context, by transactor, err error) error {
	for {
		asked := by.InitTransactions(ctx)
		if !errors.Is(asked, sharetxn.ErrOutcomeUnknown) || sharetxn.IsFatal(asked) || !lapse.For(ctx, 200*time.Millisecond) {
			return errors.Join(err, asked)
		}
	}
}

func (p *process) transact(out *producer.Producer, b *shareconsumer.Batch) (sharetxn.Outcome, error) {
	if p.w.setup.Form == FormClosure {
		return out.InTransaction(p.soft, b, func(ctx context.Context, tx *producer.Txn) error { return p.work(ctx, tx, b) })
	}
	tx, err := out.Begin(p.soft, b)
	if err != nil {
		return sharetxn.Aborted, err
	}
	if err := p.work(p.soft, tx, b); err != nil {
		return sharetxn.Aborted, errors.Join(err, tx.Abort(p.soft))
	}
	return tx.Commit(p.soft)
}

// work decides and produces.
func (p *process) work(ctx context.Context, tx *producer.Txn, b *shareconsumer.Batch) error {
	a := p.w.try(tx)
	by := kgo.RecordHeader{Key: byHeader, Value: []byte(strconv.Itoa(a.number))}
	for _, r := range b.Records() {
		v := string(r.Value)
		outs := p.w.makes(v)
		if isPoison(v) {
			outs = []*kgo.Record{{Topic: topicDead, Value: r.Value}}
			r.Reject()
		} else {
			r.Accept()
		}
		for _, o := range traced(outs, r.Partition, r.Offset) {
			o.Headers = append(o.Headers, by)
		}
		if err := tx.Produce(ctx, outs...); err != nil {
			return err
		}
		a.produced += len(outs)
	}
	return p.meet(ctx)
}
