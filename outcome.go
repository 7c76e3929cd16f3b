package sharetxn

import "strconv"

// Outcome is how a transaction ended. The zero value is Unknown, so that
// nothing forgotten or unset ever reads as committed.
type Outcome uint8

const (
	// Unknown: the broker gave no definite answer within the bound. The next
	// Begin of the same transactional id settles it before anything else.
	// Nothing of the transaction may be acknowledged, released or run again.
	Unknown Outcome = iota
	// Aborted: proven not committed. Its outputs never become visible to
	// read_committed readers and its records come back.
	Aborted
	// Committed: proven by the transaction coordinator's answer to EndTxn.
	Committed
)

func (o Outcome) String() string {
	switch o {
	case Unknown:
		return "unknown"
	case Aborted:
		return "aborted"
	case Committed:
		return "committed"
	}
	return "Outcome(" + strconv.Itoa(int(o)) + ")"
}
