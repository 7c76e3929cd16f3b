package chaos

import (
	"context"

	"github.com/sharetxn/sharetxn"
)

// witness notes what the library's hooks tell.
type witness struct{ log *journal }

var (
	_ sharetxn.HookLedger      = (*witness)(nil)
	_ sharetxn.HookAcknowledge = (*witness)(nil)
	_ sharetxn.HookTxn         = (*witness)(nil)
	_ sharetxn.HookLost        = (*witness)(nil)
)

func (w *witness) OnLedger(e sharetxn.LedgerEvent) {
	switch e.Event {
	case sharetxn.LedgerConflict:
		w.log.count("conflicts on "+e.Verdict, 1)
		w.log.count("records in conflicts on "+e.Verdict, e.Records)
	case sharetxn.LedgerDone, sharetxn.LedgerWait, sharetxn.LedgerBelow:
		w.log.count("records found "+string(e.Event), e.Records)
	case sharetxn.LedgerGap, sharetxn.LedgerLoaded, sharetxn.LedgerTruncated:
		if e.Err == nil {
			w.log.count("ledger "+string(e.Event), 1)
			return
		}
		w.log.count("ledger not "+string(e.Event), 1)
	case sharetxn.LedgerEnded:
		w.log.count("ledger ended", 1)
	}
}

func (w *witness) OnAcknowledge(e sharetxn.Acknowledge) {
	var lost, refused int64
	for _, p := range e.Partitions {
		switch {
		case sharetxn.ClassOf(e.Err) == sharetxn.ClassUnknown:
			lost += int64(p.Offsets)
		case p.Err != nil:
			refused += int64(p.Offsets)
		}
	}
	w.log.count("acknowledgements lost", lost)
	w.log.count("acknowledgements refused", refused)
}

func (w *witness) OnTxnStart(ctx context.Context, _ sharetxn.TxnStart) context.Context { return ctx }

func (w *witness) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	if e.Outcome != sharetxn.Committed {
		w.log.count("transactions "+e.Outcome.String(), 1)
	}
}

func (w *witness) OnLost(e sharetxn.Lost) { w.log.count("records lost to others", int64(e.Records)) }
