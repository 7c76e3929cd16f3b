package sharetxn

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Sentinels. Test for them with errors.Is; each says what to do next. What a
// caller can do in general is told by ClassOf.
var (
	// ErrAborted: the transaction is proven not committed. Poll again; the
	// records come back by themselves.
	ErrAborted = errors.New("sharetxn: transaction aborted")
	// ErrOutcomeUnknown: see Unknown. Poll again; never rerun the records by
	// hand, the next Begin settles the transaction first.
	ErrOutcomeUnknown = errors.New("sharetxn: transaction outcome unknown")
	// ErrFenced: another producer took the transactional id. Fatal: stop this
	// one, or give each process an id of its own.
	ErrFenced = errors.New("sharetxn: fenced by a newer producer of the same transactional id: another process with this id (the same Instance) took over; stop this one, or give each process an id of its own")
	// ErrUnsupported: the brokers do not prove what is needed, or not any more.
	// Fatal; nothing was sent, or the transaction under way is aborted. As
	// *UnsupportedError it lists what each broker offers.
	ErrUnsupported = errors.New("sharetxn: not supported by the brokers")
	// ErrTxnEnded: the handle's transaction has ended. Abort never returns it.
	ErrTxnEnded = errors.New("sharetxn: transaction already ended")
	// ErrTxnOpen: Begin while the previous transaction is open. End it first.
	ErrTxnOpen = errors.New("sharetxn: transaction still open")
	// ErrNotLanded: brokers lost the end of the transaction before, or a partition
	// that it wrote to has no leader, and another transaction could undo that end.
	// Nothing of it is acknowledged, and nothing else begun, until it stands
	// everywhere: try again, and bring the partition's leader back.
	ErrNotLanded = errors.New("sharetxn: the end of the transaction before has not reached every partition that it wrote to")
	// ErrUndecided: a batch holds records without a verdict; the commit became
	// an abort. As *RecordsError it names them.
	ErrUndecided = errors.New("sharetxn: records without a verdict")
	// ErrLockExpired: an acquisition lock ended, or would end before the
	// commit; the commit became an abort. Use smaller batches or KeepLocked.
	ErrLockExpired = errors.New("sharetxn: acquisition lock expired")
	// ErrStale: a record or batch of an older delivery, of another member or
	// cluster, or one that is already bound to a transaction.
	ErrStale = errors.New("sharetxn: not held by this member any more")
	// ErrMode: the call does not belong to the consumer's acknowledgement mode.
	ErrMode = errors.New("sharetxn: not allowed in this acknowledgement mode")
	// ErrUsage: an argument or a call that can never work. The text names the
	// field. Nothing was sent.
	ErrUsage = errors.New("sharetxn: wrong use")
	// ErrClosed: used after Close.
	ErrClosed = errors.New("sharetxn: closed")
)

// Class is what a caller can do about an error.
type Class uint8

const (
	// ClassNone is the class of a nil error.
	ClassNone Class = iota
	// ClassAbortable: the transaction is over or must be; the next may work.
	ClassAbortable
	// ClassUnknown: the outcome is unknown. As abortable, but nothing may be
	// rerun by hand.
	ClassUnknown
	// ClassFatal: this producer or consumer is done: close it and build it
	// anew, or exit.
	ClassFatal
	// ClassUsage: a mistake in the calling code; nothing was sent.
	ClassUsage
)

func (c Class) String() string {
	switch c {
	case ClassNone:
		return "none"
	case ClassAbortable:
		return "abortable"
	case ClassUnknown:
		return "unknown"
	case ClassFatal:
		return "fatal"
	case ClassUsage:
		return "usage"
	}
	return "Class(" + strconv.Itoa(int(c)) + ")"
}

// sentinelClasses is in the order in which ClassOf looks: what is worse to
// miss stands first, since an error may wrap several (an abort and its cause).
var sentinelClasses = []struct {
	err   error
	class Class
}{
	{ErrFenced, ClassFatal},
	{ErrUnsupported, ClassFatal},
	{ErrClosed, ClassFatal},
	{ErrOutcomeUnknown, ClassUnknown},
	{ErrMode, ClassUsage},
	{ErrUsage, ClassUsage},
	{ErrTxnEnded, ClassUsage},
	{ErrTxnOpen, ClassUsage},
}

// ClassOf finds the class of err anywhere in its chain. Where a chain holds
// several, the worst to miss wins: fatal, unknown, usage, abortable. Errors
// that are not ours are abortable. Retriable broker answers never surface:
// they are retried inside. Safe for concurrent use.
func ClassOf(err error) Class {
	if err == nil {
		return ClassNone
	}
	found := ClassAbortable
	for _, c := range classesIn(err, nil) {
		if classRank(c) > classRank(found) {
			found = c
		}
	}
	return found
}

