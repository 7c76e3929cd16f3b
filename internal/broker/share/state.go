package share

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

// State is a record's state in a share partition (KIP-932; TX_PENDING KIP-1289).
type State uint8

const (
	Available State = iota
	Acquired
	Acknowledged
	Archived
	TxPending
)

func (s State) String() string {
	return [...]string{"AVAILABLE", "ACQUIRED", "ACKNOWLEDGED", "ARCHIVED", "TX_PENDING"}[s]
}

func (s State) terminal() bool { return s == Acknowledged || s == Archived }

// entry is a range of offsets in one state, both ends included.
type entry struct {
	first, last int64
	state       State
	count       int16 // deliveries so far
	persisted   int16 // of these, what a leader move remembers
	owner       string
	deadline    time.Time // of the acquisition lock, while it runs

	// while TxPending
	producerID    int64
	producerEpoch int16
	verdict       acks.Type // what the commit makes of it: semantics.target
}

func (e entry) offsets() int64 { return e.last - e.first + 1 }

// joins tells whether b, which starts right after a, can be one entry with it.
func (a entry) joins(b entry) bool {
	b.first, b.last = a.first, a.last
	return a == b
}
