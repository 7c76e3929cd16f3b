package index

import "sort"

// kept are the entries for whose sake the log may not be deleted up to its end:
// undecided, or committed and not wholly below their start. In the order of the
// log; some are dead and taken out later. The zero value is empty.
type kept struct {
	entries []keptEntry
	dead    int
}

type keptEntry struct {
	at, last  int64 // where it is, and the last source offset that it covers
	source    *source
	undecided bool
	dead      bool
}

// holds reports whether the log must keep k.
func (k *keptEntry) holds() bool { return !k.dead && (k.undecided || k.last >= k.source.floor) }

func (k *kept) add(e keptEntry) { k.entries = append(k.entries, e) }

// decide tells how the transaction of the entry at the offset at ended.
func (k *kept) decide(at int64, commit bool) {
	i := sort.Search(len(k.entries), func(i int) bool { return k.entries[i].at >= at })
	if i == len(k.entries) || k.entries[i].at != at {
		return
	}
	e := &k.entries[i]
	e.undecided = false
	if commit && e.holds() {
		return
	}
	e.dead = true
	if k.dead++; k.dead > len(k.entries)/2 {
		k.compact()
	}
}

// compact takes out what does not hold the log.
func (k *kept) compact() {
	live := k.entries[:0]
	for _, e := range k.entries {
		if e.holds() {
			live = append(live, e)
		}
	}
	clear(k.entries[len(live):])
	k.entries, k.dead = live, 0
}

// first is where the first entry is that holds the log.
func (k *kept) first() (at int64, ok bool) {
	for i := range k.entries {
		if k.entries[i].holds() {
			return k.entries[i].at, true
		}
	}
	return 0, false
}