// IsFatal reports whether ClassOf(err) is ClassFatal: all that a loop needs.
func IsFatal(err error) bool { return ClassOf(err) == ClassFatal }

func classRank(c Class) int {
	switch c {
	case ClassFatal:
		return 4
	case ClassUnknown:
		return 3
	case ClassUsage:
		return 2
	case ClassAbortable:
		return 1
	}
	return 0
}

// classesIn walks the whole error tree: errors.As stops at the first *Error,
// but an abort may wrap a worse cause further down.
func classesIn(err error, out []Class) []Class {
	switch e := err.(type) {
	case *Error:
		out = append(out, e.Class)
	case *UnsupportedError:
		out = append(out, ClassFatal)
	case interface{ Usage() bool }: // errors of the pure packages acks and groupmeta
		if e.Usage() {
			out = append(out, ClassUsage)
		}
	default:
		for _, s := range sentinelClasses {
			if err == s.err {
				out = append(out, s.class)
			}
		}
	}
	switch u := err.(type) {
	case interface{ Unwrap() error }:
		if inner := u.Unwrap(); inner != nil {
			out = classesIn(inner, out)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range u.Unwrap() {
			out = classesIn(inner, out)
		}
	}
	return out
}

// Error is an error that comes from talking to a broker, or from our own
// refusal to. errors.Is also matches the kerr value of a broker's code and the
// sentinel it stands for.
type Error struct {
	Op              string // the RPC or call: "EndTxn", "TxnShareAcknowledge", "Commit", ...
	Class           Class
	Code            int16 // the broker's code as sent, also unknown ones; 0 if the client said it
	FromBroker      bool  // false: the client's own verdict
	TransactionalID string
	Group           string
	Topic           string
	Partition       int32 // meaningful only with Topic
	Err             error // what it is, or wraps: a sentinel, a kerr value, a transport error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("sharetxn: ")
	b.WriteString(e.Op)
	if e.TransactionalID != "" {
		fmt.Fprintf(&b, " (transactional id %q)", e.TransactionalID)
	}
	if e.Group != "" {
		fmt.Fprintf(&b, " (share group %q)", e.Group)
	}
	if e.Topic != "" {
		fmt.Fprintf(&b, " (partition %s-%d)", e.Topic, e.Partition)
	}
	if e.FromBroker {
		fmt.Fprintf(&b, ": broker answered %d", e.Code)
		if ke, ok := kerr.ErrorForCode(e.Code).(*kerr.Error); ok && ke.Code == e.Code {
			fmt.Fprintf(&b, " %s", ke.Message)
		}
	}
	_, bare := e.Err.(*kerr.Error) // told by the code already
	if e.Err != nil && !(bare && e.FromBroker) {
		b.WriteString(": ")
		b.WriteString(strings.TrimPrefix(e.Err.Error(), "sharetxn: "))
	}
	return b.String()
}

// Unwrap gives Err.
func (e *Error) Unwrap() error { return e.Err }

// Is matches the kerr value of a broker's code.
func (e *Error) Is(target error) bool {
	if !e.FromBroker || e.Code == 0 {
		return false
	}
	ke, ok := target.(*kerr.Error)
	return ok && ke.Code == e.Code
}

// RecordsError names the records that an error is about.
type RecordsError struct {
	Topic     string
	Partition int32
	Offsets   []int64 // at most 16, then More counts the rest
	More      int
	Err       error
}

func (e *RecordsError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: %s-%d offsets %v", e.Err, e.Topic, e.Partition, e.Offsets)
	if e.More > 0 {
		fmt.Fprintf(&b, " and %d more", e.More)
	}
	return b.String()
}

// Unwrap gives Err.
func (e *RecordsError) Unwrap() error { return e.Err }

// UnsupportedError says what was looked for and what each broker offers.
type UnsupportedError struct{ Found Capabilities }

func (e *UnsupportedError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: staging acknowledgements in a transaction (KIP-1289) needs key %d and share.version %d on every broker, and transaction.version 2; found share.version %d, transaction.version %d",
		ErrUnsupported, e.Found.WantKey, e.Found.WantShareVersion, e.Found.ShareVersion, e.Found.TransactionVersion)
	for _, r := range e.Found.Brokers {
		state := "proven"
		if !r.Proven {
			state = r.Reason
		}
		fmt.Fprintf(&b, "; broker %d: %s", r.NodeID, state)
	}
	b.WriteString(". Nothing more is sent on that key. No released Kafka has KIP-1289 yet: use a broker that has it; on Kafka 4.2 and later a Processor keeps the promise with a commit ledger (Guarantee: processor.Ledger, after \"sharetxn ledger create\"), and plain acknowledgements are at least once")
	return b.String()
}

// Is matches ErrUnsupported.
func (e *UnsupportedError) Is(target error) bool { return target == ErrUnsupported }
