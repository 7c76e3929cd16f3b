package acks

import (
	"math/rand/v2"
	"testing"
)

// perSet is how many offsets one operation of a benchmark adds: a poll's worth
// a hundred times over, so that sets of a long transaction are seen too.
const perSet = 50_000

func BenchmarkAdd(b *testing.B) {
	ascending := make([]int64, perSet)
	for i := range ascending {
		ascending[i] = int64(i)
	}
	shuffled := append([]int64(nil), ascending...)
	rand.New(rand.NewPCG(1, 2)).Shuffle(perSet, func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	one := func(int64) Type { return Accept }
	alternating := func(o int64) Type { return []Type{Accept, Reject}[o%2] }

	for _, c := range []struct {
		name    string
		offsets []int64
		verdict func(int64) Type
	}{
		{"ascending", ascending, one},
		{"alternating", ascending, alternating},
		{"shuffled", shuffled, one},
		{"shuffled-alternating", shuffled, alternating},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var s Set
				for _, o := range c.offsets {
					mustAdd(b, &s, orders, o, o, c.verdict(o))
				}
				if s.Len() != perSet {
					b.Fatal(s.Len())
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perSet, "ns/offset")
		})
	}
}

// BenchmarkMerge is a transaction that takes one poll after the other.
func BenchmarkMerge(b *testing.B) {
	const poll = 500
	var polls []*Set
	for first := int64(0); first < perSet; first += poll {
		s := &Set{}
		for o := first; o < first+poll; o++ {
			mustAdd(b, s, orders, o, o, []Type{Accept, Accept, Reject}[o%3])
		}
		polls = append(polls, s)
	}
	b.ReportAllocs()
	for b.Loop() {
		var s Set
		for _, p := range polls {
			if err := s.Merge(p); err != nil {
				b.Fatal(err)
			}
		}
		if s.Len() != perSet {
			b.Fatal(s.Len())
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/perSet, "ns/offset")
}

func BenchmarkMap(b *testing.B) {
	var s Set
	for o := range int64(perSet) {
		mustAdd(b, &s, orders, o, o, []Type{Accept, Accept, Reject}[o%3])
	}
	b.ReportAllocs()
	for b.Loop() {
		if len(s.Map()[orders]) != 1 {
			b.Fatal("an alternating row of short runs is one batch")
		}
	}
}
