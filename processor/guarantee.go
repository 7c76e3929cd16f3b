package processor

import (
	"fmt"
	"strconv"

	"github.com/sharetxn/sharetxn"
)

// Guarantee is the promise. The zero value is Staged.
type Guarantee uint8

const (
	// Staged: acknowledgements are staged in the transaction of the outputs, so
	// that both commit or abort. Needs brokers that prove KIP-1289.
	Staged Guarantee = iota
	// Ledger: exactly once on Kafka 4.2 and later. Not part of this version: New
	// refuses it.
	Ledger
	// AckAfterCommit: at least once. Not part of this version: New refuses it.
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

// offered says whether this version can keep the promise.
func (g Guarantee) offered(field string) error {
	switch {
	case g == Staged:
		return nil
	case int(g) < len(guarantees):
		return usage("New", "%s: %v is not part of this version; only %v is, which needs brokers with KIP-1289", field, g, Staged)
	}
	return usage("New", "%s: %v is unknown", field, g)
}

func usage(op, format string, args ...any) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}
