package tail

import (
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
)

// Position is one source record.
type Position struct {
	Topic     string
	TopicID   [16]byte
	Partition int32
	Offset    int64
	// Since is when it was delivered: that it is done is said only of a ledger that
	// was read to where it ended after that. Whoever stood still may have been
	// delivered what was done before a reset, and read of that reset later. The zero
	// time asks for what is known.
	Since time.Time
}

// Look says of each record what the ledger says now. Where it cannot say yet (a
// partition that the ledger does not have, or that is not read to where it was
// when reading began, or to where it was since the record came, or after Done) that
// is Unsure: wait for Changed and look again. It does no I/O.
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
		said, old := false, false
		if p != nil && usable {
			said, old = p.look(positions[from:to], out[from:to])
		}
		if old {
			kick(l.toEnds)
		}
		if !said {
			for i := from; i < to; i++ {
				out[i] = index.Unsure
			}
		}
		from = to
	}
	return out
}

// look says nothing where nothing can be said yet; old tells that the log's end must
// be asked for.
func (p *part) look(positions []Position, out []index.Verdict) (said, old bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.ix.Current(); err != nil || !p.loadedLocked() {
		return false, false
	}
	for i, at := range positions {
		out[i] = p.ix.Look(at.TopicID, at.Offset)
		if out[i] == index.Done && !p.fresh.knows(at.Since) {
			out[i] = index.Unsure
			old = p.fresh.want(at.Since) || old
		}
	}
	return true, old
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
