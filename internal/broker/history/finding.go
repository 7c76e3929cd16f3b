package history

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Kind is what is wrong.
type Kind uint8

const (
	// Duplicate: more than one committed transaction staged the record, so that
	// its outputs are visible more than once; or one did, and it was accepted
	// plainly too.
	Duplicate Kind = iota
	// Lost: the record is done, and no committed transaction holds its outputs.
	Lost
	// Contradiction: an acknowledgement did not follow its transaction.
	Contradiction
	// Miscounted: a delivery did not count one more than the one before.
	Miscounted
	// Left: the record is not done; or it is acquired or staged at rest.
	Left
	// Hanging: a last stable offset lies below its high watermark at rest.
	Hanging
	// Unacknowledged: a transaction published and acknowledged nothing.
	Unacknowledged
	// Stray: an output is visible and belongs to no committed transaction.
	Stray
	// Missing: a committed output is not visible.
	Missing
	// Elsewhere: a transaction of the group published on a topic that was not named.
	Elsewhere
)

func (k Kind) String() string {
	return [...]string{
		"duplicate", "lost", "contradiction", "miscounted", "left", "hanging", "unacknowledged", "stray", "missing", "elsewhere",
	}[k]
}

// Finding is one thing that is wrong, about offsets [First, Last] of a
// partition.
type Finding struct {
	Kind        Kind
	Topic       string
	Partition   int32
	First, Last int64
	// Conceded: the profile's text allows this duplicate (design 5, KIP93), in the
	// Window that is told in words.
	Conceded bool
	Window   string
	What     string // in words
}

func (f Finding) String() string {
	at := fmt.Sprintf("%s-%d offset %d", f.Topic, f.Partition, f.First)
	if f.Last > f.First {
		at = fmt.Sprintf("%s-%d offsets %d to %d", f.Topic, f.Partition, f.First, f.Last)
	}
	return fmt.Sprintf("%v: %s: %s", f.Kind, at, f.What)
}

// join makes one finding of neighbours that say the same, and sorts.
func join(all []Finding) []Finding {
	slices.SortFunc(all, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition),
			strings.Compare(a.What, b.What), cmp.Compare(a.First, b.First))
	})
	var out []Finding
	for _, f := range all {
		if n := len(out); n > 0 {
			last := out[n-1]
			if last.Last+1 == f.First {
				last.First, last.Last = f.First, f.Last
				if last == f {
					out[n-1].Last = f.Last
					continue
				}
			}
		}
		out = append(out, f)
	}
	return out
}
