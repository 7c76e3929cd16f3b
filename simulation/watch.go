package simulation

import (
	"context"
	"errors"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
)

// watch is the hooks of one process.
type watch struct {
	*world
	process string

	mu      sync.Mutex
	unknown map[string]bool // transactional ids whose last outcome is not known
}

func (w *watch) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context {
	if l := carried(ctx); l != nil {
		l.start()
	}
	return ctx
}

func (w *watch) OnTxnEnd(ctx context.Context, e sharetxn.TxnEnd) {
	if e.ProducerID >= 0 {
		w.identify(carried(ctx), check.Txn{Producer: e.ProducerID, Epoch: e.ProducerEpoch})
	}
	w.note("%s: %s %v, %d acknowledged, %d outputs, error %v", w.process, e.TransactionalID, e.Outcome, e.Records, e.Outputs, e.Err)
	w.mu.Lock()
	settled := w.unknown[e.TransactionalID] && e.Outcome != sharetxn.Unknown
	w.unknown[e.TransactionalID] = e.Outcome == sharetxn.Unknown
	w.mu.Unlock()
	switch {
	case settled && e.Outcome == sharetxn.Committed:
		w.count(UnknownCommitted)
	case settled:
		w.count(UnknownAborted)
	}
	if errors.Is(e.Err, sharetxn.ErrFenced) {
		w.count(Fenced)
	}
}

func (w *watch) OnStage(_ context.Context, e sharetxn.Stage) {
	if e.Err == nil {
		return
	}
	w.note("%s: %s stage attempt %d at broker %d: %v", w.process, e.TransactionalID, e.Attempt, e.Broker, e.Err)
	if refused, ok := errors.AsType[*sharetxn.Error](e.Err); ok && !refused.FromBroker {
		w.count(StageUnanswered)
	}
}

func (w *watch) OnLedger(e sharetxn.LedgerEvent) {
	if e.Event != sharetxn.LedgerTruncated {
		w.note("%s: ledger %s of %s-%d, %d records %s, error %v", w.process, e.Event, e.Topic, e.Partition, e.Records, e.Verdict, e.Err)
	}
	switch {
	case e.Event != sharetxn.LedgerConflict:
	case e.Verdict == "done":
		w.count(ConflictDone)
	case e.Verdict == "open":
		w.count(ConflictOpen)
	}
}

// OnMember learns which member is of which process.
func (w *watch) OnMember(e sharetxn.Member) { w.members.Store(e.MemberID, w.process) }

func (w *watch) OnLost(e sharetxn.Lost) {
	w.note("%s: lost %d records (polled %v, released %v): %v", w.process, e.Records, !e.Unpolled, e.Released, e.Err)
}

func (w *watch) OnMisuse(e sharetxn.Misuse) { w.note("%s: misuse: %s: %s", w.process, e.What, e.Where) }
