package txnmanager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
)

// End commits or aborts. Commit flushes, stages and sends EndTxn; whatever goes
// wrong before EndTxn is sent, ctx ending included, makes it an abort. From then
// on ctx is ignored and the outcome is resolved within ResolveTimeout. The
// error is nil if and only if the outcome is Committed. It wraps ErrAborted with
// the reason, or ErrOutcomeUnknown; or ErrTxnEnded, with the outcome Unknown,
// for a transaction that has ended or is being ended already. A transaction in
// which nothing was produced and nothing staged is committed without a request,
// since there is nothing to prove.
func (t *Transaction) End(ctx context.Context, commit bool) (sharetxn.Outcome, error) {
	return t.end(ctx, commit, t.m.cfg.resolve)
}

func (t *Transaction) end(ctx context.Context, commit bool, within time.Duration) (sharetxn.Outcome, error) {
	op := "Abort"
	if commit {
		op = "Commit"
	}
	if err := t.beginEnd(op, commit); err != nil {
		return sharetxn.Unknown, err
	}
	// Who has the turn now opens outputs, within a bound, and finds that they
	// are not wanted any more.
	t.m.turn <- struct{}{}
	defer t.m.endTurn()
	return t.endInTurn(ctx, op, commit, within)
}

// endInTurn is end after the step to Ending; the turn is held.
func (t *Transaction) endInTurn(ctx context.Context, op string, commit bool, within time.Duration) (sharetxn.Outcome, error) {
	m := t.m
	t.freed = make(freedSet)
	if commit {
		t.because(t.beforeCommit(ctx))
		t.q.commit = t.cause == nil
	} else {
		t.because(t.Err())
	}
	began := time.Now()
	detached, free := m.leash.detach(ctx, within)
	defer free()
	if !t.q.commit && t.outputs {
		t.discard(detached)
	}
	j, err := t.settleNow(detached)
	t.spent.end += time.Since(began)
	if j.next == evFenced && t.cause != nil && err != nil {
		t.cause = fmt.Errorf("%w, after %w", err, t.cause) // the worse one, which the first may only hint at
	}
	t.because(err)
	return t.finish(ctx, op, j)
}

// beginEnd makes the step to Ending. A commit that is not allowed any more goes
// on as an abort.
func (t *Transaction) beginEnd(op string, commit bool) error {
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.txn != t {
		return m.refusal(op, m.state, sharetxn.ErrTxnEnded)
	}
	e := evAbort
	if commit {
		e = evCommit
	}
	err := m.advance(op, e)
	if commit && errors.Is(err, errAbortOnly) {
		err = m.advance(op, evAbort)
	}
	return err
}

// beforeCommit does all that must be done, and have worked, before
// EndTxn(commit); its error is why that is not sent.
func (t *Transaction) beforeCommit(ctx context.Context) error {
	m := t.m
	ctx, free := m.leash.hold(ctx)
	defer free()
	if err := t.allowed(ctx); err != nil {
		return err
	}
	if t.outputs {
		if err := t.flush(ctx); err != nil {
			return err
		}
		if err := t.allowed(ctx); err != nil {
			return err
		}
	}
	if err := t.collect(ctx); err != nil {
		return err
	}
	if lock := t.buffer.lockUntil; !lock.IsZero() {
		t.spent.lockMargin = max(0, time.Until(lock))
	}
	if err := t.allowed(ctx); err != nil {
		return err
	}
	if err := t.stage(ctx); err != nil {
		return err
	}
	m.core.Step("staged")
	if err := t.allowed(ctx); err != nil {
		return err
	}
	if t.start.Check != nil {
		return t.start.Check()
	}
	return nil
}

// allowed tells whether a commit may go on.
func (t *Transaction) allowed(ctx context.Context) error {
	if err := t.Err(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return cause(ctx)
	}
	if t.touched && time.Now().After(t.deadline) {
		return errTxnTimeout
	}
	if lock := t.buffer.lockUntil; !lock.IsZero() && !time.Now().Add(t.m.cfg.margin).Before(lock) {
		return fmt.Errorf("%w: less than %v left of it", sharetxn.ErrLockExpired, t.m.cfg.margin)
	}
	return nil
}

