package verify

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kbin"
)

// Delivery is what brokers write of a source record for a share group. That it is
// acquired they never write.
type Delivery int8

const (
	Unknown      Delivery = -1 // nothing was written
	Available    Delivery = 0
	Acknowledged Delivery = 2
	Archived     Delivery = 4 // by the brokers at the delivery limit, or since a member rejected it
)

func (d Delivery) String() string {
	switch d {
	case Unknown:
		return "not written"
	case Available:
		return "available"
	case Acknowledged:
		return "acknowledged"
	case Archived:
		return "archived"
	}
	return fmt.Sprintf("state %d", int8(d))
}

// StateBatch is what a run of offsets has in common.
type StateBatch struct {
	First, Last int64 // inclusive
	State       Delivery
	Count       int // of deliveries
}

// StateRecord is one record of __share_group_state: what a share partition is, or
// what changed in it.
type StateRecord struct {
	Group     string
	Topic     [16]byte
	Partition int32
	Snapshot  bool
	Deleted   bool         // of the partition there is nothing any more
	Epoch     int32        // raised when the group's offsets are set; only in a snapshot
	Start     int64        // the share partition's; -1 in what changed: as before
	Batches   []StateBatch // in a snapshot all at or above Start, else those that changed
}

var errState = errors.New("not a record of share group state")

// ParseState reads a record of __share_group_state as brokers write it from 4.2 on
// (ShareSnapshotKey, ShareUpdateKey and their values, version 0).
func ParseState(key, value []byte) (r StateRecord, err error) {
	k := kbin.Reader{Src: key}
	kind := k.Int16()
	r.Group, r.Topic, r.Partition = k.String(), k.Uuid(), k.Int32()
	if err := k.Complete(); err != nil || kind != 0 && kind != 1 {
		return r, fmt.Errorf("%w: key %x", errState, key)
	}
	r.Snapshot = kind == 0
	if value == nil {
		r.Deleted = true
		return r, nil
	}
	v := kbin.Reader{Src: value}
	if version := v.Int16(); version != 0 {
		return r, fmt.Errorf("%w: version %d", errState, version)
	}
	v.Int32() // the snapshot's epoch: which changes are of which snapshot
	if r.Snapshot {
		r.Epoch = v.Int32()
	}
	v.Int32() // the leader's epoch
	r.Start = v.Int64()
	if r.Snapshot {
		v.Int64() // when it was made
		v.Int64() // when it was written
	}
	for n := v.CompactArrayLen(); n > 0 && v.Ok(); n-- {
		r.Batches = append(r.Batches, StateBatch{v.Int64(), v.Int64(), Delivery(v.Int8()), int(v.Int16())})
		tags(&v)
	}
	tags(&v) // one of them has how many records are done: it is not needed
	if err := v.Complete(); err != nil || len(v.Src) > 0 {
		return r, fmt.Errorf("%w: value %x", errState, value)
	}
	for _, b := range r.Batches {
		if b.First < 0 || b.Last < b.First {
			return r, fmt.Errorf("%w: offsets %d to %d", errState, b.First, b.Last)
		}
	}
	return r, nil
}

// tags skips tagged fields.
func tags(r *kbin.Reader) {
	for n := r.Uvarint(); n > 0 && r.Ok(); n-- {
		r.Uvarint()
		r.Span(int(r.Uvarint()))
	}
}

// States follows the share partitions of one group through the records of
// __share_group_state, those of a share partition in order.
type States struct {
	group string
	parts map[statePart]*partStates
}

type statePart struct {
	topic     [16]byte
	partition int32
}

type partStates struct {
	epoch  int32
	rounds [][]end // by offset; one for each epoch in which something was written of offsets
	begun  bool    // the last of the rounds is of this epoch
}

// end is what was written last of an offset; its zero value: nothing.
type end struct {
	state Delivery // one more than it is
	count int16
}

// NewStates has seen nothing of the group.
func NewStates(group string) *States {
	return &States{group: group, parts: make(map[statePart]*partStates)}
}

// Record is told one of the topic's records.
func (s *States) Record(r StateRecord) error {
	if r.Group != s.group || r.Deleted {
		return nil
	}
	id := statePart{r.Topic, r.Partition}
	p := s.parts[id]
	switch {
	case p == nil && !r.Snapshot:
		return fmt.Errorf("%w: a change of partition %d before it was", errState, r.Partition)
	case p == nil:
		p = &partStates{epoch: r.Epoch}
		s.parts[id] = p
	case r.Snapshot && r.Epoch != p.epoch:
		p.epoch, p.begun = r.Epoch, false
	}
	for _, b := range r.Batches {
		p.set(b)
	}
	return nil
}

func (p *partStates) set(b StateBatch) {
	if !p.begun {
		p.begun = true
		p.rounds = append(p.rounds, nil)
	}
	last := &p.rounds[len(p.rounds)-1]
	if short := b.Last + 1 - int64(len(*last)); short > 0 {
		*last = append(*last, make([]end, short)...)
	}
	for o := b.First; o <= b.Last; o++ {
		(*last)[o] = end{b.State + 1, int16(b.Count)}
	}
}

// Rounds is in how many rounds something was written of a share partition.
func (s *States) Rounds(topic [16]byte, partition int32) int {
	if p := s.parts[statePart{topic, partition}]; p != nil {
		return len(p.rounds)
	}
	return 0
}

// Of tells what was written last of an offset in a round, from 1: a time in which
// the group's offsets were not set.
func (s *States) Of(round int, topic [16]byte, partition int32, offset int64) (state Delivery, count int) {
	p := s.parts[statePart{topic, partition}]
	if p == nil || round < 1 || round > len(p.rounds) || offset >= int64(len(p.rounds[round-1])) {
		return Unknown, 0
	}
	e := p.rounds[round-1][offset]
	return e.state - 1, int(e.count)
}
