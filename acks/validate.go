package acks

import (
	"fmt"
	"math"
)

// Validate says what is wrong with the batches of one partition, for plain
// acknowledgement: they must be ascending and disjoint, offsets not negative,
// types known, and of each batch one or exactly one per offset. The error is
// an *Error.
func Validate(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	return validate(tp, batches, Type.Known, "unknown type %v")
}

// ValidateTransactional is Validate for staging, where only Accept and Reject
// are allowed (KIP-1289).
func ValidateTransactional(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	return validate(tp, batches, Type.Transactional, "%v cannot be staged in a transaction, only accept and reject can")
}

func validate(tp TopicIDPartition, batches []AcknowledgementBatch, allowed func(Type) bool, refusal string) error {
	if len(batches) == 0 {
		return &Error{Field: "batches", Partition: tp, Reason: "empty"}
	}
	if tp.Partition < 0 {
		return &Error{Field: "Partition", Partition: tp, Reason: "negative"}
	}
	last := int64(-1)
	for _, b := range batches {
		bad := func(field, format string, args ...any) error {
			return &Error{Field: field, Partition: tp, First: b.FirstOffset, Last: b.LastOffset, Reason: fmt.Sprintf(format, args...)}
		}
		switch {
		case b.FirstOffset < 0:
			return bad("FirstOffset", "negative")
		case b.LastOffset < b.FirstOffset:
			return bad("LastOffset", "before FirstOffset")
		case b.LastOffset == math.MaxInt64:
			return bad("LastOffset", "too large")
		case b.FirstOffset <= last:
			return bad("FirstOffset", "overlaps or precedes the batch before it, which ends at %d", last)
		case len(b.Types) == 0:
			return bad("Types", "empty")
		case len(b.Types) != 1 && int64(len(b.Types)) != b.Offsets():
			return bad("Types", "%d types for %d offsets; want one or one each", len(b.Types), b.Offsets())
		}
		for _, t := range b.Types {
			if !allowed(t) {
				return bad("Types", refusal, t)
			}
		}
		last = b.LastOffset
	}
	return nil
}
