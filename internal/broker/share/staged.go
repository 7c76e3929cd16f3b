package share

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

// stage moves records into a transaction, all batches or none; was is what it
// changed, for unstage. The same staging again, by the same producer at the same
// epoch, changes nothing and succeeds, so that a request whose answer was lost
// can be repeated.
func (p *partition) stage(owner string, producerID int64, epoch int16, batches []acks.AcknowledgementBatch) (was []entry, code int16) {
	defer p.settle()
	for _, b := range batches {
		for _, t := range b.Types {
			if _, ok := p.sem.target(t); !ok {
				return nil, p.sem.badType
			}
		}
		if code := p.reachable(b); code != codeNone {
			return nil, code
		}
		for r := range p.runs(b) {
			for _, e := range p.cover(r.First, r.Last) {
				again := e.state == TxPending && e.producerID == producerID && e.producerEpoch == epoch && e.verdict == r.Type
				if e.owner != owner || (e.state != Acquired && !again) {
					return nil, codeInvalidRecordState
				}
			}
		}
	}
	for _, b := range batches {
		for r := range p.runs(b) {
			staged := p.cover(r.First, r.Last)
			for i := range staged {
				if e := &staged[i]; e.state == Acquired {
					was = append(was, *e)
					e.state, e.producerID, e.producerEpoch, e.verdict = TxPending, producerID, epoch, r.Type
					p.keep(e)
					p.tell(Event{Kind: EventStaged, To: TxPending}, *e)
				}
			}
		}
	}
	return was, codeNone
}

// keep is what the profile does to the lock and the log at staging: either the
// lock stops and everything is written down, or neither.
func (p *partition) keep(e *entry) {
	if !p.sem.lockRuns {
		e.deadline = time.Time{}
	}
	if !p.sem.volatile {
		e.persisted = e.count
		p.write()
	}
}

// unstage puts back what stage changed, before anything else happened.
func (p *partition) unstage(was []entry) {
	for _, w := range was {
		e := &p.cover(w.first, w.last)[0] // each was staged in one piece
		undone := *e
		*e = w
		p.tell(Event{Kind: EventRolledBack, To: e.state}, undone)
	}
	p.settle()
}

// outcome resolves what the producer staged below the marker's epoch (TV2 bumps
// the epoch when a transaction ends). A repeated marker finds nothing. An abort
// keeps the delivery count and does not look at the limit.
func (p *partition) outcome(producerID int64, markerEpoch int16, commit bool) (resolved int64) {
	for i := range p.entries {
		e := &p.entries[i]
		if e.state != TxPending || e.producerID != producerID || e.producerEpoch >= markerEpoch {
			continue
		}
		was := *e
		resolved += e.offsets()
		switch {
		case commit:
			to, _ := p.sem.target(e.verdict)
			e.end(to)
			p.write()
		case p.sem.abortFrees:
			*e = entry{first: e.first, last: e.last, state: Available, count: e.count, persisted: e.count}
		default:
			e.state, e.producerID, e.producerEpoch, e.verdict = Acquired, 0, 0, 0
		}
		p.tell(Event{Kind: EventResolved, To: e.state}, was)
	}
	if resolved > 0 {
		p.settle()
	}
	return resolved
}
