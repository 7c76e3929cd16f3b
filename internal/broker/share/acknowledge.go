package share

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

// checkBatches is the protocol's check before any state is looked at: KIP-932,
// ShareAcknowledge. renew tells whether RENEW is allowed in this request.
func checkBatches(batches []acks.AcknowledgementBatch, renew bool) int16 {
	last := int64(-1)
	for i, b := range batches {
		if b.FirstOffset < 0 || b.FirstOffset > b.LastOffset || (i > 0 && b.FirstOffset <= last) {
			return codeInvalidRequest
		}
		if n := int64(len(b.Types)); n == 0 || (n != 1 && n != b.Offsets()) {
			return codeInvalidRequest
		}
		for _, t := range b.Types {
			if !t.Known() || (t == acks.Renew && !renew) {
				return codeInvalidRequest
			}
		}
		last = b.LastOffset
	}
	return codeNone
}

// reachable judges where a batch lies: below the start it is done already and
// skipped; beyond what was ever acquired it cannot be meant.
func (p *partition) reachable(b acks.AcknowledgementBatch) (code int16, skip bool) {
	switch {
	case b.LastOffset < p.start:
		return codeNone, true
	case len(p.entries) == 0:
		return codeInvalidRecordState, false
	case b.LastOffset >= p.end:
		return codeInvalidRequest, false
	}
	return codeNone, false
}

// ackRule is the part of the group's configuration that acknowledging needs.
type ackRule struct {
	renew    bool      // RENEW allowed
	deadline time.Time // of a renewed lock
}

// acknowledge applies all batches or none (KIP-932: atomic per partition).
func (p *partition) acknowledge(owner string, batches []acks.AcknowledgementBatch, rule ackRule) int16 {
	for _, b := range batches {
		code, skip := p.reachable(b)
		if code != codeNone {
			return code
		}
		if skip {
			continue
		}
		for r := range b.Runs() {
			if r.Last < p.start {
				continue
			}
			for _, e := range p.cover(max(r.First, p.start), r.Last) {
				if e.state != Acquired || e.owner != owner || (r.Type == acks.Renew && !rule.renew) {
					p.settle()
					return codeInvalidRecordState
				}
			}
		}
	}
	for _, b := range batches {
		if b.LastOffset < p.start {
			continue
		}
		for r := range b.Runs() {
			if r.Last < p.start {
				continue
			}
			lo, hi := p.split(max(r.First, p.start)), p.split(r.Last+1)
			for i := lo; i < hi; i++ {
				p.decide(&p.entries[i], r.Type, rule)
			}
		}
	}
	p.settle()
	return codeNone
}

func (p *partition) decide(e *entry, t acks.Type, rule ackRule) {
	switch t {
	case acks.Renew:
		e.deadline = rule.deadline
	case acks.Release:
		p.giveBack(e)
	case acks.Accept:
		e.end(Acknowledged)
	case acks.Reject, acks.Gap:
		e.end(Archived)
	}
}
