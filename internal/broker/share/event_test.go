package share

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/wire"
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

// TestEvents has a scenario for each kind of event, in each profile that has it:
// exactly that is told, with all that belongs to it. Record 0 was delivered to
// "a" once, with records 1 to 3, and is staged as rejected by producer 7 at epoch
// 3 where the scenario says so; the delivery limit is 2.
func TestEvents(t *testing.T) {
	stage := func(u *user, epoch int32) {
		if code := u.stage(u.staging(epoch, batch(0, 0, acks.Reject))); code != codeNone {
			u.t.Fatalf("stage answered %d", code)
		}
	}
	again := func(u *user, epoch int32) { // to the last delivery
		u.mustAck(batch(0, 3, acks.Release))
		u.fetch()
	}
	type step = func(*user, int32)
	marker := func(commit bool) step { return func(u *user, _ int32) { u.e.Outcome(7, 4, commit) } }
	moved := func(u *user, _ int32) { u.e.LeaderChanged(u.in, 0) }
	at := func(kind EventKind, first, last int64, count int16, to State) Event {
		return Event{Kind: kind, First: first, Last: last, Count: count, To: to}
	}
	of := func(ev Event) Event { // what was staged
		ev.ProducerID, ev.ProducerEpoch, ev.Type = 7, 3, acks.Reject
		return ev
	}
	why := func(ev Event, w LostWhy) Event { ev.Why = w; return ev }
	typed := func(ev Event, ty acks.Type) Event { ev.Type = ty; return ev }
	tell := func(evs ...Event) []Event { return evs }

	for _, c := range []struct {
		name           string
		before         []step
		do             step    // nil: the locks' second passes
		draft95, kip93 []Event // nil: nothing is told
	}{
		{"acquired again", []step{func(u *user, _ int32) { u.mustAck(batch(0, 3, acks.Release)) }}, func(u *user, _ int32) { u.fetch() },
			tell(at(EventAcquired, 0, 3, 2, Acquired)), tell(at(EventAcquired, 0, 3, 2, Acquired))},
		{"staged", nil, stage, tell(of(at(EventStaged, 0, 0, 1, TxPending))), tell(of(at(EventStaged, 0, 0, 1, TxPending)))},
		{"staged a second time", []step{stage}, stage, nil, nil},
		{"refused", nil, func(u *user, epoch int32) { u.stage(u.staging(epoch, batch(0, 9, acks.Accept))) }, nil, nil},
		{"committed", []step{stage}, marker(true), tell(of(at(EventResolved, 0, 0, 1, Archived))), tell(of(at(EventResolved, 0, 0, 1, Archived)))},
		{"aborted", []step{stage}, marker(false), tell(of(at(EventResolved, 0, 0, 1, Available))), tell(of(at(EventResolved, 0, 0, 1, Acquired)))},
		{"a marker for nothing", nil, marker(true), nil, nil},
		{"locks ended", []step{stage}, nil,
			tell(at(EventExpired, 1, 3, 1, Available)),
			tell(why(of(at(EventLost, 0, 0, 1, Available)), LostLock), at(EventExpired, 1, 3, 1, Available))},
		{"locks ended on the last delivery", []step{again, stage}, nil,
			tell(at(EventExpired, 1, 3, 2, Archived)),
			tell(why(of(at(EventLost, 0, 0, 2, Archived)), LostLock), at(EventExpired, 1, 3, 2, Archived))},
		{"leader moved", []step{again, stage}, moved,
			tell(at(EventForgotten, 1, 3, 1, Available)),
			tell(why(of(at(EventLost, 0, 0, 1, Available)), LostLeader), at(EventForgotten, 1, 3, 1, Available))},
		{"leader down", []step{stage}, func(u *user, _ int32) { u.e.NodeDown(0) },
			tell(at(EventForgotten, 1, 3, 0, Available)),
			tell(why(of(at(EventLost, 0, 0, 0, Available)), LostLeader), at(EventForgotten, 1, 3, 0, Available))},
		{"acknowledged", nil, func(u *user, _ int32) {
			u.mustAck(batch(0, 0, acks.Accept), batch(1, 1, acks.Reject), batch(2, 2, acks.Gap), batch(3, 3, acks.Release))
		}, tell(
			typed(at(EventDecided, 0, 0, 1, Acknowledged), acks.Accept), typed(at(EventDecided, 1, 1, 1, Archived), acks.Reject),
			typed(at(EventDecided, 2, 2, 1, Archived), acks.Gap), typed(at(EventReleased, 3, 3, 1, Available), acks.Release),
		), tell(
			typed(at(EventDecided, 0, 0, 1, Acknowledged), acks.Accept), typed(at(EventDecided, 1, 1, 1, Archived), acks.Reject),
			typed(at(EventDecided, 2, 2, 1, Archived), acks.Gap), typed(at(EventReleased, 3, 3, 1, Available), acks.Release),
		)},
		{"renewed", nil, func(u *user, _ int32) {
			req := u.ackReq(batch(0, 3, acks.Renew))
			req.IsRenewAck = true
			u.sendAck(req)
		}, nil, nil},
		{"session closed", []step{stage}, func(u *user, _ int32) { u.closeSession() },
			tell(at(EventReleased, 1, 3, 1, Available)), tell(at(EventReleased, 1, 3, 1, Available))},
		{"session closed on the last delivery", []step{again}, func(u *user, _ int32) { u.closeSession() },
			tell(at(EventReleased, 0, 3, 2, Archived)), tell(at(EventReleased, 0, 3, 2, Archived))},
		{"half of a call failed", nil, func(u *user, epoch int32) {
			req := u.staging(epoch, batch(0, 0, acks.Reject))
			req.Topics = append(req.Topics, wire.RequestTopic{TopicID: [16]byte{88}, Partitions: []wire.RequestPartition{{}}})
			u.stage(req)
		}, tell(of(at(EventStaged, 0, 0, 1, TxPending))), tell(of(at(EventStaged, 0, 0, 1, TxPending)), of(at(EventRolledBack, 0, 0, 1, Acquired)))},
		{"retention", nil, func(u *user, _ int32) {
			u.log.with("in", 0, func(p *fakePartition) { p.Start = 2 })
			u.add(1)
			u.fetch()
		}, tell(at(EventForgotten, 0, 1, 1, Archived), at(EventAcquired, 4, 4, 1, Acquired)), tell(at(EventForgotten, 0, 1, 1, Archived), at(EventAcquired, 4, 4, 1, Acquired))},
	} {
		for p, want := range map[wire.Profile][]Event{wire.Draft95: c.draft95, wire.KIP93: c.kip93} {
			synctest.Test(t, func(t *testing.T) {
				var got []Event
				r := newRig(t.Context(), t, map[string]string{configLock: "1000", configLimit: "2"}, speaking(p), func(c *Config) {
					c.Observe = func(ev Event) { got = append(got, ev) }
				})
				r.add(4)
				a := r.user("a")
				epoch := a.join()
				a.fetch(exactly(4))
				if len(got) != 2 || got[0].Kind != EventStarted || got[0].First != 0 || got[1].Kind != EventAcquired {
					t.Fatalf("%v, %s: at first %+v", p, c.name, got)
				}
				for _, do := range c.before {
					do(a, epoch)
				}
				r.e.mu.Lock() // under which Observe is called
				got = nil
				r.e.mu.Unlock()
				if c.do == nil {
					time.Sleep(time.Second)
				} else {
					c.do(a, epoch)
				}
				synctest.Wait()
				r.e.mu.Lock()
				defer r.e.mu.Unlock()
				for i := range want {
					want[i].Group, want[i].Topic, want[i].Member = "g", r.in, "a"
				}
				if !slices.Equal(got, want) {
					t.Errorf("%v, %s: told\n%+v, want\n%+v", p, c.name, got, want)
				}
			})
		}
	}
}
