package differential

import "slices"

// Reduce shortens a list that fails as long as it still fails: it leaves out
// ever smaller pieces, then single ranges.
func Reduce(ops []Op, fails func([]Op) bool) []Op {
	for size := len(ops) / 2; size > 0; size /= 2 {
		for at := 0; at+size <= len(ops); {
			less := slices.Delete(slices.Clone(ops), at, at+size)
			if fails(less) {
				ops = less
			} else {
				at += size
			}
		}
	}
	for i := range ops {
		for r := 0; r < len(ops[i].Ranges) && len(ops[i].Ranges) > 1; {
			less := slices.Clone(ops)
			less[i].Ranges = slices.Delete(slices.Clone(ops[i].Ranges), r, r+1)
			if fails(less) {
				ops = less
			} else {
				r++
			}
		}
	}
	return ops
}
