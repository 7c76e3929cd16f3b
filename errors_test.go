package sharetxn

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

type misuse struct{}

func (misuse) Error() string { return "acks: negative offset" }
func (misuse) Usage() bool   { return true }

func TestClassOf(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	broker := func(class Class, code int16) error {
		return &Error{Op: "EndTxn", Class: class, Code: code, FromBroker: true, Err: kerr.ErrorForCode(code)}
	}
	for _, c := range []struct {
		name string
		err  error
		want Class
	}{
		{"nil", nil, ClassNone},
		{"foreign", errors.New("x"), ClassAbortable},
		{"context", context.Canceled, ClassAbortable},
		{"aborted", ErrAborted, ClassAbortable},
		{"undecided", ErrUndecided, ClassAbortable},
		{"lock", ErrLockExpired, ClassAbortable},
		{"stale", ErrStale, ClassAbortable},
		{"unknown", ErrOutcomeUnknown, ClassUnknown},
		{"fenced", ErrFenced, ClassFatal},
		{"unsupported sentinel", ErrUnsupported, ClassFatal},
		{"unsupported struct", &UnsupportedError{}, ClassFatal},
		{"closed", ErrClosed, ClassFatal},
		{"mode", ErrMode, ClassUsage},
		{"usage", ErrUsage, ClassUsage},
		{"ended", ErrTxnEnded, ClassUsage},
		{"open", ErrTxnOpen, ClassUsage},
		{"pure package", misuse{}, ClassUsage},
		{"wrapped pure package", fmt.Errorf("in Begin: %w", misuse{}), ClassUsage},
		{"Error abortable", broker(ClassAbortable, 48), ClassAbortable},
		{"Error fatal, wrapped", fmt.Errorf("step: %w", broker(ClassFatal, 90)), ClassFatal},
		{"records", &RecordsError{Err: ErrUndecided}, ClassAbortable},
		{"abort with a fatal cause", fmt.Errorf("%w: %w", ErrAborted, broker(ClassFatal, 90)), ClassFatal},
		{"fatal inside an abortable Error", &Error{Op: "Commit", Class: ClassAbortable, Err: ErrFenced}, ClassFatal},
		{"unknown beats usage", errors.Join(ErrUsage, ErrOutcomeUnknown), ClassUnknown},
		{"fatal beats unknown", errors.Join(ErrOutcomeUnknown, ErrFenced), ClassFatal},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ClassOf(c.err); got != c.want {
				t.Fatalf("class %v, want %v", got, c.want)
			}
			if IsFatal(c.err) != (c.want == ClassFatal) {
				t.Fatalf("IsFatal is %v", IsFatal(c.err))
			}
		})
	}
}

// Every sentinel but the abortable ones stands in the table; one that is
// forgotten there would silently read as abortable and be retried.
func TestEverySentinelHasItsClass(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	abortable := map[error]bool{ErrAborted: true, ErrUndecided: true, ErrLockExpired: true, ErrStale: true}
	all := []error{ErrAborted, ErrOutcomeUnknown, ErrFenced, ErrUnsupported, ErrTxnEnded, ErrTxnOpen, ErrUndecided, ErrLockExpired, ErrStale, ErrMode, ErrUsage, ErrClosed}
	for _, err := range all {
		if (ClassOf(err) == ClassAbortable) != abortable[err] {
			t.Errorf("%v has class %v", err, ClassOf(err))
		}
	}
}

func TestErrorMatchesBrokerCode(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	e := fmt.Errorf("outer: %w", &Error{Op: "EndTxn", Class: ClassFatal, Code: 90, FromBroker: true, TransactionalID: "a", Err: ErrFenced})
	if !errors.Is(e, kerr.ProducerFenced) || !errors.Is(e, ErrFenced) {
		t.Fatalf("%v matches neither its code nor its sentinel", e)
	}
	if errors.Is(e, kerr.InvalidProducerEpoch) {
		t.Fatal("matches a code it does not carry")
	}
	for _, part := range []string{"EndTxn", `"a"`, "90", "PRODUCER_FENCED", "fenced by a newer producer"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e.Error(), part)
		}
	}
	own := &Error{Op: "Commit", Class: ClassAbortable, Code: 90, Err: ErrLockExpired}
	if errors.Is(own, kerr.ProducerFenced) {
		t.Fatal("the client's own verdict reads as the broker's")
	}
	unknown := &Error{Op: "EndTxn", Code: 3210, FromBroker: true, Err: ErrOutcomeUnknown}
	if !strings.Contains(unknown.Error(), "3210") {
		t.Fatalf("the raw code is lost: %v", unknown)
	}
}

func TestRecordsError(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	e := &RecordsError{Topic: "in", Partition: 2, Offsets: []int64{4, 9}, More: 3, Err: ErrUndecided}
	if !errors.Is(e, ErrUndecided) {
		t.Fatal("does not match its sentinel")
	}
	if got, want := e.Error(), "sharetxn: records without a verdict: in-2 offsets [4 9] and 3 more"; got != want {
		t.Fatalf("reads %q, want %q", got, want)
	}
}

func TestUnsupportedErrorNamesBrokersAndWhatToDo(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	e := &UnsupportedError{Found: Capabilities{WantKey: 95, WantShareVersion: 3, ShareVersion: 2, TransactionVersion: 2, Brokers: []BrokerCapabilities{
		{NodeID: 1, Key: 95, MaxVer: 0, Proven: true},
		{NodeID: 7, Key: 95, MaxVer: -1, Reason: "does not advertise key 95"},
	}}}
	if !errors.Is(e, ErrUnsupported) {
		t.Fatal("does not match ErrUnsupported")
	}
	for _, part := range []string{"key 95", "share.version 3", "found share.version 2", "broker 1: proven", "broker 7: does not advertise key 95", "No released Kafka", "processor.Ledger"} {
		if !strings.Contains(e.Error(), part) {
			t.Errorf("%q lacks %q", e, part)
		}
	}
}
