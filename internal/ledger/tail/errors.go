package tail

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
)

// Why a ledger cannot be used, or not any more, beside what package topic knows.
// Each comes inside a *sharetxn.Error of class fatal, whose text names the
// command that mends it. An entry.ErrVersion or entry.ErrCorrupt in the chain is
// a record that this library must not read past.
var (
	// ErrGuarantee: the group is under another guarantee. As *GuaranteeError it
	// names which.
	ErrGuarantee = errors.New("the group is under another guarantee")
	// ErrGeneration: the ledger was reset, or put under another guarantee, while
	// it was in use.
	ErrGeneration = errors.New("the ledger has a new generation")
	// ErrLedgerGone: the ledger topic was deleted while it was in use.
	ErrLedgerGone = errors.New("the ledger topic was deleted")
	// ErrOffsetsReset: somebody set the group's offsets back, and not the ledger.
	ErrOffsetsReset = errors.New("the group's offsets were set back without the ledger")
)

// GuaranteeError is an ErrGuarantee.
type GuaranteeError struct {
	Recorded entry.Generation // what the ledger says
	Want     string           // what the process works under
}

func (e *GuaranteeError) Error() string {
	return fmt.Sprintf("%v: its ledger says %q, this process works under %q; give it the group's, or stop all members and move the group: sharetxn ledger move --bootstrap $BOOTSTRAP --group %s --to %s",
		ErrGuarantee, e.Recorded.Guarantee, e.Want, e.Recorded.Group, e.Want)
}

// Is matches ErrGuarantee.
func (e *GuaranteeError) Is(target error) bool { return target == ErrGuarantee }

// ConflictError refuses a commit: other transactions may have, or have, decided
// some of its records. Nothing is lost; abort, and look at the records again
// under the same lock. It counts source offsets; the class is abortable.
type ConflictError struct {
	Done   int64 // in a transaction that is committed
	Open   int64 // in an earlier one that is not decided
	Below  int64 // below the start of the share partition
	Unsure int64 // not known, since the tail lost continuity
	// Ended are entries of the transaction itself, not offsets, for which the log
	// says that it has ended, or which are not there: somebody else ended it.
	Ended int64
}

func (e *ConflictError) Error() string {
	var parts []string
	for _, x := range []struct {
		n    int64
		text string
	}{
		{e.Done, "done by a committed transaction"},
		{e.Open, "in an earlier transaction that is open"},
		{e.Below, "below the share partition's start"},
		{e.Unsure, "not known after a gap in the ledger"},
	} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.text))
		}
	}
	if e.Ended > 0 {
		parts = append(parts, fmt.Sprintf("%d entries are of a transaction that was ended by somebody else", e.Ended))
	}
	return "ledger: the commit is refused, its records are looked at again: " + strings.Join(parts, ", ")
}

func (e *ConflictError) any() bool { return e.Done+e.Open+e.Below+e.Unsure+e.Ended > 0 }

// resetCommand sets the group's offsets and a new generation together.
func resetCommand(group string) string { return topic.Remedy(group, topic.ErrResetting) }

// failure is a fatal error of a group's ledger.
func failure(op, group string, err error) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassFatal, Group: group, Err: err}
}
