package history

import (
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
)

// Log is a partition's log as it is: its bounds, and its batches in order.
type Log struct {
	Bounds  share.Bounds
	Batches []Batch
}

// Batch is one batch of a log.
type Batch struct {
	First, Last   int64
	Writer        txn.Key // of a marker: the epoch that ends the transaction, one up
	Transactional bool
	Control       bool // a marker
	Commit        bool // what a marker says
}

// published gives the batches that a read_committed reader sees: those of no
// transaction, and those whose transaction's next marker is a commit.
func (l Log) published() []Batch {
	var out []Batch
	open := make(map[int64][]Batch) // by producer id
	for _, b := range l.Batches {
		id := b.Writer.ProducerID
		switch {
		case b.Control && b.Commit:
			out = append(out, open[id]...)
			delete(open, id)
		case b.Control:
			delete(open, id)
		case b.Transactional:
			open[id] = append(open[id], b)
		default:
			out = append(out, b)
		}
	}
	return out
}
