package index

import (
	"cmp"
	"encoding/binary"
	"maps"
	"slices"
)

// view is an Index that is not changed any more, and all it knows as bytes: two
// views with the same bytes behave alike from then on.
type view struct {
	*Index
	print string
}

// change gives the view after do was done to a copy of v's Index.
func (v *view) change(do func(*Index) error) (*view, error) {
	x := v.clone()
	err := do(x)
	return &view{x, x.fingerprint()}, err
}

// clone is a deep copy.
func (x *Index) clone() *Index {
	c := *x
	c.sources = make(map[[16]byte]*source, len(x.sources))
	moved := make(map[*source]*source, len(x.sources))
	for topic, s := range x.sources {
		n := *s
		n.done, n.open = slices.Clone(s.done), nil
		c.sources[topic], moved[s] = &n, &n
	}
	c.open = make(map[int64]*transaction, len(x.open))
	for id, t := range x.open {
		n := &transaction{epoch: t.epoch}
		for _, pe := range t.entries {
			m := *pe
			m.source = moved[pe.source] // nil in an older generation, whose source nobody looks at
			n.entries = append(n.entries, &m)
			if m.source != nil {
				m.source.open = append(m.source.open, &m)
			}
		}
		c.open[id] = n
	}
	c.kept.entries = slices.Clone(x.kept.entries)
	for i := range c.kept.entries {
		c.kept.entries[i].source = moved[c.kept.entries[i].source]
	}
	return &c
}

// fingerprint leaves out only what is for people.
func (x *Index) fingerprint() string {
	var b []byte
	put := func(ns ...int64) {
		for _, n := range ns {
			b = binary.AppendVarint(b, n)
		}
	}
	flag := func(f bool) int64 {
		if f {
			return 1
		}
		return 0
	}
	put(x.next, x.number, x.generation.Number, int64(x.generation.Phase), x.written, x.since, flag(x.clash != nil), flag(x.gapped), x.resumed)
	for _, topic := range slices.SortedFunc(maps.Keys(x.sources), func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) }) {
		s := x.sources[topic]
		put(int64(topic[0]), s.floor, s.asOf, s.end, int64(len(s.done)))
		for _, r := range s.done {
			put(r.First, r.Last)
		}
	}
	put(-1)
	for _, id := range slices.Sorted(maps.Keys(x.open)) {
		t := x.open[id]
		put(id, int64(t.epoch), int64(len(t.entries)))
		for _, pe := range slices.SortedFunc(slices.Values(t.entries), func(a, b *pending) int { return cmp.Compare(a.at, b.at) }) {
			put(pe.at, pe.Generation, flag(slices.ContainsFunc(slices.Collect(maps.Values(x.sources)), func(s *source) bool { return slices.Contains(s.open, pe) })))
			for _, r := range pe.Ranges {
				put(r.First, r.Last)
			}
		}
	}
	put(-1)
	for _, k := range x.kept.entries {
		if k.holds() {
			put(k.at, k.last, flag(k.undecided))
		}
	}
	return string(b)
}
