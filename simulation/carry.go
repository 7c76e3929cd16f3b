package simulation

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acknowledger"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// carry lives with packages acknowledger and shareconsumer, as a framework does that
// keeps its outputs elsewhere: each member has a consumer of its own, and all of them
// commit by one acknowledger, which takes them in turn. Members end together.
func (p *process) carry(cl *sharetxn.Cluster) (err error) {
	s := p.w.setup
	a, err := acknowledger.New(cl, "acks", acknowledger.Instance(p.name), acknowledger.ResolveTimeout(s.Resolve),
		acknowledger.TransactionTimeout(s.Timeout), acknowledger.LockMargin(s.Timeout/10))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	ctx, end := context.WithCancel(p.soft)
	defer end()
	var wg sync.WaitGroup
	errs := make([]error, s.Members)
	for n := range errs {
		wg.Go(func() {
			defer end()
			errs[n] = p.carrier(ctx, cl, a)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// carrier is one member, until ctx ends or its acknowledger can do nothing more.
func (p *process) carrier(ctx context.Context, cl *sharetxn.Cluster, a *acknowledger.TransactionalShareAcknowledger) (err error) {
	c, err := p.consumer(cl)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for ctx.Err() == nil {
		if err := p.carryNext(ctx, c, a); sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

// gathers is how long a member waits for a second batch to commit with the first.
const gathers = 50 * time.Millisecond

// carryNext commits what it polls: one batch, or two in one call.
func (p *process) carryNext(ctx context.Context, c *shareconsumer.Consumer, a *acknowledger.TransactionalShareAcknowledger) error {
	b, err := c.Poll(ctx)
	if err != nil {
		return err
	}
	defer b.Close()
	bs := []*shareconsumer.Batch{b}
	brief, cancel := context.WithTimeout(ctx, gathers)
	if second, err := c.Poll(brief); err == nil { // what is wrong the next Poll tells, too
		defer second.Close()
		bs = append(bs, second)
	}
	cancel()
	held := func() (n int) {
		for _, b := range bs {
			n += b.Len()
		}
		return n
	}
	return p.insist(ctx, a, held, func() (sharetxn.Outcome, error) { return p.acknowledge(ctx, a, bs) })
}

// abortsLate is how long after the begin of a transaction its abort comes, where that
// may be too late.
const abortsLate = 300 * time.Millisecond

// acknowledge decides, puts what it makes into the store, and commits. A call that the
// script wants to fail is aborted by somebody else once its transaction has begun, or
// every other time so late that it may be too late.
func (p *process) acknowledge(ctx context.Context, a *acknowledger.TransactionalShareAcknowledger, bs []*shareconsumer.Batch) (o sharetxn.Outcome, err error) {
	l := p.w.load()
	in := make([]producer.Acknowledgements, len(bs))
	for i, b := range bs {
		in[i] = b
		for _, r := range b.Records() {
			v := string(r.Value)
			if isPoison(v) {
				r.Reject()
			} else {
				r.Accept()
			}
			l.put(r.Partition, r.Offset, p.w.stores(v))
		}
	}
	switch err := p.meet(ctx); {
	case errors.Is(err, errMood):
		var aborts sync.WaitGroup
		defer aborts.Wait()
		returned := make(chan struct{})
		defer close(returned)
		aborts.Go(func() {
			select {
			case <-l.begun:
				if l.number%2 > 0 && !lapse.For(ctx, abortsLate) {
					return
				}
				if err := a.AbortAcknowledgements(ctx); err != nil {
					p.w.note("%s: not aborted: %v", p.name, err)
				}
			case <-returned:
			}
		})
	case err != nil:
		return sharetxn.Aborted, err
	}
	o, err = a.CommitAcknowledgements(carrying(ctx, l), in...)
	p.w.tell(l, o)
	return o, err
}
