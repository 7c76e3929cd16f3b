package acks

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
)

// Set collects acknowledgements of many partitions and keeps the fewest
// ranges: a million contiguous offsets of one type cost one. The zero Set is
// ready. Not safe for concurrent use.
type Set struct {
	parts map[partKey]*partition
}

type partKey struct {
	id        [16]byte
	partition int32
}

// partition holds runs that are ascending, disjoint, and merged: neighbours
// that touch differ in type.
type partition struct {
	tp   TopicIDPartition
	runs []Run
}

// Add records one verdict. The same verdict again changes nothing; a different
// one for the offset is refused with an *Error.
func (s *Set) Add(tp TopicIDPartition, offset int64, t Type) error {
	return s.AddRange(tp, offset, offset, t)
}

// AddRange adds a whole range, both ends included, all or nothing. Errors as
// for Add, and for what Validate refuses.
func (s *Set) AddRange(tp TopicIDPartition, first, last int64, t Type) error {
	if err := Validate(tp, []AcknowledgementBatch{{first, last, []Type{t}}}); err != nil {
		return err
	}
	k := partKey{tp.TopicID, tp.Partition}
	p := s.parts[k]
	if p == nil {
		p = &partition{tp: tp}
	}
	if err := p.add(Run{first, last, t}); err != nil {
		return err
	}
	if s.parts == nil {
		s.parts = make(map[partKey]*partition)
	}
	s.parts[k] = p
	return nil
}

// add merges r in. The common case, ascending offsets, touches only the end.
func (p *partition) add(r Run) error {
	n := len(p.runs)
	if n == 0 || p.runs[n-1].Last < r.First {
		if n > 0 && p.runs[n-1].Type == r.Type && p.runs[n-1].Last+1 == r.First {
			p.runs[n-1].Last = r.Last
			return nil
		}
		p.runs = append(p.runs, r)
		return nil
	}
	// [lo, hi) are the runs that overlap r, or touch it with the same type.
	lo, _ := slices.BinarySearchFunc(p.runs, r.First, func(x Run, first int64) int { return cmp.Compare(x.Last, first) })
	if lo > 0 && p.runs[lo-1].Last+1 == r.First && p.runs[lo-1].Type == r.Type {
		lo--
	}
	hi := lo
	merged := r
	for hi < n && p.runs[hi].First <= r.Last+1 {
		x := p.runs[hi]
		overlaps := x.First <= r.Last && x.Last >= r.First
		if overlaps && x.Type != r.Type {
			first, last := max(x.First, r.First), min(x.Last, r.Last)
			return &Error{Field: "Types", Partition: p.tp, First: first, Last: last, Reason: fmt.Sprintf("already %v, cannot be %v too", x.Type, r.Type)}
		}
		if !overlaps && x.Type != r.Type {
			break
		}
		merged.First, merged.Last = min(merged.First, x.First), max(merged.Last, x.Last)
		hi++
	}
	p.runs = slices.Replace(p.runs, lo, hi, merged)
	return nil
}

// AddBatches adds the batches of one partition, all or nothing.
func (s *Set) AddBatches(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	if err := Validate(tp, batches); err != nil {
		return err
	}
	one := &Set{}
	for _, b := range batches {
		for r := range b.Runs() {
			if err := one.AddRange(tp, r.First, r.Last, r.Type); err != nil {
				return err
			}
		}
	}
	return s.Merge(one)
}

// Merge adds all of o, all or nothing. o is not changed.
func (s *Set) Merge(o *Set) error {
	merged := make(map[partKey]*partition, len(o.parts))
	for k, op := range o.parts {
		p := &partition{tp: op.tp}
		if own := s.parts[k]; own != nil {
			p = &partition{tp: own.tp, runs: slices.Clone(own.runs)}
		}
		for _, r := range op.runs {
			if err := p.add(r); err != nil {
				return err
			}
		}
		merged[k] = p
	}
	if s.parts == nil {
		s.parts = make(map[partKey]*partition, len(merged))
	}
	for k, p := range merged {
		s.parts[k] = p
	}
	return nil
}

// Len is how many offsets the Set holds.
func (s *Set) Len() int {
	n := int64(0)
	for _, p := range s.parts {
		for _, r := range p.runs {
			n += r.Last - r.First + 1
		}
	}
	return int(n)
}

// Partitions gives each partition with its batches, ordered by topic name,
// topic id and partition. The batches are the caller's.
func (s *Set) Partitions() iter.Seq2[TopicIDPartition, []AcknowledgementBatch] {
	ps := make([]*partition, 0, len(s.parts))
	for _, p := range s.parts {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *partition) int {
		return cmp.Or(cmp.Compare(a.tp.Topic, b.tp.Topic), slices.Compare(a.tp.TopicID[:], b.tp.TopicID[:]), cmp.Compare(a.tp.Partition, b.tp.Partition))
	})
	return func(yield func(TopicIDPartition, []AcknowledgementBatch) bool) {
		for _, p := range ps {
			if !yield(p.tp, batches(p.runs)) {
				return
			}
		}
	}
}

// Map is the form that SendShareAcknowledgementsToTransaction takes.
func (s *Set) Map() map[TopicIDPartition][]AcknowledgementBatch {
	m := make(map[TopicIDPartition][]AcknowledgementBatch, len(s.parts))
	for tp, bs := range s.Partitions() {
		m[tp] = bs
	}
	return m
}

// ValidateTransactional says whether all types may be staged; the error is an
// *Error that names the first that may not.
func (s *Set) ValidateTransactional() error {
	for tp, bs := range s.Partitions() {
		if err := ValidateTransactional(tp, bs); err != nil {
			return err
		}
	}
	return nil
}

// longRun is the number of equal types from which a run leaves a mixed batch
// to be a batch with a single type: it keeps the type lists short, as Java's
// client does (KIP-932).
const longRun = 10

// batches is the wire form: the fewest batches that keep each offset's type,
// where a run of at least longRun stands alone. Runs that touch and are
// shorter share one batch with a type per offset.
func batches(runs []Run) []AcknowledgementBatch {
	var out []AcknowledgementBatch
	for i := 0; i < len(runs); {
		j := i + 1
		if !runs[i].long() {
			for j < len(runs) && !runs[j].long() && runs[j].First == runs[j-1].Last+1 {
				j++
			}
		}
		out = append(out, batch(runs[i:j]))
		i = j
	}
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
		for o := r.First; o <= r.Last; o++ {
			b.Types = append(b.Types, r.Type)
		}
	}
	return b
}

// Positioned is a record that knows where it lies: *shareconsumer.Record.
type Positioned interface {
	Position() (tp TopicIDPartition, offset int64)
}

// FromRecords makes a Set of rs, all with type t (KIP-1289:
// ShareAcknowledgements.fromRecords).
func FromRecords[R Positioned](rs []R, t Type) (*Set, error) {
	s := &Set{}
	for _, r := range rs {
		tp, offset := r.Position()
		if err := s.Add(tp, offset, t); err != nil {
			return nil, err
		}
	}
	return s, nil
}
