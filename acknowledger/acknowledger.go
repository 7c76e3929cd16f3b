package acknowledger

import (
	"context"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/producer"
)

// TransactionalShareAcknowledger owns the transactional id
// <prefix>-<instance>-0: one transaction at a time. Safe for concurrent use.
type TransactionalShareAcknowledger struct {
	_       [0]func()
	id      string
	p       *producer.Producer // whose transactions produce nothing
	timeout time.Duration      // of Close

	// turn is held by the call that has a transaction or prepares for one. A
	// channel, since its holder does I/O.
	turn      chan struct{}
	closeOnce sync.Once
	closeErr  error

	mu      sync.Mutex // never held over I/O
	running *call
	closed  bool
}

// New checks; it opens no connection. Errors are of class usage and name the
// field, or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, transactionalIDPrefix string, opts ...Opt) (*TransactionalShareAcknowledger, error) {
	cfg := defaults()
	for _, o := range opts {
		o.apply(&cfg)
	}
	id, err := cfg.transactionalID(transactionalIDPrefix)
	if err != nil {
		return nil, err
	}
	if cfg.close <= 0 {
		return nil, usage("CloseTimeout: %v is not above 0", cfg.close)
	}
	// Close first waits for the call under way, then closes the producer: half
	// of its bound each.
	half := max(cfg.close/2, 1)
	p, err := producer.New(cl, id, append(cfg.producer, producer.CloseTimeout(half))...)
	if err != nil {
		return nil, err
	}
	return &TransactionalShareAcknowledger{id: id, p: p, timeout: half, turn: make(chan struct{}, 1)}, nil
}

// InitTransactions proves that the brokers can stage acknowledgements, settles
// what an earlier call left unknown, fences other acknowledgers of the same
// prefix and instance and aborts what they left open. Idempotent.
// CommitAcknowledgements does it all where nobody did. It waits for a call
// before it. Errors: *UnsupportedError if a broker cannot stage, with nothing
// sent on the staging key and nobody fenced; ErrFenced, or refusals by
// configuration or access, of class fatal; ErrOutcomeUnknown; ErrClosed.
func (a *TransactionalShareAcknowledger) InitTransactions(ctx context.Context) error {
	ctx, c, err := a.enter(ctx, "InitTransactions", false)
	if err != nil {
		return err
	}
	defer a.leave(c)
	return a.p.InitTransactions(ctx)
}

// CommitAcknowledgements carries the verdicts of batches, of one or several
// members and groups, through one transaction: begin, stage, commit (KIP-1289).
// What was accepted and rejected becomes final together; what was released is
// given back after the commit. Calls take turns: one waits for the one before
// it, at most until its ctx ends, and takes hold of its batches only then.
// Without any batch nothing is sent and the outcome is Committed.
//
// The error is nil if and only if the outcome is Committed. Aborted says that
// nothing was acknowledged: a batch then holds, open again and without
// verdicts, what is still this member's, and the broker delivers the rest
// again. An undecided record (ErrUndecided), a lock that has passed
// (ErrLockExpired), a batch that is not open (ErrStale), a broker that refuses,
// AbortAcknowledgements, or ctx ending before EndTxn is sent make it an abort;
// from then on ctx is ignored and the outcome is resolved within
// ResolveTimeout. Unknown, with ErrOutcomeUnknown, is settled by the next call
// before anything else. While it cannot be, that next call gives ErrOutcomeUnknown
// too, but with Aborted: its own transaction never began. Other errors are those
// of InitTransactions.
func (a *TransactionalShareAcknowledger) CommitAcknowledgements(ctx context.Context, batches ...producer.Acknowledgements) (sharetxn.Outcome, error) {
	in := producer.Join(batches...)
	ctx, c, err := a.enter(ctx, "CommitAcknowledgements", true)
	if err != nil {
		return sharetxn.Aborted, err
	}
	defer a.leave(c)
	if in.Bind() == nil {
		c.outcome, c.err = sharetxn.Committed, nil
		return c.outcome, c.err
	}
	c.outcome, c.err = a.p.InTransaction(ctx, in, func(context.Context, *producer.Txn) error { return nil })
	return c.outcome, c.err
}

// AbortAcknowledgements aborts the transaction of a CommitAcknowledgements that
// is under way in another goroutine, and waits for its end, at most until ctx
// ends; the abort then goes on. Calls that wait for their turn are not touched.
// The error is nil if nothing was under way, or if what was is proven aborted
// and the next call can go on. It says so where the abort came too late, and
// otherwise is that of the CommitAcknowledgements, which is Unknown or fatal.
func (a *TransactionalShareAcknowledger) AbortAcknowledgements(ctx context.Context) error {
	c := a.committing()
	if c == nil {
		return nil
	}
	return a.abort(ctx, c)
}

// Close aborts what is under way, waits for what is being committed, settles an
// unknown outcome if it can, and frees everything; calls that wait for their
// turn, and later ones, get ErrClosed. Bounded by CloseTimeout; idempotent; safe
// for concurrent use. The error says that an outcome stayed unknown; the next
// acknowledger of the same prefix and instance makes the broker decide.
func (a *TransactionalShareAcknowledger) Close() error {
	a.closeOnce.Do(func() { a.closeErr = a.close() })
	return a.closeErr
}

func (a *TransactionalShareAcknowledger) close() error {
	a.mu.Lock()
	a.closed = true
	c := a.running
	a.mu.Unlock()
	if c != nil {
		c.cancel(sharetxn.ErrClosed)
		bound := time.NewTimer(a.timeout)
		defer bound.Stop()
		select {
		case <-c.done:
		case <-bound.C:
		}
	}
	return a.p.Close()
}
