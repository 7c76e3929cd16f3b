package txnmanager

import (
	"context"

	"github.com/sharetxn/sharetxn"
)

// Outputs is the producing side of a transactional id: a kgo client, which
// follows the TransactionManager and never leads. The manager calls one method
// at a time, but Close at any time.
type Outputs interface {
	// Open makes ready to produce in a new transaction and gives the producer
	// id and epoch of all its records. With fresh the client in use is behind
	// the coordinator and must be replaced first.
	Open(ctx context.Context, fresh bool) (producerID int64, epoch int16, err error)
	// Flush waits until every record was delivered or has failed.
	Flush(ctx context.Context) error
	// Discard fails what is buffered and waits for what is under way.
	Discard(ctx context.Context) error
	// Drop makes the client send nothing more, ever; Open makes a new one.
	Drop()
	// Strayed tells whether the client took another producer epoch by itself
	// since Open: its transaction is then aborted already.
	Strayed() bool
	// Follow ends the transaction for the client as it has ended for the
	// coordinator and gives the producer id and epoch it has now.
	Follow(ctx context.Context, commit bool) (producerID int64, epoch int16, err error)
	// Close frees everything; other methods then fail.
	Close()
}

// OpenOutputs makes the transaction one that produces; it is called before the
// first record and costs nothing after that. An error makes the transaction
// abort-only, except ErrTxnEnded. Safe for concurrent use.
func (t *Transaction) OpenOutputs(ctx context.Context) error {
	m := t.m
	if m.cfg.outputs == nil {
		return m.misuse("Produce", "the transaction manager was made without outputs")
	}
	if open, err := t.producing(); open || err != nil {
		return err
	}
	ctx, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	if err := m.takeTurn(ctx); err != nil {
		return t.FailWith(m.failure("Produce", sharetxn.ClassAbortable, err))
	}
	defer m.endTurn()
	if open, err := t.producing(); open || err != nil {
		return err
	}
	if err := m.openOutputs(ctx, t); err != nil {
		return t.FailWith(err)
	}
	return nil
}

// producing tells whether outputs are open, or why they cannot be.
func (t *Transaction) producing() (bool, error) {
	t.m.mu.Lock()
	defer t.m.mu.Unlock()
	switch {
	case t.m.txn != t || t.m.state != Open && t.m.state != AbortOnly:
		return false, t.m.refusal("Produce", t.m.state, sharetxn.ErrTxnEnded)
	case t.failed != nil:
		return false, t.failed
	}
	return t.outputs, nil
}

// openOutputs binds the transaction to the producer id and epoch of the kgo
// client; the turn is held and nothing was sent yet.
func (m *TransactionManager) openOutputs(ctx context.Context, t *Transaction) error {
	if err := m.waitLanded(ctx, "Produce"); err != nil {
		return err
	}
	if err := m.pay(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	fresh := !m.current
	m.mu.Unlock()
	if fresh {
		// A new kgo client fences whoever has the id; so first make sure that
		// nobody took it from us.
		if err := m.initialise(ctx); err != nil {
			return err
		}
		if err := m.pay(ctx); err != nil {
			return err
		}
	}
	id, epoch, err := m.cfg.outputs.Open(ctx, fresh)
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.ident, m.current = unknownIdentity, false
		return m.openFailed(err)
	}
	m.ident, m.current = identity{id, epoch}, true
	t.ident, t.touched, t.outputs = m.ident, true, true
	t.startClock()
	return nil
}

// followed brings the kgo client along after the end of the transaction of old, and
// gives the identity to go on with, and whether that proves that the coordinator
// has completed the transaction: kgo repeats EndTxn until it has.
func (m *TransactionManager) followed(ctx context.Context, old identity, commit bool) (now identity, complete bool) {
	bounded, cancel := context.WithTimeout(ctx, m.cfg.resolve)
	defer cancel()
	id, epoch, err := m.cfg.outputs.Follow(bounded, commit)
	got := identity{id, epoch}
	if err != nil {
		m.log.Warn("kgo client did not follow the transaction; it will be replaced", "transactional_id", m.id, "err", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch want := m.ident; {
	case err != nil:
	case got == want:
		m.current = true
	case got != old:
		// It had to ask for an epoch of its own: that one is the newest.
		m.ident = got
	}
	return m.ident, err == nil && got != old
}
