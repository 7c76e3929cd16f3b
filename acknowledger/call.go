package acknowledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
)

// call is one that has the turn.
type call struct {
	commits bool // it carries a transaction
	cancel  context.CancelCauseFunc

	// How the transaction ended; unknown until it is told. Read after done is
	// closed.
	outcome sharetxn.Outcome
	err     error
	done    chan struct{}
}

// enter waits for the turn and makes the call the one under way. Its context
// ends with ctx, and when it is given up; leave must follow.
func (a *TransactionalShareAcknowledger) enter(ctx context.Context, op string, commits bool) (context.Context, *call, error) {
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx, nil, a.failure(op, sharetxn.ClassAbortable, fmt.Errorf("waiting for the call before: %w", context.Cause(ctx)))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		<-a.turn
		return ctx, nil, a.failure(op, sharetxn.ClassFatal, sharetxn.ErrClosed)
	}
	c := &call{commits: commits, err: a.failure(op, sharetxn.ClassUnknown, sharetxn.ErrOutcomeUnknown), done: make(chan struct{})}
	ctx, c.cancel = context.WithCancelCause(ctx)
	a.running = c
	return ctx, c, nil
}

// leave gives the turn back, with how the call ended.
func (a *TransactionalShareAcknowledger) leave(c *call) {
	c.cancel(nil)
	a.mu.Lock()
	a.running = nil
	a.mu.Unlock()
	close(c.done)
	<-a.turn
}

// committing gives the call whose transaction is under way; nil if there is
// none.
func (a *TransactionalShareAcknowledger) committing() *call {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.running == nil || !a.running.commits {
		return nil
	}
	return a.running
}

var (
	errAbortCalled = errors.New("AbortAcknowledgements was called")
	errTooLate     = errors.New("too late to abort: the transaction is committed")
)

const abortOp = "AbortAcknowledgements"

// abort gives the call up and waits for its end.
func (a *TransactionalShareAcknowledger) abort(ctx context.Context, c *call) error {
	c.cancel(errAbortCalled)
	select {
	case <-c.done:
	case <-ctx.Done():
		return a.failure(abortOp, sharetxn.ClassAbortable, fmt.Errorf("waiting for the transaction's end: %w", context.Cause(ctx)))
	}
	switch {
	case c.outcome == sharetxn.Committed:
		return a.failure(abortOp, sharetxn.ClassAbortable, errTooLate)
	case c.outcome == sharetxn.Aborted && !sharetxn.IsFatal(c.err):
		return nil
	}
	return c.err
}

func (a *TransactionalShareAcknowledger) failure(op string, class sharetxn.Class, err error) error {
	return &sharetxn.Error{Op: op, Class: class, TransactionalID: a.id, Err: err}
}
