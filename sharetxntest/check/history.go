package check

import (
	"slices"
	"sync"
	"time"
)

// Guarantee is what a service promises, and so what its history is held against.
type Guarantee string

// The guarantees; see package processor.
const (
	GuaranteeStaged         Guarantee = "staged"           // verdicts are staged in the transaction
	GuaranteeLedger         Guarantee = "ledger"           // a ledger entry in the transaction, then plain acknowledgements
	GuaranteeAckAfterCommit Guarantee = "ack-after-commit" // plain acknowledgements after the commit: at least once
)

// Profile names how brokers stage, where that matters.
type Profile string

// ProfileKIP93 is the text of KIP-1289, which concedes two windows in which a
// record may be published twice.
const ProfileKIP93 Profile = "kip93"

// Header says what a history is held against.
type Header struct {
	Group     string    `json:"group"`
	Guarantee Guarantee `json:"guarantee"`
	Profile   Profile   `json:"profile,omitempty"`
	// Observed: the brokers told all that they saw of the group, its transactions and
	// its outputs. Otherwise what a transaction acknowledged is only known by the
	// source that each output names (Visible.From).
	Observed bool `json:"observed,omitempty"`
	// Outputs are the topics that the group's transactions may publish to, dead letters
	// included; none: all that they did publish to, but for sources and Ledger.
	Outputs     []string `json:"outputs,omitempty"`
	DeadLetters []string `json:"deadLetters,omitempty"` // topics
	Ledger      string   `json:"ledger,omitempty"`      // the topic of the group's ledger
	// Bound is how long after the last fault all must be done, in a file in nanoseconds;
	// 0: rule I9 is not judged.
	Bound time.Duration `json:"bound,omitempty"`
}

// History is all there is to judge. The final reads may stand anywhere among the
// lines; everything else stands in the order in which it happened.
type History struct {
	Header
	Lines []Line
}

// Recorder keeps lines in the order in which they are told. The zero value is
// ready. Safe for concurrent use.
type Recorder struct {
	mu    sync.Mutex
	lines []Line
}

// Add notes events as of now.
func (r *Recorder) Add(events ...Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, e := range events {
		r.lines = append(r.lines, Line{now, e})
	}
}

// Lines gives what was told so far.
func (r *Recorder) Lines() []Line {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.lines)
}
