package producer

import (
	"context"

	"github.com/sharetxn/sharetxn"
)

// InTransaction begins with in (nil: produce only; Join: several), runs fn,
// commits if it returns nil, and aborts if it returns an error or panics; a
// panic goes on after the abort. The error is nil if and only if the outcome is
// Committed: it is that of Begin, with the outcome Aborted, or that of Commit,
// or wraps ErrAborted and fn's own. fn's context carries the hooks' span. If fn
// ends the transaction itself, that outcome counts.
func (p *Producer) InTransaction(ctx context.Context, in Acknowledgements, fn func(context.Context, *Txn) error) (sharetxn.Outcome, error) {
	spanned, t, err := p.begin(ctx, []Acknowledgements{in})
	if err != nil {
		return sharetxn.Aborted, err
	}
	returned := false
	defer func() {
		if !returned {
			_ = t.Abort(spanned) // the panic says more
		}
	}()
	err = fn(spanned, t)
	returned = true
	if !t.close() {
		select {
		case <-t.done:
			return t.result()
		case <-ctx.Done():
			return sharetxn.Unknown, &sharetxn.Error{Op: "InTransaction", Class: sharetxn.ClassUnknown, TransactionalID: t.lane.id, Err: sharetxn.ErrOutcomeUnknown}
		}
	}
	if err == nil {
		return t.commit(spanned)
	}
	// Kept as the reason, also for hooks.
	_ = t.tx.FailWith(err)
	t.expel()
	return t.end(spanned, false)
}
