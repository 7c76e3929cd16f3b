// Package history is what the embedded broker saw of its records and
// transactions, and a judgement over it: which inputs each transaction
// acknowledged, which outputs it published, and what is wrong with that (the
// plan's invariants I1 to I4, and of I3 the end state). It rests on the broker's side alone: neither on headers
// of records nor on anything that a client says.
package history

import (
	"slices"
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
)

// Event is one thing that the broker saw: a share.Event, a txn.Event or a
// Produced.
type Event any

// Produced is a batch that a log took in a transaction.
type Produced struct {
	Writer      txn.Key
	Partition   txn.Partition
	First, Last int64
}

// Recorder keeps events in the order in which they are told. Safe for
// concurrent use; Add is quick and calls nobody.
type Recorder struct {
	mu     sync.Mutex
	events []Event
}

// Add appends an event.
func (r *Recorder) Add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

// Observe gives the function by which events of one kind are told to r; nil for
// no Recorder.
func Observe[E Event](r *Recorder) func(E) {
	if r == nil {
		return nil
	}
	return func(e E) { r.Add(e) }
}

// Events gives all events so far.
func (r *Recorder) Events() []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}
