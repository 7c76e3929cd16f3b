package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Txn is one transaction. All but Commit may be called concurrently. After the
// end everything but Abort and Err gives ErrTxnEnded, so that late output is
// not lost in silence.
type Txn struct {
	_    [0]func()
	p    *Producer
	lane *lane
	tx   *txnmanager.Transaction
	done chan struct{} // closed when the transaction has ended

	mu      sync.Mutex
	shut    bool // nothing more is taken
	calls   map[*call]struct{}
	empty   chan struct{} // closed when shut and no call is left
	bound   []*bound
	outcome sharetxn.Outcome
	told    bool // done is closed
}

// call is a call that adds to the transaction; the end waits for it.
type call struct{ cancel context.CancelCauseFunc }

func newTxn(p *Producer, l *lane) *Txn {
	return &Txn{p: p, lane: l, done: make(chan struct{}), empty: make(chan struct{}), calls: make(map[*call]struct{})}
}

// enter lets a call in, with a context that also ends when the transaction is
// aborted; leave must follow.
func (t *Txn) enter(ctx context.Context, op string) (_ context.Context, leave func(), _ error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return ctx, nil, t.endedError(op)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &call{cancel}
	t.calls[c] = struct{}{}
	return ctx, func() {
		cancel(nil)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.calls, c)
		if t.shut && len(t.calls) == 0 {
			close(t.empty)
		}
	}, nil
}

// close takes nothing more; false if that was so before.
func (t *Txn) close() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.shut {
		return false
	}
	t.shut = true
	if len(t.calls) == 0 {
		close(t.empty)
	}
	return true
}

// expel ends the calls that were let in and waits until they have left.
func (t *Txn) expel() {
	t.mu.Lock()
	for c := range t.calls {
		c.cancel(sharetxn.ErrTxnEnded)
	}
	t.mu.Unlock()
	<-t.empty
}

func (t *Txn) endedError(op string) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, TransactionalID: t.lane.id, Err: sharetxn.ErrTxnEnded}
}

// TransactionalID is the id that the transaction has: of several (AlternateIDs)
// the one whose turn it is.
func (t *Txn) TransactionalID() string { return t.lane.id }

// Err is why the transaction is abort-only, or was not committed; nil while it
// can commit, and after it did.
func (t *Txn) Err() error { return t.tx.Err() }

// Outcome is how the transaction has ended: Unknown while it has not, and while
// nothing proves how; after an Unknown of Commit, what the Begin or
// InitTransactions that settled it found.
func (t *Txn) Outcome() sharetxn.Outcome {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.outcome
}

// Commit flushes, stages the acknowledgements and ends the transaction. The
// error is nil if and only if the outcome is Committed. A failed delivery or
// staging, an undecided record, a lock that has passed, or ctx ending make it
// an abort: the error wraps ErrAborted and the reason. Once EndTxn is sent ctx
// is ignored and the outcome is resolved within ResolveTimeout, so the
// service's own context is right. Unknown, with ErrOutcomeUnknown, is settled by
// the next Begin or InitTransactions; until then its records are held, so that a
// Poll before it may wait in vain. ErrTxnEnded, with Unknown, says that the
// outcome was told before.
//
// A transaction in which nothing was produced, accepted or rejected is Committed
// without a request to a broker.
func (t *Txn) Commit(ctx context.Context) (sharetxn.Outcome, error) {
	if !t.close() {
		return sharetxn.Unknown, t.endedError("Commit")
	}
	return t.commit(ctx)
}

// commit is Commit after close.
func (t *Txn) commit(ctx context.Context) (sharetxn.Outcome, error) {
	select {
	case <-t.empty:
	case <-ctx.Done():
		_ = t.tx.FailWith(context.Cause(ctx))
		t.expel()
	}
	return t.end(ctx, true)
}

// Abort ends the transaction and gives its batches back. It is a no-op after
// the end, so a deferred Abort is right; while another goroutine ends the
// transaction it waits for that. It works, bounded by ResolveTimeout, also when
// ctx has ended. The error is nil if the outcome is Aborted and the producer
// can go on, or the transaction had ended.
func (t *Txn) Abort(ctx context.Context) error {
	if !t.close() {
		select {
		case <-t.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("waiting for the transaction's end: %w", context.Cause(ctx))
		}
	}
	t.expel()
	o, err := t.end(ctx, false)
	if o == sharetxn.Aborted && !sharetxn.IsFatal(err) {
		return nil
	}
	return err
}

// abandon is Close's part of an abort: the manager does the rest. It tells
// whether nobody had begun to end the transaction.
func (t *Txn) abandon() bool {
	if !t.close() {
		return false
	}
	t.expel()
	return true
}

func (t *Txn) end(ctx context.Context, commit bool) (sharetxn.Outcome, error) {
	o, err := t.tx.End(ctx, commit)
	switch {
	case !errors.Is(err, sharetxn.ErrTxnEnded):
	case errors.Is(err, sharetxn.ErrAborted), errors.Is(err, sharetxn.ErrOutcomeUnknown): // only its reason
	default: // Close was quicker
		<-t.done
		return t.result()
	}
	return o, err
}

// result is how the transaction has ended.
func (t *Txn) result() (sharetxn.Outcome, error) {
	return t.Outcome(), t.tx.Err()
}

// delivered is kgo's promise.
func (t *Txn) delivered(r *kgo.Record, err error) {
	t.tx.Wrote(r.Topic, r.Partition, err == nil)
	switch {
	case err == nil:
		return
	case errors.Is(err, kgo.ErrAborting): // our own abort takes it back
		return
	}
	t.lane.out.refused(r.Topic, err)
	_ = t.tx.FailWith(txnmanager.ProduceError(t.lane.id, r.Topic, r.Partition, err))
}

// Produce buffers records; delivery goes on in the background. The error says
// only whether they were taken: a delivery that fails later makes Commit abort
// and name its partition. Any error but ErrTxnEnded makes the transaction
// abort-only. ctx covers the call, which blocks while kgo's buffer is full, and
// not the delivery. Records must not be changed until the transaction has ended.
func (t *Txn) Produce(ctx context.Context, rs ...*kgo.Record) error {
	ctx, leave, err := t.enter(ctx, "Produce")
	if err != nil {
		return err
	}
	defer leave()
	for i, r := range rs {
		if r == nil {
			return t.tx.FailWith(usage("Produce", t.lane.id, "record %d: nil", i))
		}
	}
	if len(rs) == 0 {
		return nil
	}
	if err := t.tx.OpenOutputs(ctx); err != nil {
		return err
	}
	if err := t.tx.Reach(ctx, rs); err != nil {
		return err
	}
	return t.handOver(ctx, rs)
}

// handOver gives records to kgo; outputs are open.
func (t *Txn) handOver(ctx context.Context, rs []*kgo.Record) error {
	cl := t.lane.out.present()
	if cl == nil { // Close has ended the transaction since
		return t.endedError("Produce")
	}
	// kgo fails a record whose context ends at any time before it is sent. A
	// context made for this call alone, and cancelled after it, must not do that.
	record, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer stop()
	for _, r := range rs {
		cl.Produce(record, r, t.delivered)
	}
	if ctx.Err() != nil {
		return t.tx.FailWith(&sharetxn.Error{Op: "Produce", Class: sharetxn.ClassAbortable, TransactionalID: t.lane.id, Err: context.Cause(ctx)})
	}
	return t.tx.Err()
}
