package check

import "time"

// Place is a partition of a topic.
type Place struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
}

// At is one record.
type At struct {
	Place
	Offset int64 `json:"offset"`
}

// Range are offsets of a partition, both ends included.
type Range struct {
	Place
	First int64 `json:"first"`
	Last  int64 `json:"last"`
}

// Txn is one transaction: the producer id and epoch of the batches written in
// it. With transaction.version 2 (KIP-890) each transaction has its own.
type Txn struct {
	Producer int64 `json:"producer"`
	Epoch    int16 `json:"epoch"`
}

// Line is an event and when it was. Time is needed for rule I9 alone.
type Line struct {
	Time  time.Time
	Event Event
}

// Event is one of the event types of this package, by value.
type Event interface {
	event() // closes the set
}

// State is where a source record is in its group (KIP-932, KIP-1289).
type State string

// The states of a source record.
const (
	Available    State = "available"
	Acquired     State = "acquired"
	TxPending    State = "staged"
	Acknowledged State = "acknowledged"
	Archived     State = "archived"
)

func (s State) done() bool { return s == Acknowledged || s == Archived }

// Verdict is how a record is acknowledged; of a handler also that it failed.
type Verdict string

// The verdicts.
const (
	Accept  Verdict = "accept"
	Release Verdict = "release"
	Reject  Verdict = "reject"
	Gap     Verdict = "gap"
	Fail    Verdict = "fail"
)

// Outcome is what a client reports of a transaction.
type Outcome string

// The outcomes.
const (
	Committed Outcome = "committed"
	Aborted   Outcome = "aborted"
	Unknown   Outcome = "unknown"
)

// Loss is how a staged record was lost to its transaction (profile KIP93).
type Loss string

// The losses, which are the windows that the text of KIP-1289 concedes.
const (
	LostLock   Loss = "lock"   // its lock ended
	LostLeader Loss = "leader" // its leader moved, or its broker was lost
)

// Turn is what share events have in common.
type Turn struct {
	Range
	// Group, where it is not the history's own: then the event only shows that a
	// transaction acknowledged something.
	Group string `json:"group,omitempty"`
	// Count are the deliveries as counted from here on: the next one is one more.
	Count int   `json:"count"`
	To    State `json:"to"` // the state now
}

// The events that brokers see.
type (
	// Delivered: a member acquired records.
	Delivered struct {
		Turn
		Member string `json:"member"`
	}
	// Staged: a transaction took a verdict on records.
	Staged struct {
		Turn
		Txn
		Verdict Verdict `json:"verdict"`
	}
	// Unstaged: what was staged was undone before its answer.
	Unstaged struct {
		Turn
		Txn
	}
	// Resolved: the end of its transaction decided what was staged.
	Resolved struct {
		Turn
		Txn
	}
	// Lost: staged no more, though its transaction has not ended (profile KIP93).
	Lost struct {
		Turn
		Txn
		Why Loss `json:"why"`
	}
	// Decided: acknowledged plainly, in no transaction.
	Decided struct {
		Turn
		Verdict Verdict `json:"verdict"`
	}
	// Expired: the acquisition lock ended.
	Expired struct{ Turn }
	// Released: given back by its member, or with its session.
	Released struct{ Turn }
	// Forgotten: acquired no more, by nobody's act: a new leader does not know of it,
	// or retention took it.
	Forgotten struct{ Turn }
	// Reset: the group's start was set to Offset while it had no members
	// (AlterShareGroupOffsets). What lies there and above is to be done once more,
	// whatever became of it before, and what lies below need not be done any more.
	// Which transaction was before it and which after is told by Ended.
	//
	// Offset -1: the start was given up, and the group's reset policy is to say where it
	// begins (AlterShareGroupOffsets to -1, DeleteShareGroupOffsets, or the group was
	// deleted). Started tells what it said; as long as it does not, what was to be
	// done still is.
	Reset struct{ At }
	// Started: the group's reset policy set its start to Offset, at the first read of
	// the partition, or at the first after a Reset to -1. Then it is the second half of
	// that: what lies at Offset and above is to be done once more, what lies below need
	// not be done any more, and a transaction that ended between the two is one of
	// after it.
	Started struct{ At }
	// Initialised: InitProducerId gave a transactional id this producer id and
	// epoch, and fenced all before.
	Initialised struct {
		ID string `json:"id"`
		Txn
	}
	// Ended: the coordinator has decided a transaction, for its producer's EndTxn or by
	// itself. It is noted when it is decided, not when its markers are written.
	Ended struct {
		ID string `json:"id"`
		Txn
		Commit     bool `json:"commit"`
		ByProducer bool `json:"byProducer"`
	}
	// Produced: a log took records of a transaction.
	Produced struct {
		Range
		Txn
	}
	// Entry: a commit ledger took an entry, which says that the transaction decides
	// these source records. Group is as in Turn. Entries of an older generation do
	// not count beside those of a newer one.
	Entry struct {
		Range
		Txn
		Group      string `json:"group,omitempty"`
		Generation int64  `json:"generation"`
	}
)

