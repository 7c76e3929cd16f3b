package check

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Rule is one of the rules that a history is held against; see the package's
// comment.
type Rule string

// The rules.
const (
	I1 Rule = "I1"
	I2 Rule = "I2"
	I3 Rule = "I3"
	I4 Rule = "I4"
	I5 Rule = "I5"
	I6 Rule = "I6"
	I7 Rule = "I7"
	I8 Rule = "I8"
	I9 Rule = "I9"
)

// Rules are all of them.
func Rules() []Rule { return []Rule{I1, I2, I3, I4, I5, I6, I7, I8, I9} }

// Kind is what is wrong, in a word.
type Kind string

// The kinds.
const (
	Duplicate      Kind = "duplicate"      // published, or acknowledged, more than once
	Missed         Kind = "lost"           // done for the group, and nothing committed says so
	Contradiction  Kind = "contradiction"  // an acknowledgement did not follow its transaction
	Early          Kind = "early"          // acknowledged before a transaction had committed it
	Partial        Kind = "partial"        // some of a record's outputs are visible, or more than there are
	Foreign        Kind = "foreign"        // an output of a record that its transaction did not acknowledge
	Unacknowledged Kind = "unacknowledged" // a transaction published and acknowledged nothing
	Elsewhere      Kind = "elsewhere"      // a transaction of the group published on a topic that was not named
	Stray          Kind = "stray"          // visible, and of no committed transaction
	Letter         Kind = "letter"         // a dead letter that is missing, or one too many
	Left           Kind = "left"           // not done, or acquired or staged, at rest
	Hanging        Kind = "hanging"        // a last stable offset is below its high watermark at rest
	Missing        Kind = "missing"        // a committed output is not visible
	Misreported    Kind = "misreported"    // a client was told what is not so
	Unresolved     Kind = "unresolved"     // an unknown outcome was never settled
	Zombie         Kind = "zombie"         // committed for a producer that had been fenced
	Miscounted     Kind = "miscounted"     // a delivery did not count one more than the one before
	Discarded      Kind = "archived"       // its deliveries were used up
	Retracted      Kind = "retracted"      // a reader saw what is not there
	Torn           Kind = "torn"           // a reader passed over a part of what is there
	Slow           Kind = "slow"           // not done in the bound
)

// Finding is one thing that is wrong, about offsets [First, Last] of a
// partition; Topic is empty if it is of none.
type Finding struct {
	Rule Rule
	Kind Kind
	Range
	Txns []Txn // that it is about
	What string
	// Conceded: guarantee or profile allow this. Window says in words what does.
	Conceded bool
	Window   string
}

func (f Finding) String() string {
	where := ""
	switch {
	case f.Topic == "":
	case f.Last > f.First:
		where = fmt.Sprintf("%s-%d offsets %d to %d: ", f.Topic, f.Partition, f.First, f.Last)
	default:
		where = fmt.Sprintf("%s-%d offset %d: ", f.Topic, f.Partition, f.First)
	}
	return fmt.Sprintf("%s %s: %s%s", f.Rule, f.Kind, where, f.What)
}

// Report is the judgement.
type Report struct {
	Findings []Finding // sorted, neighbours that say the same in one
	// Unjudged are the rules that nothing in the history tells of, with what is missing.
	Unjudged map[Rule]string

	Acknowledged int // source records that a committed transaction decided
	Transactions int // committed ones of the group
	Outputs      int // visible records of these
	Doubled      int // source records that were published again where that is conceded
}

// Wrong are the findings that are not conceded: none means that the history
// holds.
func (r Report) Wrong() []Finding {
	return slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Conceded })
}

// String is a line for each finding, after one that counts.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d source records decided by %d transactions with %d outputs; %d findings, %d of them conceded",
		r.Acknowledged, r.Transactions, r.Outputs, len(r.Findings), len(r.Findings)-len(r.Wrong()))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%v", f)
	}
	for _, rule := range Rules() {
		if why, ok := r.Unjudged[rule]; ok {
			fmt.Fprintf(&b, "\n%s not judged: %s", rule, why)
		}
	}
	return b.String()
}

// join makes one finding of neighbours that say the same, and sorts.
func join(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(strings.Compare(string(a.Rule), string(b.Rule)), strings.Compare(string(a.Kind), string(b.Kind)), strings.Compare(a.Topic, b.Topic),
			cmp.Compare(a.Partition, b.Partition), strings.Compare(a.What, b.What), cmp.Compare(a.First, b.First))
	})
	var out []Finding
	for _, f := range all {
		if n := len(out); n > 0 && follows(out[n-1], f) {
			out[n-1].Last = f.Last
			continue
		}
		out = append(out, f)
	}
	return out
}

// follows tells whether f says the same of what comes next.
func follows(last, f Finding) bool {
	return f.Topic != "" && last.Rule == f.Rule && last.Kind == f.Kind && last.Place == f.Place && last.Last+1 == f.First &&
		last.What == f.What && slices.Equal(last.Txns, f.Txns) && last.Conceded == f.Conceded && last.Window == f.Window
}
