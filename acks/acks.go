// Package acks has the wire form of share acknowledgements (KIP-932, KIP-1289):
// types, ranges, merging. It is pure: no I/O, no clock, no kgo. A service that
// decides records with the verbs of shareconsumer.Record does not need it; it
// is for frameworks that carry acknowledgements between processes.
package acks

// Type is the KIP-932 acknowledge type. Zero is Gap, never a verdict.
type Type int8

const (
	Gap     Type = 0 // no record at the offset
	Accept  Type = 1
	Release Type = 2
	Reject  Type = 3
	Renew   Type = 4
)

// TopicIDPartition is a partition of one incarnation of a topic. Topic is for
// people and not part of the identity: compare with Same.
type TopicIDPartition struct {
	TopicID   [16]byte
	Topic     string
	Partition int32
}

// AcknowledgementBatch is a range of offsets, both ends included. Types has
// one entry for the whole range or exactly one per offset.
type AcknowledgementBatch struct {
	FirstOffset, LastOffset int64
	Types                   []Type
}
