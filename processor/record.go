package processor

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Record is one delivery of an input record. It has no verbs: the handler's
// return decides. A test makes one as a literal.
type Record struct {
	Topic         string
	Partition     int32
	Offset        int64
	Timestamp     time.Time
	Key, Value    []byte
	Headers       []kgo.RecordHeader
	DeliveryCount int32     // 1 on the first delivery
	LockedUntil   time.Time // as it was when the handler was called; it is renewed while the handler runs
}

func newRecord(r *shareconsumer.Record) *Record {
	return &Record{
		Topic: r.Topic, Partition: r.Partition, Offset: r.Offset, Timestamp: r.Timestamp,
		Key: r.Key, Value: r.Value, Headers: r.Headers,
		DeliveryCount: r.DeliveryCount(), LockedUntil: r.AcquisitionDeadline(),
	}
}

// Handler turns one record into outputs. A nil error accepts the record; Reject
// and Release are errors that decide otherwise; any other error, a panic, or
// more time than HandlerTimeout fails it (see Failure). The outputs are used
// only with a nil error, and belong to the Processor from then on; without any
// the record is only acknowledged.
//
// ctx ends when the record's lock is lost, HandlerTimeout passes, or the hard
// stop begins. A Handler may run more than once for a record, also at the same
// time if an earlier call did not return when its ctx ended, so it must have no
// effect of its own outside the outputs. It must not change the record.
type Handler func(ctx context.Context, in *Record) (outputs []*kgo.Record, err error)

// BatchHandler decides what one poll brought, or a part of that: every record
// with one call of Accept, Reject, Release or Fail. After a nil return with an
// undecided record nothing of the call counts and its records fail with
// ErrUndecided. An error fails the undecided records only; a panic, or more
// time than HandlerTimeout, all of them. What failed among others is run again
// in halves, which finds the record that is at fault; only alone does a failure
// count as an attempt.
type BatchHandler func(ctx context.Context, in *Batch) error

// Reject writes the record to the dead letter topic, in the same transaction,
// with reason in a header, and removes it from the group.
func Reject(reason error) error { return &RejectError{reason} }

// Release gives the record back, to be delivered again after at least backoff.
// It is held under a renewed lock till then, for at most 10 minutes, and while
// MaxRecords wait so nothing new is polled. It costs a delivery: on the last one
// that is for handling (see Failure) the record is rejected instead.
func Release(backoff time.Duration) error { return &ReleaseError{backoff} }

// RejectError is what Reject returns, for tests and middleware.
type RejectError struct{ Reason error }

func (e *RejectError) Error() string {
	if e.Reason == nil {
		return "rejected"
	}
	return "rejected: " + e.Reason.Error()
}

// Unwrap gives the reason.
func (e *RejectError) Unwrap() error { return e.Reason }

// ReleaseError is what Release returns, for tests and middleware.
type ReleaseError struct{ Backoff time.Duration }

func (e *ReleaseError) Error() string { return "released for " + e.Backoff.String() }
