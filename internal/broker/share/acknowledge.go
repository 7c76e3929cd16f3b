package share

import (
	"iter"
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

// checkForm is Kafka's check of a request's ranges (KIP-932, ShareAcknowledge;
// measured). It lets a range begin at the last offset of the one before, or at
// -1: what becomes of those is decided where they lie.
func checkForm(batches []acks.AcknowledgementBatch) int16 {
	last := int64(-1)
	for _, b := range batches {
		if b.FirstOffset > b.LastOffset || b.FirstOffset < last {
			return codeInvalidRequest
		}
		if n := int64(len(b.Types)); n == 0 || (n != 1 && n != b.Offsets()) {
			return codeInvalidRequest
		}
		last = b.LastOffset
	}
	return codeNone
}

// checkBatches is what is checked before any state is looked at; renew tells
// whether RENEW is allowed in this request.
func checkBatches(batches []acks.AcknowledgementBatch, renew bool) int16 {
	for _, b := range batches {
		for _, t := range b.Types {
			if !t.Known() || (t == acks.Renew && !renew) {
				return codeInvalidRequest
			}
		}
	}
	return checkForm(batches)
}

// reachable judges where a batch lies: below the start it is done already and
// means nothing (runs skips it); beyond what was ever acquired it cannot be meant.
func (p *partition) reachable(b acks.AcknowledgementBatch) int16 {
	switch {
	case b.LastOffset < p.start:
		return codeNone
	case len(p.entries) == 0:
		return codeInvalidRecordState
	case b.LastOffset >= p.end:
		return codeInvalidRequest
	}
	return codeNone
}

// ackRule is the part of the group's configuration that acknowledging needs.
type ackRule struct {
	renew    bool      // RENEW allowed
	deadline time.Time // of a renewed lock
}

// runs gives the part of a batch that is not done yet.
func (p *partition) runs(b acks.AcknowledgementBatch) iter.Seq[acks.Run] {
	return func(yield func(acks.Run) bool) {
		for r := range b.Runs() {
			if r.Last < p.start {
				continue
			}
			r.First = max(r.First, p.start)
			if !yield(r) {
				return
			}
		}
	}
}

// acknowledge applies all batches or none (KIP-932: atomic per partition). An
// offset that a batch decides is no other's of the same request.
func (p *partition) acknowledge(owner string, batches []acks.AcknowledgementBatch, rule ackRule) int16 {
	defer p.settle()
	decided := int64(-1)
	for _, b := range batches {
		if code := p.reachable(b); code != codeNone {
			return code
		}
		for r := range p.runs(b) {
			if r.First == decided {
				return codeInvalidRecordState
			}
			if r.Type != acks.Renew {
				decided = r.Last
			}
			for _, e := range p.cover(r.First, r.Last) {
				if e.state != Acquired || e.owner != owner || (r.Type == acks.Renew && !rule.renew) {
					return codeInvalidRecordState
				}
			}
		}
	}
	for _, b := range batches {
		for r := range p.runs(b) {
			decided := p.cover(r.First, r.Last)
			for i := range decided {
				p.decide(&decided[i], r.Type, rule)
			}
		}
	}
	return codeNone
}

func (p *partition) decide(e *entry, t acks.Type, rule ackRule) {
	if t == acks.Renew { // the one type that changes no state
		e.deadline = rule.deadline
		return
	}
	if t == acks.Release {
		p.giveBack(e, Event{Kind: EventReleased, Type: t})
		return
	}
	was, to := *e, Archived
	if t == acks.Accept {
		to = Acknowledged
	}
	e.end(to)
	p.write()
	p.tell(Event{Kind: EventDecided, Type: t, To: to}, was)
}
