package sharetxn

import (
	"context"
	"time"
)

// Hook is any value that implements one or more of the Hook* interfaces of
// this package; see WithHooks. Hooks are called synchronously from the
// library's goroutines, also concurrently: they must be quick, safe for
// concurrent use, and must not call back into the library.
type Hook any

// HookTxn sees a transaction from begin to end. OnTxnStart may put a span into
// the context, which is then the context of everything within the transaction,
// the closure of InTransaction included.
type HookTxn interface {
	OnTxnStart(ctx context.Context, e TxnStart) context.Context
	OnTxnEnd(ctx context.Context, e TxnEnd)
}

// TxnStart is the begin of a transaction.
type TxnStart struct {
	TransactionalID string
	Group           string // of the first batch; empty if none is bound at Begin
}

// TxnEnd is the end of a transaction, also of one whose outcome was unknown and
// is settled later: then it is called once for each.
type TxnEnd struct {
	TxnStart
	Outcome    Outcome
	Err        error         // nil if and only if Outcome is Committed
	Records    int           // acknowledgements staged
	Outputs    int           // records produced
	Flush      time.Duration // waiting for deliveries
	Stage      time.Duration // TxnShareAcknowledge, all leaders
	End        time.Duration // EndTxn, resolution included
	LockMargin time.Duration // left of the earliest acquisition lock when staging began; 0 without acknowledgements
}

// HookStage sees each TxnShareAcknowledge request.
type HookStage interface {
	OnStage(ctx context.Context, e Stage)
}

// Stage is one TxnShareAcknowledge request and its answer.
type Stage struct {
	TransactionalID string
	Broker          int32
	Ranges, Offsets int
	Attempt         int // from 1
	Took            time.Duration
	Err             error
}

// HookHandled sees each verdict of a Processor, when it is made: whether it also
// holds is told by HookTxn.
type HookHandled interface {
	OnHandled(ctx context.Context, e Handled)
}

// Handled is what became of one record in one call of a handler, or without one.
type Handled struct {
	Group         string
	Topic         string
	Partition     int32
	Offset        int64
	Verdict       string // "accept", "reject", "release" or "fail"
	DeliveryCount int32
	Took          time.Duration // of the call; with a BatchHandler, of all its records
	Err           error         // reason or failure
}

// HookMisuse sees what could not be returned as an error: a batch dropped with
// verdicts that no transaction took, a verdict that came too late, a handle
// that was never ended.
type HookMisuse interface{ OnMisuse(e Misuse) }

// Misuse says what was wrong and where: topic, partition, offset or id.
type Misuse struct{ What, Where string }

// implementsHook tells whether h implements any Hook* interface.
func implementsHook(h Hook) bool {
	switch h.(type) {
	case HookTxn, HookStage, HookHandled, HookMisuse:
		return true
	}
	return false
}
