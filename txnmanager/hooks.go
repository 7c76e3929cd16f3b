package txnmanager

import (
	"context"

	"github.com/sharetxn/sharetxn"
)

func (m *TransactionManager) onStart(ctx context.Context, e sharetxn.TxnStart) context.Context {
	for _, h := range m.core.Hooks() {
		if h, ok := h.(sharetxn.HookTxn); ok {
			ctx = h.OnTxnStart(ctx, e)
		}
	}
	return ctx
}

func (m *TransactionManager) onEnd(ctx context.Context, e sharetxn.TxnEnd) {
	for _, h := range m.core.Hooks() {
		if h, ok := h.(sharetxn.HookTxn); ok {
			h.OnTxnEnd(ctx, e)
		}
	}
}

func (m *TransactionManager) onStage(ctx context.Context, e sharetxn.Stage) {
	for _, h := range m.core.Hooks() {
		if h, ok := h.(sharetxn.HookStage); ok {
			h.OnStage(ctx, e)
		}
	}
}
