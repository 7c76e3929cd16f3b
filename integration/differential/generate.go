package differential

import "math/rand/v2"

// What every list has to do with.
const (
	members    = 2
	partitions = 2
)

// Generate draws a list of n operations; the same seed gives the same list. The
// log is never trimmed: when a share partition learns of it, and what it forgets
// then, is a broker's own affair (the conformance suite has what is not).
func Generate(seed uint64, n int) []Op {
	g := generator{rand.New(rand.NewPCG(seed, 5))}
	// There is something to fetch from the start.
	ops := []Op{{Verb: Produce, Partition: 0, N: 1 + g.IntN(20)}}
	for len(ops) < n {
		ops = append(ops, g.op())
	}
	return ops
}

type generator struct{ *rand.Rand }

// weights are how often each verb comes, in hundredths.
var weights = []struct {
	verb Verb
	of   int
}{
	{Produce, 14}, {Commit, 3}, {Abort, 3}, {Fetch, 26}, {Ack, 22}, {FetchAck, 14}, {Renew, 5}, {Close, 5}, {Astray, 3}, {Describe, 5},
}

func (g generator) op() Op {
	o := Op{Member: g.IntN(members)}
	if g.IntN(4) == 0 { // most happens on one partition, so that operations meet
		o.Partition = 1
	}
	at := g.IntN(100)
	for _, w := range weights {
		if at < w.of {
			o.Verb = w.verb
			break
		}
		at -= w.of
	}
	switch o.Verb {
	case Produce, Commit, Abort:
		o.N = 1 + g.IntN(12)
	case Fetch, FetchAck:
		o.N = 1 + g.IntN(25)
		if g.IntN(10) == 0 {
			o.N = 500
		}
		o.Limit = g.IntN(3) == 0
	case Astray:
		o.N = []int{-1, 1, 2}[g.IntN(3)]
	case Ack, Renew, Close, Describe:
	}
	switch o.Verb {
	case Ack, FetchAck:
		for range 1 + g.IntN(3) {
			o.Ranges = append(o.Ranges, g.acks(false))
		}
	case Renew:
		for range 1 + g.IntN(2) {
			o.Ranges = append(o.Ranges, g.acks(true))
		}
	case Close:
		if g.IntN(2) == 0 {
			o.Ranges = append(o.Ranges, g.acks(false))
		}
	case Produce, Commit, Abort, Fetch, Astray, Describe:
	}
	return o
}

// acks is one range: mostly of what is held, sometimes of what need not be.
func (g generator) acks(renew bool) Range {
	r := Range{Held: g.IntN(8) != 0, At: g.IntN(30), Len: 1 + g.IntN(6)}
	kind := func() int8 {
		switch n := g.IntN(20); {
		case renew && n < 14:
			return 4
		case n < 9:
			return 1
		case n < 15:
			return 2
		case n < 18:
			return 3
		case n < 19:
			return 0
		}
		return 5 // there is no such type
	}
	if g.IntN(3) > 0 {
		r.Types = []int8{kind()}
		return r
	}
	for range r.Len {
		t := kind()
		if t == 5 && r.Len > 1 {
			t = 1
		}
		r.Types = append(r.Types, t)
	}
	if g.IntN(12) == 0 {
		r.Types = append(r.Types, 1) // one too many
	}
	return r
}
