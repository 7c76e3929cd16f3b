package processor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// next is what becomes of a record that is not accepted.
type next uint8

const (
	again  next = iota // handled once more, alone, under the same lock
	giveUp             // rejected to the dead letter
	goBack             // released: another delivery, maybe elsewhere
)

func (n next) String() string { return [...]string{"again", "give up", "go back"}[n] }

// history is what is known of a record when its fate is decided.
type history struct {
	failures   int   // of its own, in this delivery, this one included
	deliveries int32 // this one included
	limit      int32 // of deliveries in which it is handled
}

// last tells whether the record must not be released any more.
func (h history) last() bool { return h.deliveries >= h.limit }

// afterFailure decides about a record that failed by itself.
func (f Failure) afterFailure(h history) next {
	switch {
	case h.failures < f.Attempts:
		return again
	case f.GiveUp || h.last():
		return giveUp
	}
	return goBack
}

// afterRelease decides about a record that the handler releases.
func afterRelease(h history) next {
	if h.last() {
		return giveUp
	}
	return goBack
}

// longestWait is the longest that a record waits for a release or another
// attempt.
const longestWait = 10 * time.Minute

var errLastRelease = errors.New("released on the last delivery that is for handling")

// errNeverDecided is why a record is in the dead letter that was not handled in
// its last delivery.
var errNeverDecided = errors.New("every delivery but the last ended without a verdict: the process died, or lost the record, each time")

// suspicious tells whether a record may be what ends the process: two deliveries
// of it ended without a verdict. Those are handled one at a time, nothing else
// beside them, each committed before the next is begun; in order in one delivery
// and in reverse in the next, so that those on either side of the one that does
// end the process get through.
func suspicious(deliveries int32) bool { return deliveries > 2 }

// errGivenBack is why a record is in the dead letter that was never decided.
var errGivenBack = errors.New("the processor stopped on the last delivery that is for handling, before the record was handled")

// apart says how the records of an aborted transaction are run again: together
// once more where the fault is likely not theirs, otherwise in two halves, so
// that one of them that is at fault is alone after a few rounds. A record alone
// whose fault it is has failed by itself.
func apart(records, aborts int, own bool) (parts int, failed bool) {
	switch {
	case records == 1:
		return 1, own
	case own || aborts > 1:
		return 2, false
	}
	return 1, false
}

// states are codes of a refused produce that tell of the producer or the
// transaction, and not of the record.
var states = map[int16]bool{
	kerr.OutOfOrderSequenceNumber.Code: true, kerr.DuplicateSequenceNumber.Code: true, kerr.InvalidProducerEpoch.Code: true,
	kerr.InvalidTxnState.Code: true, kerr.InvalidProducerIDMapping.Code: true, kerr.ConcurrentTransactions.Code: true,
	kerr.UnknownProducerID.Code: true, kerr.ProducerFenced.Code: true, kerr.TransactionAbortable.Code: true,
	kerr.ClusterAuthorizationFailed.Code: true, kerr.TransactionalIDAuthorizationFailed.Code: true, kerr.UnknownServerError.Code: true,
}

// ownFault tells whether an aborted transaction failed because of a record's
// outputs: what the brokers, or kgo, refuse of them for good. An output topic
// that does not exist counts, since the handler chose it.
func ownFault(err error) bool {
	e := produceError(err)
	switch {
	case e == nil:
		return false
	case e.Class == sharetxn.ClassUsage:
		return true
	case !e.FromBroker:
		return !transient(e.Err)
	case e.Code == kerr.UnknownTopicOrPartition.Code || e.Code == kerr.UnknownTopicID.Code:
		return true
	}
	return !states[e.Code] && !kerr.IsRetriable(kerr.ErrorForCode(e.Code))
}

// outcast tells of an abort because the group does not know the member.
func outcast(err error) bool {
	for _, code := range []error{kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

func transient(err error) bool {
	for _, t := range []error{context.Canceled, context.DeadlineExceeded, kgo.ErrRecordTimeout, kgo.ErrRecordRetries, kgo.ErrClientClosed, kgo.ErrAborting, sharetxn.ErrClosed, sharetxn.ErrTxnEnded} {
		if errors.Is(err, t) {
			return true
		}
	}
	return kgo.IsRetryableBrokerErr(err)
}

// produceError finds the error of a produce in a tree of errors.
func produceError(err error) *sharetxn.Error {
	if e, ok := err.(*sharetxn.Error); ok && e.Op == "Produce" {
		return e
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		return produceError(u.Unwrap())
	case interface{ Unwrap() []error }:
		for _, inner := range u.Unwrap() {
			if e := produceError(inner); e != nil {
				return e
			}
		}
	}
	return nil
}

// explainFence says what a fenced processor's user can do.
func explainFence(err error, cfg Config) error {
	if !errors.Is(err, sharetxn.ErrFenced) {
		return err
	}
	return fmt.Errorf("processor: another process runs with TransactionalID %q and Instance %q and has taken over; give each replica an Instance of its own: %w",
		cfg.TransactionalID, cfg.Instance, err)
}
