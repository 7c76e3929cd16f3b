package tail

import (
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
)

// Status is what a ledger holds.
type Status struct {
	Partitions []PartitionStatus
	// Entries are those in the log that decide something: undecided, or committed
	// and not wholly below the start.
	Entries int64
}

// PartitionStatus is what one partition of a ledger holds.
type PartitionStatus struct {
	Partition  int32
	Next       int64 // the offset up to which it was read
	Loaded     bool  // up to where the log ended when reading began
	Generation entry.Generation
	// GenerationErr says why Generation is none: index.ErrNoGeneration, or an
	// *index.ClashError.
	GenerationErr error
	index.Stats
}

// Status tells what the ledger holds now; it does no I/O.
func (l *Ledger) Status() Status {
	var s Status
	for _, p := range *l.parts.Load() {
		x := p.status()
		s.Entries += int64(x.Open + x.Committed)
		s.Partitions = append(s.Partitions, x)
	}
	return s
}

func (p *part) status() PartitionStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	g, err := p.ix.Current()
	return PartitionStatus{Partition: p.n, Next: p.ix.Next(), Loaded: p.loadedLocked(), Generation: g, GenerationErr: err, Stats: p.ix.Stats()}
}
