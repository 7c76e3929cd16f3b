package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/txnmanager"
)

// Producer owns one transactional id, or several in turn (AlternateIDs): one
// transaction at a time. Two processes with the same id fence each other, so
// give each its own. Safe for concurrent use.
type Producer struct {
	_     [0]func()
	id    string
	core  *core.Cluster
	lanes []*lane
	plain bool // acknowledgements follow the commit

	// gate is held by the one call that begins or initialises. A channel, since
	// its holder does I/O.
	gate  chan struct{}
	ready bool // all ids are initialised and those of an earlier life fenced; with the gate only

	mu     sync.Mutex
	next   int  // the lane of the next transaction
	open   *Txn // the last one begun
	closed bool
}

// New checks; it opens no connection. Errors are of class usage and name the
// field, or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, transactionalID string, opts ...Opt) (*Producer, error) {
	if cl == nil {
		return nil, usage("New", transactionalID, "cluster: nil")
	}
	cfg := config{ids: 1, timeout: txnmanager.DefaultTransactionTimeout}
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	p := &Producer{id: transactionalID, core: core.Of(cl), plain: cfg.plain, gate: make(chan struct{}, 1)}
	for nth := range cfg.ids {
		l, err := newLane(cl, transactionalID, nth, cfg)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.lanes = append(p.lanes, l)
	}
	return p, nil
}

// InitTransactions settles what an earlier Begin left unknown, proves that the
// brokers can stage acknowledgements, fences other producers of the ids, also of
// ids that an earlier life had beyond the present ones, and aborts what they left
// open. Idempotent. Begin does all but the proof where nobody did. Errors:
// *UnsupportedError if a broker cannot stage, with nothing sent on the staging
// key and nobody fenced (transactions that only produce still work, by Begin);
// ErrFenced, or refusals by configuration or access, of class fatal; ErrTxnOpen;
// ErrOutcomeUnknown; ErrClosed.
func (p *Producer) InitTransactions(ctx context.Context) error {
	const op = "InitTransactions"
	leave, err := p.pass(ctx, op)
	if err != nil {
		return err
	}
	defer leave()
	if err := p.proveStaging(ctx, p.lanes[0]); err != nil {
		return err
	}
	return p.initialise(ctx)
}

// proveStaging is asked of what is to be staged; with AckAfterCommit nothing is.
func (p *Producer) proveStaging(ctx context.Context, l *lane) error {
	if p.plain {
		return nil
	}
	return l.m.ProveStaging(ctx)
}

// pass lets one call at a time begin or initialise, once nothing is unknown of
// any id and all of them are still this producer's; leave must follow.
func (p *Producer) pass(ctx context.Context, op string) (leave func(), err error) {
	if err := p.alive(op); err != nil {
		return nil, err
	}
	select {
	case p.gate <- struct{}{}:
	case <-ctx.Done():
		return nil, &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, TransactionalID: p.id, Err: context.Cause(ctx)}
	}
	var found []error
	for _, l := range p.lanes {
		found = append(found, l.m.Settle(ctx, op))
	}
	if err := errors.Join(found...); err != nil {
		<-p.gate
		return nil, err
	}
	return func() { <-p.gate }, nil
}

// initialise brings every id to where a transaction can begin; the gate is held.
// The first id goes first: a producer that is fenced there uses no other.
func (p *Producer) initialise(ctx context.Context) error {
	for _, l := range p.lanes {
		if err := l.m.Init(ctx); err != nil {
			return err
		}
	}
	if p.ready {
		return nil
	}
	if err := p.lanes[0].m.FenceOthers(ctx, beyond(p.id, len(p.lanes))); err != nil {
		return err
	}
	p.ready = true
	return nil
}

func (p *Producer) alive(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, TransactionalID: p.id, Err: sharetxn.ErrClosed}
	}
	return nil
}

// alternate moves on from the lane of a transaction that was committed. After an
// abort its lane goes on: where the records stay with us (profile KIP93) they
// are bound to its end until the markers are written, and only the same id's
// coordinator makes the next transaction wait for that.
func (p *Producer) alternate(from *lane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = (from.nth + 1) % len(p.lanes)
}

func (p *Producer) lane() *lane {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lanes[p.next]
}

