package share

import (
	"cmp"
	"slices"
	"time"
)

// partition is one share partition: pure state over ranges, no clock of its
// own, no lock. The window is [start, end); entries cover it without holes.
type partition struct {
	start   int64 // SPSO: everything below is done
	end     int64 // first offset never acquired (SPEO + 1)
	entries []entry

	written bool // something was persisted: until then Kafka describes no start

	limit    int16 // delivery count limit
	maxLocks int64

	archivedAtLimit int64 // offsets archived by the delivery limit, for audits
	bytesPerOffset  int64 // of what was last read here; 0 before
}

// limits are the group configs that the state machine needs.
type limits struct {
	delivery int16
	locks    int64
}

func newPartition(start int64) *partition { return &partition{start: start, end: start} }

func (p *partition) setLimits(l limits) { p.limit, p.maxLocks = l.delivery, l.locks }

// split cuts entries so that offset begins one, and gives its index; the index
// is len(entries) where offset is at or beyond the end.
func (p *partition) split(offset int64) int {
	i, found := slices.BinarySearchFunc(p.entries, offset, func(e entry, o int64) int { return cmp.Compare(e.first, o) })
	if found || i == 0 {
		return i
	}
	prev := &p.entries[i-1]
	if prev.last < offset {
		return i
	}
	tail := *prev
	prev.last, tail.first = offset-1, offset
	p.entries = slices.Insert(p.entries, i, tail)
	return i
}

// cover gives the entries that make up [first, last], cut to it.
func (p *partition) cover(first, last int64) []entry {
	i := p.split(first)
	j := p.split(last + 1)
	return p.entries[i:j]
}

// settle joins equal neighbours and moves the start over what is done.
func (p *partition) settle() {
	out := p.entries[:0]
	for _, e := range p.entries {
		if n := len(out); n > 0 && out[n-1].joins(e) {
			out[n-1].last = e.last
		} else {
			out = append(out, e)
		}
	}
	clear(p.entries[len(out):])
	p.entries = out
	done := 0
	for done < len(p.entries) && p.entries[done].state.terminal() {
		p.start = p.entries[done].last + 1
		done++
	}
	p.entries = slices.Delete(p.entries, 0, done)
	if len(p.entries) == 0 {
		p.start = max(p.start, p.end)
	}
}

// next is the offset to read from: the first available one, else the end.
// Nothing may be acquired where ok is false.
func (p *partition) next() (offset int64, ok bool) {
	for _, e := range p.entries {
		if e.state == Available {
			return e.first, true
		}
	}
	return p.end, p.end-p.start < p.maxLocks
}

// deliveryComplete is how many offsets of the window are done.
func (p *partition) deliveryComplete() int64 {
	n := int64(0)
	for _, e := range p.entries {
		if e.state.terminal() {
			n += e.offsets()
		}
	}
	return n
}

// giveBack makes an acquired entry available, or archives it at the limit.
func (p *partition) giveBack(e *entry) {
	p.written = true
	e.owner, e.deadline, e.persisted = "", time.Time{}, e.count
	e.state = Available
	if e.count >= p.limit {
		e.state = Archived
		p.archivedAtLimit += e.offsets()
	}
}

// release gives back all that owner has acquired.
func (p *partition) release(owner string) (changed bool) {
	for i := range p.entries {
		if e := &p.entries[i]; e.state == Acquired && e.owner == owner {
			p.giveBack(e)
			changed = true
		}
	}
	if changed {
		p.settle()
	}
	return changed
}

// expire gives back what was locked until now or earlier.
func (p *partition) expire(now time.Time) (changed bool) {
	for i := range p.entries {
		if e := &p.entries[i]; e.state == Acquired && !e.deadline.After(now) {
			p.giveBack(e)
			changed = true
		}
	}
	if changed {
		p.settle()
	}
	return changed
}

// earliest is the first lock to end; zero if nothing is acquired.
func (p *partition) earliest() (at time.Time) {
	for _, e := range p.entries {
		if e.state == Acquired && (at.IsZero() || e.deadline.Before(at)) {
			at = e.deadline
		}
	}
	return at
}

// leaderMoved is what a new leader knows: acquisition lives in memory only, so
// it and its delivery are forgotten, and so is the end of the window where
// nothing was ever written; what was persisted, staged records included, stays
// (Draft95).
func (p *partition) leaderMoved() {
	for i := range p.entries {
		if e := &p.entries[i]; e.state == Acquired {
			e.state, e.owner, e.deadline = Available, "", time.Time{}
			e.count = e.persisted
		}
	}
	for n := len(p.entries); n > 0 && p.entries[n-1].state == Available && p.entries[n-1].count == 0; n-- {
		p.end = p.entries[n-1].first
		p.entries = p.entries[:n-1]
	}
	p.settle()
}

// logStartMoved ends what retention took: the share partition starts where the
// log does, and acknowledgements below that mean nothing any more. Only a
// staged record holds the start back, since its transaction will decide it.
func (p *partition) logStartMoved(start int64) {
	if start <= p.start {
		return
	}
	p.archive(p.start, start-1)
	floor := start
	for _, e := range p.entries {
		if e.state == TxPending {
			floor = min(floor, e.first)
			break
		}
	}
	lo, hi := p.split(p.start), p.split(floor)
	for i := lo; i < hi; i++ {
		if e := &p.entries[i]; e.state == Acquired {
			e.end(Archived)
		}
	}
	p.settle()
	if len(p.entries) == 0 && p.end < start {
		p.start, p.end = start, start
	}
}

// archive ends what is available in [first, last] without a delivery.
func (p *partition) archive(first, last int64) {
	lo, hi := p.split(first), p.split(last+1)
	for i := lo; i < hi; i++ {
		if e := &p.entries[i]; e.state == Available {
			e.end(Archived)
		}
	}
}

// end puts the entry into a terminal state, which is persisted.
func (e *entry) end(s State) {
	*e = entry{first: e.first, last: e.last, state: s, count: e.count, persisted: e.count}
}