// The events that clients see.
type (
	// Begun: a client began a transaction. Op is its number, of which Reported makes
	// use; no two are the same.
	Begun struct {
		Op int64  `json:"op"`
		ID string `json:"id"` // transactional
	}
	// Reported: a client was told how its transaction ended. After Unknown there may be
	// another report. Txn is nil if nothing was ever sent in it.
	Reported struct {
		Op      int64   `json:"op"`
		Txn     *Txn    `json:"txn,omitempty"`
		Outcome Outcome `json:"outcome"`
	}
	// Handled: a handler gave its verdict on a delivery. It holds only when a
	// transaction, or an acknowledgement, made it so.
	Handled struct {
		At
		Group   string  `json:"group,omitempty"` // as in Turn
		Count   int     `json:"count"`           // of the delivery, from 1
		Verdict Verdict `json:"verdict"`
	}
	// Read: a read_committed reader, which began at the start of the log, came by a
	// record while all else was going on. Of each reader the records of a partition
	// stand in the order in which it had them.
	Read struct {
		Reader string `json:"reader"`
		At
		Sum string `json:"sum,omitempty"` // of its contents, made as for Visible
	}
	// Reached: a reader has read all that lies below an offset.
	Reached struct {
		Reader string `json:"reader"`
		At
	}
	// Calm: the last fault is over.
	Calm struct{}
	// Drained: nothing is left to do. It answers the Calm before it.
	Drained struct{}
)

// The final reads: what lies in the cluster when all is over.
type (
	// Source: records that the group was to consume.
	Source struct {
		Range
		// Outputs are how many each of them must have, dead letters aside; nil: any
		// number, where outputs are the only trace of work at least one.
		Outputs *int `json:"outputs,omitempty"`
	}
	// Visible: records that a read_committed reader sees. From and what belongs to it
	// are for one record each.
	Visible struct {
		Range
		Txn  *Txn   `json:"txn,omitempty"`  // nil: written in no transaction
		From *At    `json:"from,omitempty"` // the source record it was made from; nil: it does not say
		Nth  int    `json:"nth,omitempty"`  // of its source's outputs, from 1; 0: it does not say
		Of   int    `json:"of,omitempty"`   // how many its source has, so that a missing one is missed; 0: it does not say
		Sum  string `json:"sum,omitempty"`  // of its contents
	}
	// Log: the bounds of an output's or a source's log.
	Log struct {
		Place
		Start  int64 `json:"start"`
		Stable int64 `json:"stable"` // last stable offset
		End    int64 `json:"end"`    // high watermark
	}
	// Share: a share partition of the group.
	Share struct {
		Place
		Start    int64 `json:"start"` // what lies below is done
		End      int64 `json:"end"`   // up to where it was read
		Acquired int64 `json:"acquired"`
		Staged   int64 `json:"staged"`
	}
)

func (Delivered) event()   {}
func (Staged) event()      {}
func (Unstaged) event()    {}
func (Resolved) event()    {}
func (Lost) event()        {}
func (Decided) event()     {}
func (Expired) event()     {}
func (Released) event()    {}
func (Forgotten) event()   {}
func (Reset) event()       {}
func (Started) event()     {}
func (Initialised) event() {}
func (Ended) event()       {}
func (Produced) event()    {}
func (Entry) event()       {}
func (Begun) event()       {}
func (Reported) event()    {}
func (Handled) event()     {}
func (Read) event()        {}
func (Reached) event()     {}
func (Calm) event()        {}
func (Drained) event()     {}
func (Source) event()      {}
func (Visible) event()     {}
func (Log) event()         {}
func (Share) event()       {}
