package shareconsumer

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/acks"
)

type topicID = [16]byte

func compareIDs(a, b topicID) int { return bytes.Compare(a[:], b[:]) }

// topicsOf gives the topics of partitions, in order.
func topicsOf(ps map[partKey]acks.TopicIDPartition) []topicID {
	ids := make(map[topicID]struct{})
	for k := range ps {
		ids[k.topic] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(ids), compareIDs)
}

const (
	// sievePatience is how many failures of everything together are borne before
	// topics are tried apart: mostly metadata tells sooner what is gone.
	sievePatience = 3
	// sievedFor is how long a topic is left out that fails by itself.
	sievedFor = 10 * time.Second
)

// sieve finds the topics for which a broker fails whole fetches: before Kafka
// 4.4 one topic id that it does not know is enough, and the answer does not tell
// which. They are left out for a while, so that the others go on.
type sieve struct {
	failures int                   // of everything together, in a row
	trials   [][]topicID           // to be tried next, each by itself
	out      map[topicID]time.Time // left out until then
}

// idle: nothing is tried apart or left out.
func (v *sieve) idle() bool { return len(v.trials) == 0 && len(v.out) == 0 }

// next gives which of topics, which are in order, a fetch is to ask for.
func (v *sieve) next(topics []topicID, now time.Time) []topicID {
	wanted := func(id topicID) bool {
		_, ok := slices.BinarySearchFunc(topics, id, compareIDs)
		return ok
	}
	for len(v.trials) > 0 {
		v.trials[0] = slices.DeleteFunc(v.trials[0], func(id topicID) bool { return !wanted(id) })
		if len(v.trials[0]) > 0 {
			return v.trials[0]
		}
		v.trials = v.trials[1:]
	}
	maps.DeleteFunc(v.out, func(id topicID, until time.Time) bool { return !now.Before(until) || !wanted(id) })
	if len(v.out) == len(topics) {
		clear(v.out) // there is nothing to protect
	}
	return slices.DeleteFunc(slices.Clone(topics), func(id topicID) bool {
		_, out := v.out[id]
		return out
	})
}

// failed notes that a fetch from topics failed as a whole.
func (v *sieve) failed(topics []topicID, now time.Time) {
	if len(v.trials) > 0 {
		v.trials = v.trials[1:]
	} else if v.failures++; v.failures < sievePatience {
		return
	}
	v.failures = 0
	switch n := len(topics); n {
	case 0:
	case 1:
		if v.out == nil {
			v.out = make(map[topicID]time.Time)
		}
		v.out[topics[0]] = now.Add(sievedFor)
	default:
		v.trials = append([][]topicID{slices.Clone(topics[:n/2]), slices.Clone(topics[n/2:])}, v.trials...)
	}
}

// passed notes that a fetch did not fail as a whole.
func (v *sieve) passed() {
	v.failures = 0
	if len(v.trials) > 0 {
		v.trials = v.trials[1:]
	}
}
