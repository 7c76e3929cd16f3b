package acks

import (
	"iter"
	"slices"
	"sort"
)

// runList holds runs in order: ascending, disjoint, and merged, so that
// neighbours that touch differ in type. It is cut into chunks, so that
// an offset that comes out of order moves one chunk and not all that follows.
// The zero runList is empty.
type runList struct {
	chunks [][]Run // none is empty
}

// maxChunk is a page or two of memory: moving it costs about as much as the
// search that led there.
const maxChunk = 256

// pos is a place in a runList; the place behind the last run is (len(chunks), 0).
type pos struct{ chunk, index int }

// seek gives the first run that ends at or after offset.
func (l *runList) seek(offset int64) pos {
	c := sort.Search(len(l.chunks), func(c int) bool {
		runs := l.chunks[c]
		return runs[len(runs)-1].Last >= offset
	})
	if c == len(l.chunks) {
		return pos{c, 0}
	}
	runs := l.chunks[c]
	return pos{c, sort.Search(len(runs), func(i int) bool { return runs[i].Last >= offset })}
}

func (l *runList) at(p pos) (Run, bool) {
	if p.chunk == len(l.chunks) {
		return Run{}, false
	}
	return l.chunks[p.chunk][p.index], true
}

func (l *runList) next(p pos) pos {
	if p.index+1 < len(l.chunks[p.chunk]) {
		return pos{p.chunk, p.index + 1}
	}
	return pos{p.chunk + 1, 0}
}

// all gives the runs in order.
func (l *runList) all() iter.Seq[Run] {
	return func(yield func(Run) bool) {
		for _, chunk := range l.chunks {
			for _, r := range chunk {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// conflict gives the first run of another type that overlaps r.
func (l *runList) conflict(r Run) (Run, bool) {
	p := l.seek(r.First)
	for x, ok := l.at(p); ok && x.First <= r.Last; x, ok = l.at(p) {
		if x.Type != r.Type {
			return x, true
		}
		p = l.next(p)
	}
	return Run{}, false
}

// add merges r in. There must be no conflict.
func (l *runList) add(r Run) {
	if l.addLast(r) {
		return
	}
	// What r overlaps, or touches in its own type, becomes one with it.
	from := l.seek(r.First - 1)
	if x, _ := l.at(from); x.Last < r.First && x.Type != r.Type {
		from = l.next(from)
	}
	to := from
	for x, ok := l.at(to); ok && (x.First <= r.Last || x.First == r.Last+1 && x.Type == r.Type); x, ok = l.at(to) {
		r.First, r.Last = min(r.First, x.First), max(r.Last, x.Last)
		to = l.next(to)
	}
	l.replace(from, to, r)
}

// addLast adds a run that starts behind all others, which is how a consumer
// hands records out.
func (l *runList) addLast(r Run) bool {
	if len(l.chunks) == 0 {
		l.chunks = append(l.chunks, []Run{r})
		return true
	}
	chunk := &l.chunks[len(l.chunks)-1]
	last := &(*chunk)[len(*chunk)-1]
	switch {
	case r.First <= last.Last:
		return false
	case r.First == last.Last+1 && r.Type == last.Type:
		last.Last = r.Last
	case len(*chunk) < maxChunk:
		*chunk = append(*chunk, r)
	default:
		l.chunks = append(l.chunks, []Run{r})
	}
	return true
}

// replace puts r where the runs from one place up to another are; from is a
// run's place, not the one behind the last.
func (l *runList) replace(from, to pos, r Run) {
	c := from.chunk
	if c == to.chunk {
		l.chunks[c] = slices.Replace(l.chunks[c], from.index, to.index, r)
	} else {
		l.chunks[c] = append(l.chunks[c][:from.index], r)
		if to.chunk < len(l.chunks) {
			l.chunks[to.chunk] = slices.Delete(l.chunks[to.chunk], 0, to.index)
		}
		l.chunks = slices.Delete(l.chunks, c+1, to.chunk)
	}
	if runs := l.chunks[c]; len(runs) > maxChunk {
		half := len(runs) / 2
		l.chunks = slices.Insert(l.chunks, c+1, slices.Clone(runs[half:]))
		l.chunks[c] = runs[:half]
	}
}
