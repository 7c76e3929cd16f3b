package txnmanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// place is a partition of a topic by its name.
type place struct {
	topic     string
	partition int32
}

func (p place) String() string { return fmt.Sprintf("%s-%d", p.topic, p.partition) }

// compare puts places in order.
func (p place) compare(q place) int {
	return cmp.Or(strings.Compare(p.topic, q.topic), cmp.Compare(p.partition, q.partition))
}

// ordered gives the places of a set in order.
func ordered[V any](set map[place]V) []place {
	return slices.SortedFunc(maps.Keys(set), place.compare)
}

// written are the partitions that a transaction has written to, or may have. It
// is told of every record, and of most that they go where the one before went.
// The zero value is ready; safe for concurrent use.
type written struct {
	mu   sync.Mutex
	last place
	all  map[place]struct{}
}

func (w *written) add(p place) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all == nil {
		w.all = make(map[place]struct{})
	} else if p == w.last {
		return
	}
	w.last = p
	w.all[p] = struct{}{}
}

func (w *written) places() map[place]struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.all)
}
