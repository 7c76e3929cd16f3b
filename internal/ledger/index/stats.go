package index

// Stats is what an Index holds.
type Stats struct {
	// Open is how many entries are undecided, and Committed how many are committed
	// and not wholly below their start: both together hold the log.
	Open, Committed int
	// Spans is how many runs of committed offsets at or above the start are held:
	// memory grows with them and with what holds the log, with nothing else.
	Spans int
	// OldestOpen is the first undecided entry; nil if there is none.
	OldestOpen *OpenEntry
	// Strays is how many markers came for an open transaction that were not its own.
	Strays int64
}

// OpenEntry is an entry whose transaction is undecided.
type OpenEntry struct {
	At              int64
	Producer        Producer
	TransactionalID string
}

// Stats counts; it costs time in proportion to what is held.
func (x *Index) Stats() Stats {
	st := Stats{Strays: x.strays}
	for i := range x.kept.entries {
		if k := &x.kept.entries[i]; k.holds() {
			if k.undecided {
				st.Open++
			} else {
				st.Committed++
			}
		}
	}
	for _, s := range x.sources {
		st.Spans += len(s.done)
		for _, pe := range s.open {
			if st.OldestOpen == nil || pe.at < st.OldestOpen.At {
				st.OldestOpen = &OpenEntry{pe.at, pe.producer, pe.TransactionalID}
			}
		}
	}
	return st
}