// discard takes back what kgo has not sent, and waits for what it has. Where
// that does not end in time the client is dropped, before the epoch moves: left
// to itself it might ask for the new epoch and send what it still holds there,
// into the next transaction. What was sent at the old epoch is refused, or
// aborted with the rest.
func (t *Transaction) discard(ctx context.Context) {
	m := t.m
	patience := m.cfg.close
	if end, ok := ctx.Deadline(); ok { // EndTxn needs a part of it
		patience = min(patience, time.Until(end)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := m.cfg.outputs.Discard(ctx); err != nil {
		m.log.Warn("records still under way at an abort; their kgo client is dropped", "transactional_id", m.id, "err", err)
		m.cfg.outputs.Drop()
		t.dropped = true
	}
}

// settleNow asks the coordinator until there is a judgement. Nothing sent means
// that nothing is there to be asked about.
func (t *Transaction) settleNow(ctx context.Context) (judgement, error) {
	if t.touched {
		return t.m.resolve(ctx, t)
	}
	o := sharetxn.Aborted
	if t.q.commit {
		o = sharetxn.Committed
	}
	return judgement{final: true, outcome: o, next: evSettled}, nil
}

// finish makes the step that ends the transaction and tells everyone.
func (t *Transaction) finish(ctx context.Context, op string, j judgement) (sharetxn.Outcome, error) {
	m := t.m
	var err error
	if j.outcome != sharetxn.Committed {
		err = m.ended(op, j.outcome, t.cause)
	}
	landing := t.conclude(op, j, err)
	sent := unknownIdentity
	if t.touched {
		sent = t.ident
	}
	m.onEnd(ctx, sharetxn.TxnEnd{
		ProducerID: sent.id, ProducerEpoch: sent.epoch,
		TxnStart: t.event, Outcome: j.outcome, Err: err,
		Records: t.buffer.offsets(), Outputs: int(t.delivered.Load()),
		Flush: t.spent.flush, Stage: t.spent.stage, End: t.spent.end, LockMargin: t.spent.lockMargin,
	})
	if t.start.Settled != nil {
		t.start.Settled(Ended{Outcome: j.outcome, Sent: t.touched, Freed: t.freed.has, Outcast: t.outcast})
	}
	switch {
	case landing != nil:
		close(landing.told)
	case j.outcome == sharetxn.Committed && t.start.Landed != nil: // it wrote nothing
		t.start.Landed()
	}
	return j.outcome, err
}

// conclude makes the manager's state of a judgement, and begins the landing of what
// was written.
func (t *Transaction) conclude(op string, j judgement, err error) *landing {
	m := t.m
	m.mu.Lock()
	defer m.mu.Unlock()
	next := j.next
	switch {
	case m.fatal != nil: // learnt while nothing was sent
		next = evFenced
	case next == evSettled && !m.ident.known():
		next = evSettledLost
	case next == evFenced:
		m.ident, m.fatal = unknownIdentity, err
	}
	if e := m.advance(op, next); e != nil {
		m.log.Error("state table refuses the end of a transaction", "transactional_id", m.id, "err", e)
	}
	m.txn, m.pending = nil, nil
	if err != nil && t.failed == nil {
		t.failed = err
	}
	follow := next == evSettled && t.outputs && !t.dropped
	if next != evSettled || t.dropped {
		m.current = false
	}
	switch {
	case next == evUnanswered:
		m.pending = t
	case follow:
		m.current = false
		return m.land(t, j.outcome == sharetxn.Committed, true)
	case t.outputs && (next == evSettled || j.outcome == sharetxn.Committed):
		return m.land(t, j.outcome == sharetxn.Committed, false)
	case t.outputs && next == evSettledLost:
		m.debts = append(m.debts, debt{past{t.ident.id, true, false, t.ident.epoch}, ordered(t.written.places())})
	}
	return nil
}
