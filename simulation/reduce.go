package simulation

import "slices"

// Reduce shortens a list of operations that fails to one of which nothing can be
// left out any more without it not failing, or little (delta debugging). fails is
// asked about candidates, which keep the order. A list that does not fail comes
// back as it is.
func Reduce(ops []Op, fails func([]Op) bool) []Op {
	if !fails(ops) {
		return ops
	}
	for parts := 2; len(ops) > 0; {
		parts = min(parts, len(ops))
		shorter, ok := cutOne(ops, parts, fails)
		switch {
		case ok:
			ops, parts = shorter, max(2, parts-1)
		case parts == len(ops):
			return ops
		default:
			parts *= 2
		}
	}
	return ops
}

// cutOne leaves out the first of so many parts without which ops still fails;
// false if there is none.
func cutOne(ops []Op, parts int, fails func([]Op) bool) ([]Op, bool) {
	for i := range parts {
		from, to := i*len(ops)/parts, (i+1)*len(ops)/parts
		if rest := slices.Concat(ops[:from], ops[to:]); fails(rest) {
			return rest, true
		}
	}
	return nil, false
}
