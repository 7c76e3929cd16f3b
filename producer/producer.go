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

// Producer owns one transactional id: one transaction at a time. Two processes
// with the same id fence each other, so give each its own. Safe for concurrent
// use.
type Producer struct {
	_    [0]func()
	id   string
	core *core.Cluster
	m    *txnmanager.TransactionManager
	out  *outputs

	mu     sync.Mutex
	open   *Txn // the last one begun
	closed bool
}

// New checks; it opens no connection. Errors are of class usage and name the
// field, or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, transactionalID string, opts ...Opt) (*Producer, error) {
	if cl == nil {
		return nil, usage("New", transactionalID, "cluster: nil")
	}
	cfg := config{timeout: txnmanager.DefaultTransactionTimeout}
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	out := newOutputs(core.Of(cl), transactionalID, cfg)
	m, err := txnmanager.New(cl, transactionalID, append(cfg.manager, txnmanager.WithOutputs(out))...)
	if err != nil {
		return nil, err
	}
	if err := out.start(); err != nil { // kgo refuses options in combination
		return nil, errors.Join(usage("New", transactionalID, "KafkaOptions: %w", err), m.Close())
	}
	return &Producer{id: transactionalID, core: out.core, m: m, out: out}, nil
}

// InitTransactions proves that the brokers can stage acknowledgements, settles
// what an earlier Begin left unknown, fences other producers of the id and
// aborts what they left open. Idempotent. Begin does the last three where nobody
// did. Errors: *UnsupportedError if a broker cannot stage, with nothing sent on
// the staging key and nobody fenced (transactions that only produce still work,
// by Begin); ErrFenced, or refusals by configuration or access, of class fatal;
// ErrTxnOpen; ErrOutcomeUnknown; ErrClosed.
func (p *Producer) InitTransactions(ctx context.Context) error {
	if err := p.alive("InitTransactions"); err != nil {
		return err
	}
	if err := p.m.ProveStaging(ctx); err != nil {
		return err
	}
	return p.m.Init(ctx)
}

func (p *Producer) alive(op string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, TransactionalID: p.id, Err: sharetxn.ErrClosed}
	}
	return nil
}

// Begin opens a transaction that holds the batches in: their locks are renewed
// until staging, their verdicts commit with the outputs, an abort gives them
// back. Without any it only produces, or takes acknowledgements in the KIP's
// form. An unknown outcome of the transaction before is settled first. Nothing
// is sent for the new one. ctx covers Begin only. Errors: ErrTxnOpen; ErrStale
// for a batch of another cluster, or that is not open; *UnsupportedError if
// there are batches and the brokers cannot stage; and those of
// InitTransactions.
func (p *Producer) Begin(ctx context.Context, in ...Acknowledgements) (*Txn, error) {
	_, t, err := p.begin(ctx, in)
	return t, err
}

func (p *Producer) begin(ctx context.Context, in []Acknowledgements) (context.Context, *Txn, error) {
	if err := p.alive("Begin"); err != nil {
		return ctx, nil, err
	}
	hs := handles(in)
	t := newTxn(p)
	start := txnmanager.Start{Collect: t.collect, Check: t.lateVerdicts, Settled: t.settled}
	for i, h := range hs {
		if h.Cluster() != any(p.core) {
			return ctx, nil, p.stale("Begin", h, "it is of another cluster")
		}
		if i == 0 {
			start.Group = h.Group()
		}
	}
	if len(hs) > 0 {
		if err := p.m.ProveStaging(ctx); err != nil {
			return ctx, nil, err
		}
	}
	spanned, tx, err := p.m.Begin(ctx, start)
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

// Close aborts an open transaction, waits for one that is being ended, settles
// an unknown outcome if it can, and frees everything. Bounded by CloseTimeout;
// idempotent; safe for concurrent use. The error says that an outcome stayed
// unknown; the next producer of the id makes the broker decide.
func (p *Producer) Close() error {
	p.mu.Lock()
	p.closed = true
	t := p.open
	p.mu.Unlock()
	if t != nil && t.abandon() {
		p.misuse("transaction neither committed nor aborted before Close", p.id)
	}
	return p.m.Close()
}

func (p *Producer) misuse(what, where string) {
	for _, h := range p.core.Hooks() {
		if h, ok := h.(sharetxn.HookMisuse); ok {
			h.OnMisuse(sharetxn.Misuse{What: what, Where: where})
		}
	}
}
