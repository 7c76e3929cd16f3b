package acks

// longRun is the number of equal types from which a run leaves a mixed batch
// to be one with a single type: it keeps the type lists short, as Java's
// client does (KIP-932).
const longRun = 10

// Batches is the wire form of runs that ascend and are disjoint: the fewest
// batches that keep each offset's type (KIP-932). Of runs that overlap with
// different types the result is of no use; a Set refuses those.
func Batches(runs []Run) []AcknowledgementBatch {
	var l runList
	for _, r := range runs {
		l.add(r)
	}
	return l.batches()
}

// batches is the wire form: the fewest batches that keep each offset's type,
// where a run of at least longRun stands alone. Shorter runs that touch share
// one batch with a type per offset.
func (l *runList) batches() []AcknowledgementBatch {
	var (
		out   []AcknowledgementBatch
		short []Run // runs that touch and are not yet in out
	)
	flush := func() {
		if len(short) > 0 {
			out = append(out, batch(short))
			short = short[:0]
		}
	}
	for r := range l.all() {
		if n := len(short); n > 0 && (r.long() || r.First != short[n-1].Last+1) {
			flush()
		}
		short = append(short, r)
		if r.long() {
			flush()
		}
	}
	flush()
	return out
}

func (r Run) long() bool { return r.Last-r.First+1 >= longRun }

// batch makes one batch of runs that touch.
func batch(runs []Run) AcknowledgementBatch {
	b := AcknowledgementBatch{FirstOffset: runs[0].First, LastOffset: runs[len(runs)-1].Last}
	if len(runs) == 1 {
		b.Types = []Type{runs[0].Type}
		return b
	}
	b.Types = make([]Type, 0, b.Offsets())
	for _, r := range runs {
		for range r.Last - r.First + 1 {
			b.Types = append(b.Types, r.Type)
		}
	}
	return b
}
