package demo

import (
	"context"
	"sync/atomic"

	"github.com/sharetxn/sharetxn"
)

// counts is a hook of the library that counts how transactions ended, also where
// the outcome was unknown for a while.
type counts struct{ committed, aborted atomic.Int64 }

var _ sharetxn.HookTxn = (*counts)(nil)

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
