package txnmanager

// A process may end before its last transaction has landed, and a marker that brokers
// lost is then for its heir to write again: whoever has the transactional id next. The
// heir must know how the transaction ended. Its coordinator tells, until the heir's
// InitProducerId is done; so it is asked before.

// described is what a coordinator says of a transactional id; the zero value is that of
// one it does not know.
type described struct {
	state  string
	of     identity // as the coordinator has it: where a transaction has ended, already the next epoch
	places []place  // partitions of a transaction that is not complete
}

// The states by their names in DescribeTransactions (KIP-664).
const (
	describedOngoing        = "Ongoing"
	describedPrepareCommit  = "PrepareCommit"
	describedCompleteCommit = "CompleteCommit"
	describedPrepareAbort   = "PrepareAbort"
	describedCompleteAbort  = "CompleteAbort"
)

// will follows what is said of an id while it is taken from whoever had it: one
// description before each InitProducerId.
type will struct {
	last   described
	open   *described // as it was while a transaction was open
	places map[place]struct{}
}

func (w *will) saw(d described) {
	if d.state == describedOngoing {
		w.open, w.places = &d, nil
	}
	if w.places == nil {
		w.places = make(map[place]struct{})
	}
	for _, p := range d.places {
		w.places[p] = struct{}{}
	}
	w.last = d
}

// past is the last transaction of an earlier life of the id.
type past struct {
	id     int64 // its producer id; -1: there was none, or nothing of ours can touch what it left
	known  bool  // how it ended is
	commit bool
	epoch  int16 // of the transaction
}

// noPast leaves nothing to be looked for.
var noPast = past{id: -1}

// read tells the past by what was seen before InitProducerId gave an identity. It is
// known only if nothing can have happened in between: from Ongoing the coordinator lets
// nobody have the id, and its own end takes one epoch, like that of a producer.
func (w *will) read(got identity) past {
	last := w.last
	if last.state == "" || last.of.id != got.id {
		return noPast
	}
	p := past{id: got.id}
	switch last.state {
	case describedPrepareCommit, describedCompleteCommit:
		p.commit = true
	case describedPrepareAbort, describedCompleteAbort:
	default:
		return p
	}
	if got.epoch != last.of.epoch+1 {
		return p
	}
	if w.open != nil && w.open.of.epoch != last.of.epoch-1 {
		return p
	}
	p.epoch, p.known = last.of.epoch-1, true
	return p
}

// left are the partitions that the transaction was known to be in, if it is known how
// it ended.
func (w *will) left(p past) []place {
	if !p.known {
		return nil
	}
	return ordered(w.places)
}
