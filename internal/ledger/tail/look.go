package tail

import (
	"fmt"

	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
)

// Position is one source record.
type Position struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Offset    int64
}

// Look says of each record what the ledger says now. Where it cannot say yet (a
// partition that the ledger does not have, or that is not read to where it was
// when reading began, or after Done) that is Unsure: wait for Changed and look
// again. It does no I/O.
func (l *Ledger) Look(positions []Position) []index.Verdict {
	out := make([]index.Verdict, len(positions))
	usable := l.Err() == nil
	for from := 0; from < len(positions); {
		n := positions[from].Partition
		to := from + 1
		for to < len(positions) && positions[to].Partition == n {
			to++
		}
		p := l.part(n)
		if p == nil && usable {
			l.missing(positions[from])
		}
		if p == nil || !usable || !p.look(positions[from:to], out[from:to]) {
			for i := from; i < to; i++ {
				out[i] = index.Unsure
			}
		}
		from = to
	}
	return out
}

// look is false where nothing can be said yet.
func (p *part) look(positions []Position, out []index.Verdict) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.ix.Current(); err != nil || !p.loadedLocked() {
		return false
	}
	for i, at := range positions {
		out[i] = p.ix.Look(at.TopicID, at.Offset)
	}
	return true
}

// Changed gives a channel that is closed when a verdict may have become another
// one since the call. What happens in quick succession comes as one.
func (l *Ledger) Changed() <-chan struct{} { return l.changed.wait() }

// missing says that a source topic is wider than the ledger. Whether it was
// mended is looked for now and then.
func (l *Ledger) missing(at Position) {
	l.told.trouble(l, fmt.Errorf("partition %d of topic %s has no ledger partition, so its records wait; widen the ledger: %s",
		at.Partition, at.Topic, topic.Remedy(l.group, topic.ErrMissing)))
}
