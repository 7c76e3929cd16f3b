package share

import "github.com/sharetxn/sharetxn/acks"

// EventKind is what happened to a range of records.
type EventKind uint8

const (
	EventAcquired   EventKind = iota // delivered to Member; Count is the delivery count
	EventStaged                      // TX_PENDING for the producer; Type is what was staged
	EventResolved                    // a marker ended it: To is the state now
	EventLost                        // staged no more, with no marker (profile KIP93): Why says how
	EventDecided                     // acknowledged plainly: To is the state now
	EventExpired                     // the acquisition lock ended: To is the state now
	EventReleased                    // given back by member or session: To is the state now
	EventRolledBack                  // staged, and undone before the answer (profile KIP93)
	EventForgotten                   // acquired no more, by nobody's act: a new leader does not know of it, or retention took it; To is the state now
	EventReset                       // the partition's start was set to First: what lies there and above begins anew; -1: the group's reset policy is to set it
	EventStarted                     // the group's reset policy set the partition's start to First, since somebody reads it who found none
)

// LostWhy is how a staged record was lost to its transaction (design 5).
type LostWhy uint8

const (
	LostNot    LostWhy = iota
	LostLock           // its lock ended while it was staged
	LostLeader         // its leader moved or its broker went down
)

// Event is one thing that happened to [First, Last] of a share partition. It is
// what audits and histories are made of.
type Event struct {
	Kind        EventKind
	Group       string
	Topic       [16]byte
	Partition   int32
	First, Last int64
	Member      string
	Count       int16 // deliveries, as counted from here on: the next one is one more
	// of staged ones
	ProducerID    int64
	ProducerEpoch int16
	Type          acks.Type // also what was acknowledged plainly
	To            State
	Why           LostWhy
}
