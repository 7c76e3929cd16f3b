package share

import (
	"fmt"
)

// follower is what events alone tell of each offset: its last event.
type follower map[int64]Event

// from is the state that an event of the kind begins in.
var from = map[EventKind]State{
	EventAcquired: Available, EventStaged: Acquired, EventResolved: TxPending, EventLost: TxPending,
	EventDecided: Acquired, EventExpired: Acquired, EventReleased: Acquired, EventRolledBack: TxPending, EventForgotten: Acquired,
}

// follow takes an event in and says if it cannot follow the one before.
func (f follower) follow(ev Event) error {
	for o := ev.First; o <= ev.Last; o++ {
		was := f[o]
		switch {
		case was.To != from[ev.Kind]:
			return fmt.Errorf("offset %d: %+v after %+v", o, ev, was)
		case ev.Kind == EventAcquired && ev.Count != was.Count+1:
			return fmt.Errorf("offset %d: delivery %d after %d", o, ev.Count, was.Count)
		case ev.Kind != EventAcquired && ev.Member != was.Member:
			return fmt.Errorf("offset %d: %+v, held by %q", o, ev, was.Member)
		case was.To == TxPending && (ev.ProducerID != was.ProducerID || ev.ProducerEpoch != was.ProducerEpoch || ev.Type != was.Type):
			return fmt.Errorf("offset %d: %+v ends %+v", o, ev, was)
		case (ev.Kind == EventLost) != (ev.Why != LostNot):
			return fmt.Errorf("offset %d: %+v", o, ev)
		}
		f[o] = ev
	}
	return nil
}

// same compares with the partition. What was archived without having been
// anybody's tells nothing.
func (f follower) same(p *partition) error {
	for _, e := range p.entries {
		for o := e.first; o <= e.last; o++ {
			last, known := f[o]
			switch {
			case e.state == Archived && last.To == Available:
			case e.state == Available && !known && e.count == 0:
			case last.To != e.state || last.Count != e.count || (e.owner != "" && last.Member != e.owner):
				return fmt.Errorf("offset %d is %+v, told last %+v", o, e, last)
			}
		}
	}
	return nil
}
