package main

import "iter"

// turns gives the order in which ways run: each once in every round, after a
// round 0 that does not count, and each round begins with another. A machine
// that is busy for a while, or grows slower, does so for all of them.
func turns(rounds, ways int) iter.Seq2[int, int] {
	return func(yield func(round, nth int) bool) {
		for round := range rounds + 1 {
			for i := range ways {
				if !yield(round, (round+i)%ways) {
					return
				}
			}
		}
	}
}
