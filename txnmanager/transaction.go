package txnmanager

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
)

// Transaction is one transaction. After its end every method but Err answers
// ErrTxnEnded, so that what comes late never touches the next one. Safe for
// concurrent use.
type Transaction struct {
	m     *TransactionManager
	start Start
	event sharetxn.TxnStart

	delivered atomic.Int64
	written   written

	// Guarded by m.mu until the state is Ending, then owned by who ends it;
	// failed is guarded by m.mu always.
	failed   error // sticky: only abort is left
	buffer   buffer
	ident    identity
	touched  bool // something may have been sent at ident
	outputs  bool // the kgo client is part of it
	dropped  bool // that client is gone
	deadline time.Time

	freed freedSet
	// outcast was denied by its group when it staged.
	outcast groupmeta.ShareGroupMetadata
	q       question
	cause   error // why it is not committed
	spent   spent
}

// spent is where the time of an end went, for hooks.
type spent struct {
	flush, stage, end time.Duration
	lockMargin        time.Duration
}

// startClock sets until when the broker lets the transaction be open, before
// the first thing of it is sent: the broker starts to count later.
func (t *Transaction) startClock() { t.deadline = time.Now().Add(t.m.cfg.timeout) }

// Wrote tells of each record where it was written, and whether it surely was:
// counted, for hooks, are only those; the transaction's end must reach the others,
// too. It must be called before Flush or Discard return.
func (t *Transaction) Wrote(topic string, partition int32, delivered bool) {
	t.written.add(place{topic, partition})
	if delivered {
		t.delivered.Add(1)
	}
}

// FailWith makes the transaction abort-only, for good, and gives err back; the
// first error is kept. After the transaction's end it changes nothing.
func (t *Transaction) FailWith(err error) error {
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.txn != t {
		return err
	}
	if m.advance("FailWith", evFail) == nil && t.failed == nil {
		t.failed = err
	}
	return err
}

// Err is why the transaction can only abort, or was not committed; nil while it
// can commit and after it has.
func (t *Transaction) Err() error {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	return t.failed
}

// Stage adds acknowledgements of one member, to be staged when the transaction
// ends. Nothing is sent. All or nothing; errors are of class usage and name the
// field, or the one that made the transaction abort-only.
func (t *Transaction) Stage(a Acknowledged) error {
	set, err := t.m.stageable(a)
	if err != nil {
		return err
	}
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.txn != t || m.state != Open && m.state != AbortOnly:
		return m.refusal(stageOp, m.state, sharetxn.ErrTxnEnded)
	case t.failed != nil:
		return t.failed
	}
	return t.add(a, set)
}

func (t *Transaction) add(a Acknowledged, set *acks.Set) error {
	if err := t.buffer.add(a, set); err != nil {
		return t.m.failure(stageOp, sharetxn.ClassUsage, err)
	}
	return nil
}

// stageable checks, and makes a Set.
func (m *TransactionManager) stageable(a Acknowledged) (*acks.Set, error) {
	switch {
	case a.Member.IsZero():
		return nil, m.misuse(stageOp, "member: no member; it has not joined the group")
	case a.LockUntil.IsZero():
		return nil, m.misuse(stageOp, "lockUntil: not set")
	}
	set, err := transactional(a.Batches)
	if err != nil {
		return nil, m.failure(stageOp, sharetxn.ClassUsage, err)
	}
	return set, nil
}

// collect takes what the front end has to stage. It may wait, at most until the
// broker aborts the transaction.
func (t *Transaction) collect(ctx context.Context) error {
	if t.start.Collect == nil {
		return nil
	}
	if t.touched {
		bounded, cancel := context.WithDeadlineCause(ctx, t.deadline, errTxnTimeout)
		defer cancel()
		ctx = bounded
	}
	all, err := t.start.Collect(ctx)
	if err != nil {
		return err
	}
	for _, a := range all {
		set, err := t.m.stageable(a)
		if err != nil {
			return err
		}
		if err := t.add(a, set); err != nil {
			return err
		}
	}
	return nil
}

// flush waits until every record was delivered or has failed, at most until the
// broker aborts the transaction.
func (t *Transaction) flush(ctx context.Context) error {
	began := time.Now()
	bounded, cancel := context.WithDeadlineCause(ctx, t.deadline, errTxnTimeout)
	defer cancel()
	err := t.m.cfg.outputs.Flush(bounded)
	t.spent.flush = time.Since(began)
	switch {
	case err != nil:
		return t.m.failure("Flush", sharetxn.ClassAbortable, cause(bounded))
	case t.m.cfg.outputs.Strayed():
		return t.m.failure("Flush", sharetxn.ClassAbortable, errStrayed)
	}
	return nil
}
