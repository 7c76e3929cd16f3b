package tail

import (
	"slices"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// perSource are the offsets of one source partition.
type perSource struct {
	source
	offsets []int64
}

// bySource sorts positions by source partition, in order of their first.
func bySource(positions []Position) (out []perSource) {
	at := make(map[source]int)
	for _, p := range positions {
		k := source{p.TopicID, p.Partition}
		i, known := at[k]
		if !known {
			i = len(out)
			at[k], out = i, append(out, perSource{source: k})
		}
		out[i].offsets = append(out[i].offsets, p.Offset)
	}
	return out
}

// ranges are the offsets as runs; they come sorted out of it.
func ranges(offsets []int64) []entry.Range {
	slices.Sort(offsets)
	var out []entry.Range
	for _, o := range offsets {
		switch n := len(out); {
		case n > 0 && o <= out[n-1].Last: // twice
		case n > 0 && o == out[n-1].Last+1:
			out[n-1].Last = o
		default:
			out = append(out, entry.Range{First: o, Last: o})
		}
	}
	return out
}

func count(rs []entry.Range) (n int64) {
	for _, r := range rs {
		n += r.Last - r.First + 1
	}
	return n
}
