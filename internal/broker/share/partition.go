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

	written bool  // something was persisted: until then Kafka describes no start
	told    int64 // the start as it was persisted: every write carries the one before it moves

	sem     semantics   // of the profile
	observe func(Event) // nil: nobody
	touch   func()      // is told that something may have changed; nil: nobody

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

func newPartition(start int64, sem semantics) *partition {
	return &partition{start: start, end: start, sem: sem}
}

// tell says what happened to a range; of is the entry as it was, or, where
// something began, as it is.
func (p *partition) tell(ev Event, of entry) {
	if p.observe == nil {
		return
	}
	ev.First, ev.Last, ev.Member, ev.Count = of.first, of.last, of.owner, of.count
	if of.state == TxPending {
		ev.ProducerID, ev.ProducerEpoch, ev.Type = of.producerID, of.producerEpoch, of.verdict
	}
	p.observe(ev)
}

// write is what a change of records persists of the partition. It comes before
// settle, so that what Kafka describes trails the start by a write (measured).
func (p *partition) write() { p.written, p.told = true, p.start }

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

// settle joins equal neighbours and moves the start over what is done. It ends
// every change.
func (p *partition) settle() {
	if p.touch != nil {
		p.touch()
	}
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

// pending tells whether anything is staged.
func (p *partition) pending() bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool { return e.state == TxPending })
}

// giveBack makes an entry available, or archives it at the limit, and says what
// did it.
func (p *partition) giveBack(e *entry, why Event) {
	was := *e
	p.write()
	*e = entry{first: e.first, last: e.last, state: Available, count: e.count, persisted: e.count}
	if e.count >= p.limit {
		e.state = Archived
		p.archivedAtLimit += e.offsets()
	}
	why.To = e.state
	p.tell(why, was)
}

// release gives back all that owner has acquired.
func (p *partition) release(owner string) (changed bool) {
	for i := range p.entries {
		if e := &p.entries[i]; e.state == Acquired && e.owner == owner {
			p.giveBack(e, Event{Kind: EventReleased})
			changed = true
		}
	}
	if changed {
		p.settle()
	}
	return changed
}

// expire gives back what was locked until now or earlier. A staged record whose
// lock ends is lost to its transaction: a later marker finds nothing of it.
func (p *partition) expire(now time.Time) (changed bool) {
	for i := range p.entries {
		e := &p.entries[i]
		if e.deadline.IsZero() || e.deadline.After(now) {
			continue
		}
		why := Event{Kind: EventExpired}
		if e.state == TxPending {
			why = Event{Kind: EventLost, Why: LostLock}
		}
		p.giveBack(e, why)
		changed = true
	}
	if changed {
		p.settle()
	}
	return changed
}

// earliest is the first lock to end; zero if none runs.
func (p *partition) earliest() (at time.Time) {
	for _, e := range p.entries {
		if !e.deadline.IsZero() && (at.IsZero() || e.deadline.Before(at)) {
			at = e.deadline
		}
	}
	return at
}

// leaderMoved is what a new leader knows: acquisition lives in memory only, and
// so does staging where the profile has it so; with their deliveries they are
// forgotten, and so is the end of the window where nothing was ever written.
// What was persisted stays.
func (p *partition) leaderMoved() { p.reload(p.sem.volatile) }

// forgetAcquired is leaderMoved for what is acquired only.
func (p *partition) forgetAcquired() { p.reload(false) }

func (p *partition) reload(staged bool) {
	for i := range p.entries {
		e := &p.entries[i]
		why := Event{Kind: EventForgotten, To: Available}
		switch {
		case e.state == Acquired:
		case e.state == TxPending && staged:
			why.Kind, why.Why = EventLost, LostLeader
		default:
			continue
		}
		was := *e
		*e = entry{first: e.first, last: e.last, state: Available, count: e.persisted, persisted: e.persisted}
		was.count = e.count
		p.tell(why, was)
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
			was := *e
			e.end(Archived)
			p.tell(Event{Kind: EventForgotten, To: Archived}, was)
		}
	}
	p.settle()
	if len(p.entries) == 0 && p.end < start {
		p.start, p.end = start, start
	}
}

// archive ends what is available in [first, last] without a delivery.
func (p *partition) archive(first, last int64) (offsets int64) {
	lo, hi := p.split(first), p.split(last+1)
	for i := lo; i < hi; i++ {
		if e := &p.entries[i]; e.state == Available {
			e.end(Archived)
			offsets += e.offsets()
		}
	}
	return offsets
}

// end puts the entry into a terminal state, which is persisted.
func (e *entry) end(s State) {
	*e = entry{first: e.first, last: e.last, state: s, count: e.count, persisted: e.count}
}
