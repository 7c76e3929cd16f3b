package share

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

// stage moves records into a transaction, all batches or none. The same staging
// again, by the same producer at the same epoch, changes nothing and succeeds,
// so that a request whose answer was lost can be repeated.
func (p *partition) stage(owner string, producerID int64, epoch int16, batches []acks.AcknowledgementBatch) int16 {
	defer p.settle()
	for _, b := range batches {
		for _, t := range b.Types {
			if _, ok := stagedTarget(t); !ok {
				return codeInvalidRequest
			}
		}
		if code := p.reachable(b); code != codeNone {
			return code
		}
		for r := range p.runs(b) {
			target, _ := stagedTarget(r.Type)
			for _, e := range p.cover(r.First, r.Last) {
				again := e.state == TxPending && e.producerID == producerID && e.producerEpoch == epoch && e.target == target
				if e.owner != owner || (e.state != Acquired && !again) {
					return codeInvalidRecordState
				}
			}
		}
	}
	for _, b := range batches {
		for r := range p.runs(b) {
			target, _ := stagedTarget(r.Type)
			staged := p.cover(r.First, r.Last)
			for i := range staged {
				e := &staged[i]
				e.state, e.deadline, e.persisted = TxPending, time.Time{}, e.count
				e.producerID, e.producerEpoch, e.target = producerID, epoch, target
			}
			p.written = true
		}
	}
	return codeNone
}

// stagedTarget is the state a staged type becomes on commit; types that cannot
// be staged have none. The draft's newest branch also stages gaps.
func stagedTarget(t acks.Type) (State, bool) {
	switch t {
	case acks.Accept:
		return Acknowledged, true
	case acks.Reject, acks.Gap:
		return Archived, true
	}
	return Available, false
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
		resolved += e.offsets()
		if commit {
			e.end(e.target)
		} else {
			*e = entry{first: e.first, last: e.last, state: Available, count: e.count, persisted: e.count}
		}
	}
	if resolved > 0 {
		p.settle()
	}
	return resolved
}
