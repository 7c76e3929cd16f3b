// Package acks has the wire form of share acknowledgements (KIP-932, KIP-1289):
// types, ranges, merging. It is pure: no I/O, no clock, no kgo. A service that
// decides records with the verbs of shareconsumer.Record does not need it; it
// is for frameworks that carry acknowledgements between processes.
package acks

import (
	"encoding/base64"
	"iter"
	"strconv"
)

// Type is the KIP-932 acknowledge type. Zero is Gap, never a verdict.
type Type int8

const (
	// Gap says that there is no record at the offset (a marker, compacted).
	Gap Type = 0
	// Accept: processed.
	Accept Type = 1
	// Release: give it back for another delivery.
	Release Type = 2
	// Reject: never deliver it again.
	Reject Type = 3
	// Renew restarts the acquisition lock (KIP-1222); it decides nothing.
	Renew Type = 4
)

func (t Type) String() string {
	switch t {
	case Gap:
		return "gap"
	case Accept:
		return "accept"
	case Release:
		return "release"
	case Reject:
		return "reject"
	case Renew:
		return "renew"
	}
	return "Type(" + strconv.Itoa(int(t)) + ")"
}

// Known reports whether t is one of the types above.
func (t Type) Known() bool { return t >= Gap && t <= Renew }

// Transactional reports whether t may be staged in a transaction: Accept and
// Reject (KIP-1289).
func (t Type) Transactional() bool { return t == Accept || t == Reject }

// TopicIDPartition is a partition of one incarnation of a topic. Topic is for
// people and not part of the identity: compare with Same, not with ==.
type TopicIDPartition struct {
	TopicID   [16]byte
	Topic     string
	Partition int32
}

// Same reports whether both are the same partition of the same incarnation.
func (tp TopicIDPartition) Same(o TopicIDPartition) bool {
	return tp.TopicID == o.TopicID && tp.Partition == o.Partition
}

// String is "topic-partition", with the id in Kafka's own form where the name
// is not known.
func (tp TopicIDPartition) String() string {
	topic := tp.Topic
	if topic == "" {
		topic = base64.RawURLEncoding.EncodeToString(tp.TopicID[:])
	}
	return topic + "-" + strconv.Itoa(int(tp.Partition))
}

// AcknowledgementBatch is a range of offsets, both ends included. Types has
// one entry for the whole range or exactly one per offset.
type AcknowledgementBatch struct {
	FirstOffset, LastOffset int64
	Types                   []Type
}

// Offsets is how many offsets the range holds; 0 for an inverted one.
func (b AcknowledgementBatch) Offsets() int64 {
	if b.LastOffset < b.FirstOffset {
		return 0
	}
	return b.LastOffset - b.FirstOffset + 1
}

// Run is a range of offsets with one type, both ends included.
type Run struct {
	First, Last int64
	Type        Type
}

// Runs gives the batch as runs of equal types, ascending. The batch must be
// valid (see Validate).
func (b AcknowledgementBatch) Runs() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		if len(b.Types) == 1 {
			yield(Run{b.FirstOffset, b.LastOffset, b.Types[0]})
			return
		}
		for i := 0; i < len(b.Types); {
			j := i + 1
			for j < len(b.Types) && b.Types[j] == b.Types[i] {
				j++
			}
			if !yield(Run{b.FirstOffset + int64(i), b.FirstOffset + int64(j-1), b.Types[i]}) {
				return
			}
			i = j
		}
	}
}
