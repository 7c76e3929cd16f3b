package verify

import (
	"cmp"
	"hash/fnv"
	"slices"
)

// Logs follows transactions through the logs of partitions, as a reader comes by
// their records and markers: each partition in order.
type Logs struct {
	open  map[stream][]entry
	fates map[Txn]*fate
	sums  map[Part]Sum
	bad   []bad
}

// Sum is of records of one partition, whatever their order.
type Sum struct {
	Records int
	Hash    uint64
}

type stream struct {
	part     Part
	producer int64
}

type entry struct {
	txn  Txn
	hash uint64
}

// fate of one transaction's records, over all partitions.
type fate struct{ committed, aborted, open int }

type bad struct {
	txn  Txn
	what string
}

// NewLogs has seen nothing.
func NewLogs() *Logs {
	return &Logs{open: make(map[stream][]entry), fates: make(map[Txn]*fate), sums: make(map[Part]Sum)}
}

// Data is a record of a transaction.
func (l *Logs) Data(p Part, t Txn, offset int64, value []byte) {
	s := stream{p, t.Producer}
	if open := l.open[s]; len(open) > 0 && open[0].txn != t {
		l.bad = append(l.bad, bad{t, "began in " + p.String() + " before its producer's " + open[0].txn.String() + " had a marker there"})
	}
	l.open[s] = append(l.open[s], entry{t, hash(offset, value)})
	if l.fates[t] == nil {
		l.fates[t] = new(fate)
	}
	l.fates[t].open++
}

// Marker ends what the producer has open in the partition.
func (l *Logs) Marker(p Part, producer int64, commit bool) {
	s := stream{p, producer}
	for _, e := range l.open[s] {
		end := l.fates[e.txn]
		end.open--
		if !commit {
			end.aborted++
			continue
		}
		end.committed++
		sum := l.sums[p]
		sum.Records++
		sum.Hash += e.hash
		l.sums[p] = sum
	}
	delete(l.open, s)
}

// Sums of what is committed, by partition.
func (l *Logs) Sums() map[Part]Sum { return l.sums }

// Committed and Aborted are how many transactions ended so.
func (l *Logs) Committed() (n int) { return l.count(func(e *fate) bool { return e.committed > 0 }) }
func (l *Logs) Aborted() (n int)   { return l.count(func(e *fate) bool { return e.aborted > 0 }) }

func (l *Logs) count(is func(*fate) bool) (n int) {
	for _, e := range l.fates {
		if is(e) {
			n++
		}
	}
	return n
}

// judge adds what is wrong with the transactions: each must have ended, in one
// way. Of readers that see only what is committed, none may be aborted.
func (l *Logs) judge(v *Verdict, onlyCommitted bool) {
	for _, b := range l.bad {
		v.found(Torn, b.txn, "%s", b.what)
	}
	txns := make([]Txn, 0, len(l.fates))
	for t := range l.fates {
		txns = append(txns, t)
	}
	slices.SortFunc(txns, func(a, b Txn) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, t := range txns {
		switch e := l.fates[t]; {
		case e.open > 0, e.committed > 0 && e.aborted > 0:
			v.found(Torn, t, "%d records committed, %d aborted, %d open", e.committed, e.aborted, e.open)
		case onlyCommitted && e.aborted > 0:
			v.found(Retracted, t, "%d records were visible, and their transaction aborted", e.aborted)
		}
	}
}

// same holds what two readers saw against each other.
func same(v *Verdict, a, b map[Part]Sum, who string) {
	all := make(map[Part]bool)
	for p := range a {
		all[p] = true
	}
	for p := range b {
		all[p] = true
	}
	for p := range all {
		if a[p] != b[p] {
			v.found(Retracted, p, "%s: %d records here, %d there, or others", who, a[p].Records, b[p].Records)
		}
	}
}

func hash(offset int64, value []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write(value) // never fails
	return h.Sum64() ^ uint64(offset)*0x9e3779b97f4a7c15
}
