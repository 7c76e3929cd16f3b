package check

// fences tells which commits came from a producer that had been fenced: after a
// later InitProducerId of the same transactional id, at an epoch before it.
type fences struct {
	latest map[string]Txn            // what InitProducerId gave last
	older  map[string]map[int64]bool // producer ids that an id had before
}

func (f *fences) init(e Initialised) {
	if f.latest == nil {
		f.latest, f.older = make(map[string]Txn), make(map[string]map[int64]bool)
	}
	if last, ok := f.latest[e.ID]; ok && last.Producer != e.Producer {
		if f.older[e.ID] == nil {
			f.older[e.ID] = make(map[int64]bool)
		}
		f.older[e.ID][last.Producer] = true
	}
	f.latest[e.ID] = e.Txn
}

// ended tells whether e commits, by its producer's wish, what was fenced, and by
// whom.
func (f *fences) ended(e Ended) (fence Txn, fenced bool) {
	fence, ok := f.latest[e.ID]
	switch {
	case !ok || !e.Commit:
		return fence, false
	case e.Producer == fence.Producer:
		return fence, e.Epoch < fence.Epoch
	}
	return fence, f.older[e.ID][e.Producer]
}
