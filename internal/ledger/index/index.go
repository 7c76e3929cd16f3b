// Package index decides by what a ledger partition says: what is told of its
// records and of share-partition starts goes in, verdicts on source offsets come
// out. It is pure: no I/O, no clock, no kgo.
//
// What it decides by, for one source offset: at most one transaction that covers
// it may commit. All entries that cover it lie in one log, so of any two one is
// the earlier. A transaction commits only if, read up to its own entry, every
// earlier one that covers an offset of it has aborted.
package index

import (
	"math"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// Producer is who wrote a record: a transaction is one producer id and epoch,
// since with transaction.version 2 each takes an epoch of its own.
type Producer struct {
	ID    int64
	Epoch int16
}

// Index is one ledger partition, as far as it was read. Every offset of the log
// from the first on must be told in order, by one of Entry, Marker, Generation
// and Other, or skipped by Gap. After an error of one of them the Index must not
// be used any more: what it would say is not proven. Not safe for concurrent use.
type Index struct {
	group     string
	partition int32
	next      int64

	number     int64            // the highest generation that any record spoke of
	generation entry.Generation // the record in force, its Number at most number; 0 before one was read
	written    int64            // where it was read last, -1 if not since the last gap
	clash      *ClashError
	since      int64 // a start counts if it was read after the log was told up to here

	gapped  bool
	resumed int64 // and a start settles what a gap left unsure if it was read after this

	sources map[[16]byte]*source
	open    map[int64]*transaction // by producer id
	kept    kept
	strays  int64
}

// source is one source partition.
type source struct {
	floor int64 // the highest start that counted, -1 before
	done  spans // committed, at or above floor
	open  []*pending

	asOf, end int64 // of the start that settles what a gap left unsure; asOf is -1 before
}

// transaction is one whose marker was not read.
type transaction struct {
	epoch   int16
	entries []*pending
}

// pending is an entry whose transaction is undecided.
type pending struct {
	at       int64
	producer Producer
	source   *source // of the generation in which it was read
	entry.Entry
}

// New makes the index of a ledger partition of a group whose log is read from
// the offset from on: its first. Ledger partition and source partition have the
// same number.
func New(group string, partition int32, from int64) *Index {
	return &Index{
		group: group, partition: partition, next: from, written: -1,
		sources: make(map[[16]byte]*source), open: make(map[int64]*transaction),
	}
}

// Next is the offset that must be told next.
func (x *Index) Next() int64 { return x.next }

// advance takes one offset as told.
func (x *Index) advance(at int64) error {
	if at != x.next {
		return &ContinuityError{Partition: x.partition, Next: x.next, At: at}
	}
	x.next++
	return nil
}

// Entry tells a transaction's entry at the offset at; it must have come in a
// transactional batch. The Index keeps e.Ranges until the transaction is decided.
// Errors are *ContinuityError, *MisplacedError, *EpochError.
func (x *Index) Entry(at int64, p Producer, e entry.Entry) error {
	if err := x.advance(at); err != nil {
		return err
	}
	if e.Partition != x.partition {
		return &MisplacedError{Partition: x.partition, At: at, Source: e.Partition, TransactionalID: e.TransactionalID}
	}
	t := x.open[p.ID]
	switch {
	case t == nil:
		t = &transaction{epoch: p.Epoch}
		x.open[p.ID] = t
	case t.epoch != p.Epoch:
		return &EpochError{Partition: x.partition, At: at, ID: p.ID, Open: t.epoch, Got: p.Epoch}
	}
	if e.Generation > x.number { // its record was deleted or comes later; whoever wrote this has read it
		x.begin(e.Generation)
		x.since = x.next
	}
	pe := &pending{at: at, producer: p, Entry: e}
	t.entries = append(t.entries, pe)
	if e.Generation == x.number {
		pe.source = x.source(e.TopicID)
		pe.source.open = append(pe.source.open, pe)
		x.kept.add(keptEntry{at: at, last: e.Ranges[len(e.Ranges)-1].Last, source: pe.source, undecided: true})
	}
	return nil
}

// Marker tells a transaction marker: the end of the transaction of the epoch
// before p's (KIP-890). A transaction of a later epoch it leaves alone: a
// coordinator that lost an answer writes a marker again.
//
// A marker that is further ahead ends a transaction whose own marker a broker
// lost: readers of committed data see its records as that one says. A commit is
// taken for what its producer wrote in place of the lost one. So is an abort at an
// odd distance, see AbortRepair; any other abort may have hidden what is committed
// elsewhere, which no reader may go on from. Errors are *ContinuityError,
// *EpochError.
func (x *Index) Marker(at int64, p Producer, commit bool) error {
	if err := x.advance(at); err != nil {
		return err
	}
	t := x.open[p.ID]
	if t == nil {
		return nil
	}
	switch ahead := int32(p.Epoch) - int32(t.epoch); {
	case ahead < 1:
		x.strays++
		return nil
	case ahead > 1 && !commit && !AbortRepair(t.epoch, p.Epoch):
		return &EpochError{Partition: x.partition, At: at, ID: p.ID, Open: t.epoch, Got: p.Epoch, Abort: true}
	}
	delete(x.open, p.ID)
	for _, pe := range t.entries {
		if pe.Generation != x.number {
			continue
		}
		s := pe.source
		s.close(pe)
		if commit {
			for _, r := range pe.Ranges {
				s.done.add(max(r.First, s.floor), r.Last)
			}
		}
		x.kept.decide(pe.at, commit)
	}
	return nil
}

// AbortRepair says whether an abort marker of the epoch got repeats the lost
// marker of an aborted transaction, of the epoch open. Who repairs aborts takes
// care that the distance is odd, and who repairs a commit that it is even, so that
// a repair of a commit which its coordinator aborted, since the producer died in
// the middle, is not mistaken for one of an abort.
func AbortRepair(open, got int16) bool {
	ahead := int32(got) - int32(open)
	return ahead > 1 && ahead%2 == 1
}

// Generation tells a generation record. Errors are *ContinuityError, *GroupError.
func (x *Index) Generation(at int64, g entry.Generation) error {
	if err := x.advance(at); err != nil {
		return err
	}
	switch {
	case g.Group != x.group:
		return &GroupError{Partition: x.partition, At: at, Group: g.Group, Want: x.group}
	case g.Number < x.number:
		return nil
	case g.Number > x.number:
		x.begin(g.Number)
	}
	if g.Contradicts(x.generation) {
		x.clash = &ClashError{Partition: x.partition, At: at, Number: g.Number, Guarantees: [2]string{x.generation.Guarantee, g.Guarantee}}
	}
	if g.Supersedes(x.generation) {
		x.generation, x.written = g, at
	}
	if g.Phase == entry.Active {
		x.since = min(x.since, x.next)
	}
	return nil
}

// begin forgets what the generations before n say. Their starts say nothing
// either: while the group's offsets are being set, a start may be of before or
// of after.
func (x *Index) begin(n int64) {
	x.number, x.since, x.clash = n, math.MaxInt64, nil
	clear(x.sources)
	x.kept = kept{}
}

// Other tells a record that says nothing about transactions, such as a control
// record of another kind. Errors are *ContinuityError.
func (x *Index) Other(at int64) error { return x.advance(at) }

// Gap tells that the log from Next on was deleted, and that reading goes on at
// resume. An entry that was undecided may have been decided by a marker that
// nobody will read, and what was deleted may have covered any offset: all that is
// not known to be done is Unsure until a start has settled it, and the generation
// is not known until a record of it was read again. A log that lost its end is
// read by another Index from its beginning, which is told a Gap at once. Errors
// are *ContinuityError, for a resume that lies before Next.
func (x *Index) Gap(resume int64) error {
	if resume < x.next {
		return &ContinuityError{Partition: x.partition, Next: x.next, At: resume}
	}
	clear(x.open)
	for _, s := range x.sources {
		s.open, s.asOf = nil, -1
	}
	x.kept = kept{}
	x.gapped, x.resumed, x.written = true, resume, -1
	x.next = resume
	return nil
}

// Start tells the start of a share partition, -1 if it has none yet, and when it
// was read: the request was sent when the log had been told up to asOf (what
// Next was then), and end was the end of the log after the answer had come.
//
// What lies below a start is Below for good, within a generation. A start also
// settles what a gap left Unsure: whatever was deleted as done lay below it. But
// only if it was read after the gap, and only when the log was told up to end:
// then it is known that nobody had begun to set the group's offsets.
//
// A topic that does not exist any more has the start math.MaxInt64.
func (x *Index) Start(topic [16]byte, start, asOf, end int64) {
	if asOf < x.since {
		return
	}
	s := x.source(topic)
	if start > s.floor {
		s.floor = start
		s.done.dropBelow(start)
		x.kept.compact()
	}
	if asOf >= x.resumed && (s.asOf < x.resumed || end < s.end) {
		s.asOf, s.end = asOf, end
	}
}

// Floor is the highest start of the generation that was told for a topic, -1
// before one was.
func (x *Index) Floor(topic [16]byte) int64 {
	if s := x.sources[topic]; s != nil {
		return s.floor
	}
	return -1
}

// source finds the source partition of a topic or makes it.
func (x *Index) source(topic [16]byte) *source {
	s := x.sources[topic]
	if s == nil {
		s = &source{floor: -1, asOf: -1}
		x.sources[topic] = s
	}
	return s
}

// close takes pe from the undecided ones.
func (s *source) close(pe *pending) {
	for i, o := range s.open {
		if o == pe {
			last := len(s.open) - 1
			s.open[i], s.open[last] = s.open[last], nil
			s.open = s.open[:last]
			return
		}
	}
}

// Current is the generation in force. Errors: ErrNoGeneration, if no record of
// it was read, or none since the last gap, and *ClashError. A phase of Resetting
// is no error here.
func (x *Index) Current() (entry.Generation, error) {
	switch {
	case x.clash != nil:
		return entry.Generation{}, x.clash
	case x.generation.Number < x.number, x.written < 0:
		return entry.Generation{}, ErrNoGeneration
	}
	return x.generation, nil
}

// Keep is the offset below which the log may be deleted (DeleteRecords), 0 for
// none: the first entry that is undecided, or committed and not wholly below its
// start, and never more than the newest record of the generation in force, which
// a reader must find.
func (x *Index) Keep() int64 {
	if _, err := x.Current(); err != nil {
		return 0
	}
	if first, ok := x.kept.first(); ok {
		return min(first, x.written)
	}
	return x.written
}

// Deletable is what Keep would be if the generation record were written anew at
// the end of the log: whether that is worth while.
func (x *Index) Deletable() int64 {
	if first, ok := x.kept.first(); ok {
		return first
	}
	return x.next
}
