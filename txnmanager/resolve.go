package txnmanager

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
)

// resolve sends EndTxn v5 at the transaction's own epoch, the same again until
// an answer ends the question or ctx ends; the turn is held. It is safe to
// repeat as long as nobody runs InitProducerId, which is why nothing here does.
// The error is the answer that ended it, if that is not success, or what the
// last attempt saw.
func (m *TransactionManager) resolve(ctx context.Context, t *Transaction) (judgement, error) {
	var pause backoff
	for {
		j, err := m.endTxn(ctx, t)
		switch {
		case j.final && t.strayed(j):
			return judgement{final: true, outcome: sharetxn.Aborted, next: evSettledLost}, nil
		case j.final:
			return j, err
		case j.abort: // the answer was definite and says why it is no commit
			t.because(err)
			pause = backoff{}
			continue
		}
		if ended := pause.wait(ctx); ended != nil {
			return t.unanswered(), errors.Join(fmt.Errorf("no definite answer to EndTxn: %w", ended), err)
		}
	}
}

// strayed tells whether a transaction that is aborted lost its epoch to our own
// kgo client. That is no fence, and what the client has begun at its epoch
// nobody will ever commit; but the epoch to go on with must be asked for.
func (t *Transaction) strayed(j judgement) bool {
	m := t.m
	if !t.outputs || j.outcome != sharetxn.Aborted || !m.cfg.outputs.Strayed() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ident = unknownIdentity
	return true
}

// because keeps the first reason why the transaction is not committed.
func (t *Transaction) because(err error) {
	if t.cause == nil {
		t.cause = err
	}
}

// endTxn sends EndTxn once and judges the answer.
func (m *TransactionManager) endTxn(ctx context.Context, t *Transaction) (judgement, error) {
	commit := t.q.commit
	code, next, sent, err := m.coord.endOnce(ctx, t.ident, commit)
	if err != nil {
		if sent && commit {
			t.q.mayHaveCommitted = true
		}
		m.coord.forget()
		return askAgain, m.failure("EndTxn", sharetxn.ClassAbortable, err)
	}
	r := rpcAbort
	if commit {
		r = rpcCommit
	}
	v := classify(r, code)
	if commit && hidesCommit(v) {
		t.q.mayHaveCommitted = true
	}
	if v == vElsewhere || v == vUnclear {
		m.coord.forget()
	}
	j := judge(v, t.q)
	if j.abort {
		t.q.commit = false
	}
	t.q.notCommitted = t.q.notCommitted || j.notCommitted
	if v == vOK && j.final {
		m.mu.Lock()
		m.ident = next
		m.mu.Unlock()
		return j, nil
	}
	return j, m.refused(r, code)
}

// unanswered is the judgement where no more answers are to be had.
func (t *Transaction) unanswered() judgement {
	if t.q.notCommitted {
		return judgement{final: true, outcome: sharetxn.Aborted, next: evSettledLost}
	}
	return judgement{final: true, outcome: sharetxn.Unknown, next: evUnanswered}
}

// settle ends the question about a transaction whose outcome is unknown; the
// turn is held. Its error, of class unknown, says that the question stays.
func (m *TransactionManager) settle(ctx context.Context, op string) error {
	m.mu.Lock()
	t := m.pending
	m.mu.Unlock()
	j, err := m.resolve(ctx, t)
	if j.next == evUnanswered {
		return m.ended(op, sharetxn.Unknown, err)
	}
	m.log.Warn("unknown outcome settled", "transactional_id", m.id, "producer_id", t.ident.id, "producer_epoch", t.ident.epoch, "outcome", j.outcome.String())
	t.because(err)
	_, ended := t.finish(ctx, op, j)
	if j.outcome == sharetxn.Unknown {
		return ended
	}
	return nil
}

// letGo ends at Close what is in question only because an abort has no answer: no
// commit ever left and none will, so nothing can be committed, and whoever still
// holds the transaction's records would otherwise hold and renew them for ever.
// The next producer of the id, or its timeout, ends it at the broker. The turn is
// held.
func (m *TransactionManager) letGo(ctx context.Context) {
	m.mu.Lock()
	t := m.pending
	m.mu.Unlock()
	if t == nil || t.q.mayHaveCommitted {
		return
	}
	m.log.Warn("closed while an abort has no answer; its transaction stays open at the broker until the next producer of the id, or its timeout", "transactional_id", m.id)
	_, _ = t.finish(ctx, "Close", judgement{final: true, outcome: sharetxn.Aborted, next: evSettledLost})
}
