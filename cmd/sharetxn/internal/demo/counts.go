package demo

import (
	"context"
	"sync/atomic"

	"github.com/sharetxn/sharetxn"
)

// counts is a hook of the library that counts how transactions ended, also where
// the outcome was unknown for a while, and what a ledger kept from being done twice.
type counts struct {
	committed, aborted     atomic.Int64
	done, waited, refusals atomic.Int64
}

var (
	_ sharetxn.HookTxn    = (*counts)(nil)
	_ sharetxn.HookLedger = (*counts)(nil)
)

// OnLedger implements sharetxn.HookLedger.
func (c *counts) OnLedger(e sharetxn.LedgerEvent) {
	switch e.Event {
	case sharetxn.LedgerDone:
		c.done.Add(e.Records)
	case sharetxn.LedgerWait:
		c.waited.Add(e.Records)
	case sharetxn.LedgerConflict:
		c.refusals.Add(1)
	case sharetxn.LedgerLoaded, sharetxn.LedgerBelow, sharetxn.LedgerGap, sharetxn.LedgerTruncated, sharetxn.LedgerEnded:
	}
}

// ledger gives what the ledger did.
func (c *counts) ledger() *Ledger {
	return &Ledger{Done: c.done.Load(), Waited: c.waited.Load(), Refusals: c.refusals.Load()}
}

// OnTxnStart implements sharetxn.HookTxn.
func (c *counts) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

// OnTxnEnd implements sharetxn.HookTxn.
func (c *counts) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	switch e.Outcome {
	case sharetxn.Committed:
		c.committed.Add(1)
	case sharetxn.Aborted:
		c.aborted.Add(1)
	case sharetxn.Unknown: // it is told again
	}
}
