package index

import (
	"slices"
	"sort"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// spans is a set of offsets as ranges: ascending, disjoint and not touching.
// What it is used for comes nearly in order, and leaves at the front, so a plain
// slice does: an insertion moves little. The zero value is empty.
type spans []entry.Range

// seek gives the index of the first range that ends at or after offset.
func (s spans) seek(offset int64) int { return seek(s, offset) }

// seek gives the index of the first of some ascending, disjoint ranges that ends
// at or after offset.
func seek(rs []entry.Range, offset int64) int {
	return sort.Search(len(rs), func(i int) bool { return rs[i].Last >= offset })
}

// add puts first to last in; an empty range if last is below first.
func (s *spans) add(first, last int64) {
	if last < first {
		return
	}
	// What r overlaps or touches becomes one with it.
	i := s.seek(first - 1)
	j := i
	for ; j < len(*s) && (*s)[j].First <= last+1; j++ {
		first, last = min(first, (*s)[j].First), max(last, (*s)[j].Last)
	}
	if j == i+1 {
		(*s)[i] = entry.Range{First: first, Last: last}
		return
	}
	*s = slices.Replace(*s, i, j, entry.Range{First: first, Last: last})
}

// dropBelow takes out all offsets below floor.
func (s *spans) dropBelow(floor int64) {
	i := s.seek(floor)
	if i < len(*s) {
		(*s)[i].First = max((*s)[i].First, floor)
	}
	// The rest moves to the front, so that the slice does not walk through memory.
	*s = slices.Delete(*s, 0, i)
}