// Begin opens a transaction that holds the batches in: their locks are renewed
// until staging, their verdicts commit with the outputs, an abort gives them
// back. Without any it only produces, or takes acknowledgements in the KIP's
// form. An unknown outcome of the transaction before is settled first, whichever
// id it had. Nothing is sent for the new one. ctx covers Begin only. Errors:
// ErrTxnOpen; ErrStale for a batch of another cluster, or that is not open;
// *UnsupportedError if there are batches and the brokers cannot stage; and those
// of InitTransactions.
func (p *Producer) Begin(ctx context.Context, in ...Acknowledgements) (*Txn, error) {
	_, t, err := p.begin(ctx, in)
	return t, err
}

func (p *Producer) begin(ctx context.Context, in []Acknowledgements) (context.Context, *Txn, error) {
	hs := handles(in)
	var group string
	for i, h := range hs {
		if h.Cluster() != any(p.core) {
			return ctx, nil, p.stale("Begin", h, "it is of another cluster")
		}
		h.Offer()
		if i == 0 {
			group = h.Group()
		}
	}
	leave, err := p.pass(ctx, "Begin")
	if err != nil {
		return ctx, nil, err
	}
	defer leave()
	t := newTxn(p, p.lane())
	if len(hs) > 0 {
		if err := p.proveStaging(ctx, t.lane); err != nil {
			return ctx, nil, err
		}
	}
	if !p.ready {
		if err := p.initialise(ctx); err != nil {
			return ctx, nil, err
		}
	}
	spanned, tx, err := t.lane.m.Begin(ctx, txnmanager.Start{Group: group, Collect: t.collect, Check: t.lateVerdicts, Settled: t.settled, Landed: t.landed})
	if err != nil {
		return ctx, nil, err
	}
	t.tx = tx
	if err := p.hold(t, hs); err != nil {
		_ = t.Abort(ctx) // nothing was sent
		return ctx, nil, err
	}
	return spanned, t, nil
}

// hold makes t the open transaction and takes the batches; Close waits for it.
func (p *Producer) hold(t *Txn, hs []bind.Handle) error {
	_, leave, err := t.enter(context.Background(), "Begin")
	if err != nil {
		return err
	}
	defer leave()
	p.mu.Lock()
	p.open = t
	p.mu.Unlock()
	if err := p.alive("Begin"); err != nil {
		return err
	}
	for _, h := range hs {
		if err := h.Hold(); err != nil {
			return err
		}
		t.bind(h)
	}
	return nil
}

func (p *Producer) stale(op string, h bind.Handle, why string) error {
	return &sharetxn.Error{
		Op: op, Class: sharetxn.ClassAbortable, TransactionalID: p.id, Group: h.Group(),
		Err: fmt.Errorf("%w: %s", sharetxn.ErrStale, why),
	}
}

// Land waits until the end of every transaction so far stands in every partition
// that it wrote to, so that nothing can undo it; with AckAfterCommit their
// acknowledgements are on their way then. The next transaction of the same id waits
// for it anyhow. Errors: ErrNotLanded, with the partition that is in the way, or,
// of class fatal, why it never will.
func (p *Producer) Land(ctx context.Context) error {
	found := make([]error, len(p.lanes))
	for i, l := range p.lanes {
		found[i] = l.m.Land(ctx)
	}
	return errors.Join(found...)
}

// Close aborts an open transaction, waits for one that is being ended, settles
// an unknown outcome if it can, and frees everything. Bounded by CloseTimeout;
// idempotent; safe for concurrent use. The error says that an end stayed
// unanswered; the next producer of the id makes the broker decide. Where no commit
// was ever sent the batches are given back all the same.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	t := p.open
	p.mu.Unlock()
	if t != nil && t.abandon() {
		p.misuse("transaction neither committed nor aborted before Close", t.lane.id)
	}
	found := make([]error, len(p.lanes))
	var wg sync.WaitGroup
	for i, l := range p.lanes {
		wg.Go(func() { found[i] = l.m.Close() })
	}
	wg.Wait()
	return errors.Join(found...)
}

func (p *Producer) misuse(what, where string) {
	for _, h := range p.core.Hooks() {
		if h, ok := h.(sharetxn.HookMisuse); ok {
			h.OnMisuse(sharetxn.Misuse{What: what, Where: where})
		}
	}
}
