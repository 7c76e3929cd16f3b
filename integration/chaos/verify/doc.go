// Package verify judges a chaos trial from what lies in the cluster when all is
// over, and from what members logged of deliveries. It knows the task and Kafka,
// and nothing of the library: it reads with plain kgo and kadm.
//
// Judge, Logs and States are pure; Trial and Live do the reading.
package verify

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
)

// Txn is one transaction: with transaction.version 2 each has an epoch of its own.
type Txn struct {
	Producer int64
	Epoch    int16
}

func (t Txn) String() string { return fmt.Sprintf("%d:%d", t.Producer, t.Epoch) }

// Part is a partition of a topic.
type Part struct {
	Topic     string
	Partition int32
}

func (p Part) String() string { return fmt.Sprintf("%s/%d", p.Topic, p.Partition) }

// Fault is a kind of finding, each one a broken promise.
type Fault string

const (
	Duplicate Fault = "duplicate" // of one source record there is something visible more than once in a round
	Missing   Fault = "missing"   // of a source record nothing is visible, and not because brokers archived it at the delivery limit
	Partial   Fault = "partial"   // only some of its outputs are visible
	Split     Fault = "split"     // its outputs are of several transactions
	Wrong     Fault = "wrong"     // an output that the task does not ask for
	Torn      Fault = "torn"      // a transaction ended in two ways, or not at all
	Retracted Fault = "retracted" // readers of the same saw different things
	Unrest    Fault = "unrest"    // not all is settled
)

// Finding is one of them.
type Finding struct {
	Fault Fault
	Where string
	What  string
}

func (f Finding) String() string { return fmt.Sprintf("%s: %s: %s", f.Fault, f.Where, f.What) }

// Verdict is what came out.
type Verdict struct {
	Sources            int
	Outputs            int              // visible
	Rejected           int              // source records in the dead letter, over all rounds
	Healthy            int              // of them plain ones, which nobody rejected: they came to their last delivery
	Committed, Aborted int              // transactions with results
	Archived           []Archive        // with nothing visible
	Written            map[Delivery]int // by the brokers of source records, over all rounds
	Counts             map[Fault]int
	Findings           []Finding // some of each fault
}

// Archive is a source record that brokers gave up at the limit of deliveries.
type Archive struct {
	At     task.At
	Round  int
	Kind   task.Kind
	Logged counts // deliveries that members logged, of the second and later ones
	Unseen int    // deliveries that were cut off, so that no member logged them
}

func (a Archive) String() string {
	return fmt.Sprintf("archived by the brokers at the delivery limit: %v, kind %c, round %d: deliveries %v logged, %d cut off", a.At, a.Kind, a.Round, a.Logged, a.Unseen)
}

// found notes a finding; of each fault it keeps some.
func (v *Verdict) found(f Fault, where fmt.Stringer, format string, args ...any) {
	if v.Counts == nil {
		v.Counts = make(map[Fault]int)
	}
	v.Counts[f]++
	if v.Counts[f] <= 20 {
		v.Findings = append(v.Findings, Finding{f, where.String(), fmt.Sprintf(format, args...)})
	}
}

func (v *Verdict) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d source records (the brokers wrote of %d that they are acknowledged, of %d archived, of %d neither), %d outputs visible, %d dead letters (%d of plain records), %d archived with nothing visible, %d transactions committed, %d aborted",
		v.Sources, v.Written[Acknowledged], v.Written[Archived], v.Written[Available]+v.Written[Unknown], v.Outputs, v.Rejected, v.Healthy, len(v.Archived), v.Committed, v.Aborted)
	for _, f := range []Fault{Duplicate, Missing, Partial, Split, Wrong, Torn, Retracted, Unrest} {
		fmt.Fprintf(&b, ", %d %s", v.Counts[f], f)
	}
	for _, f := range slices.SortedStableFunc(slices.Values(v.Findings), func(a, b Finding) int { return strings.Compare(string(a.Fault), string(b.Fault)) }) {
		fmt.Fprintf(&b, "\n%v", f)
	}
	for _, a := range v.Archived[:min(len(v.Archived), 20)] {
		fmt.Fprintf(&b, "\n%v", a)
	}
	return b.String()
}
