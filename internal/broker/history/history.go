// Package history is what the embedded broker saw of its records and
// transactions, and what lies in its logs at rest: which inputs each transaction
// acknowledged, and which outputs it published. The judgement over it is package
// check's. It rests on the broker's side, not on headers of records; what clients
// say may be noted among the events, for the rules that are about that.
package history

import (
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Event is one thing that the broker saw: a share.Event, a txn.Event, a
// txn.Initialised, a Produced or an Entry; or a check.Event that a client told.
type Event any

// Produced is a batch that a log took in a transaction.
type Produced struct {
	Writer      txn.Key
	Partition   txn.Partition
	First, Last int64
}

// Entry is a range of source records in a record that a commit ledger took in a
// transaction.
type Entry struct {
	Writer      txn.Key
	Group       string // whose ledger it is
	Generation  int64
	Source      txn.Partition
	First, Last int64
}

// Facts are what a group is judged by: the history, and what the brokers hold
// at rest.
type Facts struct {
	Group   string
	Profile wire.Profile
	Events  []Event
	Times   []time.Time         // when each was told; nil: not known
	Topics  map[[16]byte]string // names of the group's sources
	Shares  []share.PartitionState
	Logs    map[txn.Partition]Log // of sources and outputs, all partitions
	// Outputs are the topics that the group's transactions may publish on; nil:
	// all that they did publish on, but for its sources.
	Outputs []string
}

// Recorder keeps events in the order in which they are told. Safe for
// concurrent use; Add is quick and calls nobody but the Witness.
type Recorder struct {
	Witness func(Event) // is told of each event before Add returns, in order; nil: nobody

	mu     sync.Mutex
	events []Event
	times  []time.Time
}

// Add appends an event.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.times = append(r.events, e), append(r.times, time.Now())
	if r.Witness != nil {
		r.Witness(e)
	}
}

// Observe gives the function by which events of one kind are told to r; nil for
// no Recorder.
func Observe[E Event](r *Recorder) func(E) {
	if r == nil {
		return nil
	}
	return func(e E) { r.Add(e) }
}

// Events gives all events so far, and when each was told. Neither is to be
// changed.
func (r *Recorder) Events() ([]Event, []time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := len(r.events)
	return r.events[:n:n], r.times[:n:n]
}
