package acks

import (
	"fmt"
	"math"
)

// Validate says what is wrong with the batches of one partition, for plain
// acknowledgement: there must be some, ascending and disjoint, with offsets
// not negative and below math.MaxInt64, known types, and of each batch one
// type or exactly one per offset (KIP-932). The error is an *Error.
func Validate(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	return validate(tp, batches, Type.Known, unknownType)
}

// ValidateTransactional is Validate for staging, where only Accept and Reject
// are allowed (KIP-1289).
func ValidateTransactional(tp TopicIDPartition, batches []AcknowledgementBatch) error {
	return validate(tp, batches, Type.Transactional, notStageable)
}

const (
	unknownType  = "not an acknowledge type"
	notStageable = "cannot be staged in a transaction; only accept and reject can"
)

func validate(tp TopicIDPartition, batches []AcknowledgementBatch, allowed func(Type) bool, refusal string) error {
	if len(batches) == 0 {
		return &Error{Field: "batches", Partition: tp, Reason: "empty"}
	}
	last := int64(-1)
	for _, b := range batches {
		if err := checkRange(tp, b.FirstOffset, b.LastOffset); err != nil {
			return err
		}
		if b.FirstOffset <= last {
			return rangeError("FirstOffset", tp, b.FirstOffset, b.LastOffset, "overlaps or precedes the batch before it, which ends at %d", last)
		}
		if n := len(b.Types); n == 0 || n != 1 && int64(n) != b.Offsets() {
			return rangeError("Types", tp, b.FirstOffset, b.LastOffset, "%d types for %d offsets; want one, or one each", n, b.Offsets())
		}
		for r := range b.Runs() {
			if !allowed(r.Type) {
				return typeError(tp, r, refusal)
			}
		}
		last = b.LastOffset
	}
	return nil
}

// checkRange refuses what can be no range of offsets. The largest int64 is
// refused too, since a range is at times given by the offset behind it.
func checkRange(tp TopicIDPartition, first, last int64) error {
	switch {
	case tp.Partition < 0:
		return rangeError("Partition", tp, first, last, "negative")
	case first < 0:
		return rangeError("FirstOffset", tp, first, last, "negative")
	case last < first:
		return rangeError("LastOffset", tp, first, last, "before FirstOffset")
	case last == math.MaxInt64:
		return rangeError("LastOffset", tp, first, last, "too large")
	}
	return nil
}

func rangeError(field string, tp TopicIDPartition, first, last int64, format string, args ...any) error {
	return &Error{Field: field, Partition: tp, First: first, Last: last, Reason: fmt.Sprintf(format, args...)}
}

func typeError(tp TopicIDPartition, r Run, refusal string) error {
	return rangeError("Types", tp, r.First, r.Last, "%v %s", r.Type, refusal)
}
