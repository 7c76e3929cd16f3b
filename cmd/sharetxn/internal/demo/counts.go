package demo

import (
	"context"
	"sync/atomic"

	"github.com/sharetxn/sharetxn"
)

// counts is a hook of the library that counts what was committed, also where the
// outcome was unknown for a while.
type counts struct{ committed atomic.Int64 }

var _ sharetxn.HookTxn = (*counts)(nil)

// OnTxnStart implements sharetxn.HookTxn.
func (c *counts) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

// OnTxnEnd implements sharetxn.HookTxn.
func (c *counts) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	if e.Outcome == sharetxn.Committed {
		c.committed.Add(1)
	}
}
