package acks

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

// Set collects acknowledgements of many partitions and keeps the fewest
// ranges: a million contiguous offsets of one type cost one. The order in
// which offsets are added does not matter. The zero Set is ready. Not safe for
// concurrent use.
type Set struct {
	parts map[partKey]*partition
}

// partKey is the identity of a TopicIDPartition, without its name.
type partKey struct {
	id        [16]byte
	partition int32
}

func keyOf(tp TopicIDPartition) partKey { return partKey{tp.TopicID, tp.Partition} }

type partition struct {
	tp   TopicIDPartition // as it was first named
	runs runList
}

// Add records one verdict. The same verdict again changes nothing. A different
// one for the offset is refused with an *Error, as is what Validate refuses.
func (s *Set) Add(tp TopicIDPartition, offset int64, t Type) error {
	return s.AddRange(tp, offset, offset, t)
}

// AddRange adds a whole range, both ends included, all or nothing. Errors as
// for Add.
func (s *Set) AddRange(tp TopicIDPartition, first, last int64, t Type) error {
	if err := checkRange(tp, first, last); err != nil {
		return err
	}
	r := Run{first, last, t}
	if !t.Known() {
		return typeError(tp, r, unknownType)
	}
	if err := s.check(tp, r); err != nil {
		return err
	}
	s.partition(tp).runs.add(r)
	return nil
}

// AddBatches adds the batches of one partition, all or nothing. Errors as for
// Validate and Add.
func (s *Set) AddBatches(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	if err := Validate(tp, batches); err != nil {
		return err
	}
	for _, b := range batches {
		for r := range b.Runs() {
			if err := s.check(tp, r); err != nil {
				return err
			}
		}
	}
	p := s.partition(tp)
	for _, b := range batches {
		for r := range b.Runs() {
			p.runs.add(r)
		}
	}
	return nil
}

// Merge adds all of o, all or nothing; o may be nil and is not changed. A
// verdict of o that differs from one of s is refused with an *Error.
func (s *Set) Merge(o *Set) error {
	if o == nil || o == s {
		return nil
	}
	for _, p := range o.sorted() {
		for r := range p.runs.all() {
			if err := s.check(p.tp, r); err != nil {
				return err
			}
		}
	}
	for _, p := range o.parts {
		own := s.partition(p.tp)
		for r := range p.runs.all() {
			own.runs.add(r)
		}
	}
	return nil
}

// check refuses a verdict that differs from one that is already held.
func (s *Set) check(tp TopicIDPartition, r Run) error {
	p := s.parts[keyOf(tp)]
	if p == nil {
		return nil
	}
	x, conflict := p.runs.conflict(r)
	if !conflict {
		return nil
	}
	return &Error{
		Field:     "Types",
		Partition: p.tp,
		First:     max(x.First, r.First),
		Last:      min(x.Last, r.Last),
		Reason:    fmt.Sprintf("already %v, cannot be %v too", x.Type, r.Type),
	}
}

// partition finds tp or makes it.
func (s *Set) partition(tp TopicIDPartition) *partition {
	k := keyOf(tp)
	p := s.parts[k]
	if p == nil {
		if s.parts == nil {
			s.parts = make(map[partKey]*partition)
		}
		p = &partition{tp: tp}
		s.parts[k] = p
	}
	return p
}

// Len is how many offsets the Set holds, at most math.MaxInt.
func (s *Set) Len() int {
	n := 0
	for _, p := range s.parts {
		for r := range p.runs.all() {
			size := r.Last - r.First + 1
			if size > int64(math.MaxInt-n) {
				return math.MaxInt
			}
			n += int(size)
		}
	}
	return n
}

// Partitions gives each partition with its batches, ordered by topic name,
// topic id and partition. The batches are the caller's own; do not add to the
// Set while ranging over it.
func (s *Set) Partitions() iter.Seq2[TopicIDPartition, []AcknowledgementBatch] {
	return func(yield func(TopicIDPartition, []AcknowledgementBatch) bool) {
		for _, p := range s.sorted() {
			if !yield(p.tp, p.runs.batches()) {
				return
			}
		}
	}
}

// Map is the form that SendShareAcknowledgementsToTransaction takes.
func (s *Set) Map() map[TopicIDPartition][]AcknowledgementBatch {
	m := make(map[TopicIDPartition][]AcknowledgementBatch, len(s.parts))
	for _, p := range s.parts {
		m[p.tp] = p.runs.batches()
	}
	return m
}

// ValidateTransactional says whether all types may be staged (KIP-1289); the
// *Error names the first run that may not.
func (s *Set) ValidateTransactional() error {
	for _, p := range s.sorted() {
		for r := range p.runs.all() {
			if !r.Type.Transactional() {
				return typeError(p.tp, r, notStageable)
			}
		}
	}
	return nil
}

// sorted gives the partitions in an order that does not change from run to
// run, so that requests and errors do not either.
func (s *Set) sorted() []*partition {
	ps := make([]*partition, 0, len(s.parts))
	for _, p := range s.parts {
		ps = append(ps, p)
	}
	slices.SortFunc(ps, func(a, b *partition) int {
		return cmp.Or(
			cmp.Compare(a.tp.Topic, b.tp.Topic),
			bytes.Compare(a.tp.TopicID[:], b.tp.TopicID[:]),
			cmp.Compare(a.tp.Partition, b.tp.Partition),
		)
	})
	return ps
}

// Positioned is a record that knows where it lies: *shareconsumer.Record.
type Positioned interface {
	Position() (tp TopicIDPartition, offset int64)
}

// FromRecords makes a Set of rs, all with type t (KIP-1289:
// ShareAcknowledgements.fromRecords). Errors as for Add.
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
