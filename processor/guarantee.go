package processor

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/sharetxn/sharetxn"
)

// Guarantee is the promise. The zero value is Staged.
type Guarantee uint8

const (
	// Staged: acknowledgements are staged in the transaction of the outputs, so
	// that both commit or abort: exactly once. Needs brokers that prove KIP-1289.
	Staged Guarantee = iota
	// Ledger: exactly once on Kafka 4.2 and later. Each transaction writes, beside
	// its outputs, which records it decides into the group's ledger topic, and
	// commits only if no earlier one decides any of them; the acknowledgements
	// follow. Needs the topic (ledger.Ensure, or "sharetxn ledger create"). A
	// record that is archived at the group's delivery limit, since every delivery
	// of it ended with its process, is the exception: it is done without outputs.
	Ledger
	// AckAfterCommit: at least once on Kafka 4.2 and later. The acknowledgements
	// follow the commit, and what was committed and not acknowledged, since the
	// process, its connection or a lock ended between the two, is handled and
	// published again. It is warned of once in the log.
	AckAfterCommit
)

var guarantees = []string{"staged", "ledger", "ack-after-commit"}

func (g Guarantee) String() string {
	if int(g) < len(guarantees) {
		return guarantees[g]
	}
	return "Guarantee(" + strconv.Itoa(int(g)) + ")"
}

// ParseGuarantee reads "staged", "ledger" or "ack-after-commit", for flags and
// environment variables. Errors are of class usage.
func ParseGuarantee(s string) (Guarantee, error) {
	for g, name := range guarantees {
		if s == name {
			return Guarantee(g), nil
		}
	}
	return 0, usage("ParseGuarantee", "%q is no guarantee; there are %q", s, guarantees)
}

// known refuses a value that is none of the constants.
func (g Guarantee) known(field string) error {
	if int(g) < len(guarantees) {
		return nil
	}
	return usage("New", "%s: %v is unknown", field, g)
}

// ErrGuarantee: the group is bound to another guarantee, by the generation record of
// its ledger topic. Class fatal.
var ErrGuarantee = errors.New("processor: the group keeps another guarantee")

func usage(op, format string, args ...any) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}
