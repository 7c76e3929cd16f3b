package shareconsumer

import (
	"cmp"
	"slices"

	"github.com/sharetxn/sharetxn/acks"
)

// load is the acknowledgements of one request: pieces of which no two name the
// same offset.
type load struct {
	pieces []*piece
	parts  []part // theirs together
}

func (l *load) part(k partKey) *part {
	for i := range l.parts {
		if keyOf(l.parts[i].tp) == k {
			return &l.parts[i]
		}
	}
	return nil
}

// take takes a piece in, unless one of its offsets is there already: then it
// has to wait for another request.
func (l *load) take(p *piece) bool {
	for _, pt := range p.parts {
		if have := l.part(keyOf(pt.tp)); have != nil && overlap(have.runs, pt.runs) {
			return false
		}
	}
	for _, pt := range p.parts {
		if len(pt.runs) == 0 {
			continue
		}
		have := l.part(keyOf(pt.tp))
		if have == nil {
			l.parts = append(l.parts, part{tp: pt.tp})
			have = &l.parts[len(l.parts)-1]
		}
		behind := len(have.runs) == 0 || have.runs[len(have.runs)-1].Last < pt.runs[0].First
		have.runs = append(have.runs, pt.runs...)
		if !behind {
			slices.SortFunc(have.runs, byOffset)
		}
	}
	l.pieces = append(l.pieces, p)
	return true
}

// overlap tells whether two lists, each ascending and disjoint, have an offset
// in common.
func overlap(a, b []acks.Run) bool {
	if len(a) == 0 || len(b) == 0 || a[len(a)-1].Last < b[0].First {
		return false
	}
	i, _ := slices.BinarySearchFunc(a, b[0].First, func(r acks.Run, o int64) int { return cmp.Compare(r.Last, o) })
	for j := 0; i < len(a) && j < len(b); {
		switch {
		case a[i].Last < b[j].First:
			i++
		case b[j].Last < a[i].First:
			j++
		default:
			return true
		}
	}
	return false
}

// batchesOf is the wire form of a part.
func batchesOf(p part) []acks.AcknowledgementBatch { return acks.Batches(p.runs) }
