package processor

import "context"

// GroupLedger is what a Processor asks of its group's ledger.
type GroupLedger = groupLedger

// WrapLedger puts something between a Processor and its ledger.
func WrapLedger(p *Processor, wrap func(GroupLedger) GroupLedger) {
	open := p.open
	p.open = func(ctx context.Context) (groupLedger, error) {
		l, err := open(ctx)
		if err != nil {
			return nil, err
		}
		return wrap(l), nil
	}
}
