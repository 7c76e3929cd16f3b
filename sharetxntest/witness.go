package sharetxntest

import (
	"context"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// witness notes what clients are told in the history of the brokers, so that
// both stand in one order.
type witness struct {
	note func(check.Event)

	mu    sync.Mutex
	last  int64               // number of an operation
	begun map[string]int64    // by transactional id: the latest
	ended map[check.Txn]int64 // those that were told of once
}

// OnTxnStart numbers the transaction.
func (w *witness) OnTxnStart(ctx context.Context, e sharetxn.TxnStart) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last++
	w.begun[e.TransactionalID] = w.last
	w.note(check.Begun{Op: w.last, ID: e.TransactionalID})
	return ctx
}

// OnTxnEnd notes what is reported. An unknown outcome that is settled has its
// second report when the id's next transaction may have begun.
func (w *witness) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := check.Reported{Op: w.begun[e.TransactionalID], Outcome: check.Outcome(e.Outcome.String())}
	if e.ProducerID >= 0 {
		out.Txn = &check.Txn{Producer: e.ProducerID, Epoch: e.ProducerEpoch}
		if op, again := w.ended[*out.Txn]; again {
			out.Op = op
		}
		w.ended[*out.Txn] = out.Op
	}
	w.note(out)
}

// OnHandled notes a handler's verdict.
func (w *witness) OnHandled(_ context.Context, e sharetxn.Handled) {
	w.note(check.Handled{
		Group: e.Group, At: check.At{Place: check.Place{Topic: e.Topic, Partition: e.Partition}, Offset: e.Offset},
		Count: int(e.DeliveryCount), Verdict: check.Verdict(e.Verdict),
	})
}
