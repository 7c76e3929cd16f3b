package share

import (
	"cmp"
	"slices"
	"time"
)

// Place is a partition of a topic.
type Place struct {
	Topic     [16]byte
	Partition int32
}

// StagedBy gives the partitions of which a producer has records staged at an
// epoch below markerEpoch, in order. From then on none is staged there: the
// markers that end them would be missed.
func (e *Engine) StagedBy(producerID int64, markerEpoch int16) []Place {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decided[producerID] = max(markerEpoch, e.decided[producerID])
	var out []Place
	for k, p := range e.parts {
		if p.stagedBy(producerID, markerEpoch) {
			out = append(out, Place{k.topic, k.part})
		}
	}
	slices.SortFunc(out, func(a, b Place) int {
		return cmp.Or(slices.Compare(a.Topic[:], b.Topic[:]), cmp.Compare(a.Partition, b.Partition))
	})
	return slices.Compact(out) // groups share topics
}

func (p *partition) stagedBy(producerID int64, markerEpoch int16) bool {
	return slices.ContainsFunc(p.entries, func(e entry) bool {
		return e.state == TxPending && e.producerID == producerID && e.producerEpoch < markerEpoch
	})
}

// Outcome applies a transaction marker: whatever the producer staged below
// markerEpoch is committed or given back. It returns how many offsets.
//
// Every share partition sees every marker, and who staged what tells which one
// it is for. That is the KIP text's broadcast, read so that it works on more
// than one broker: the text has it end at the broker that leads the state
// partition, where in its example the share partition is led too; with another
// leader the marker would never come. In the draft the state partition takes
// the marker and the leader reads it back, which looks the same from outside.
func (e *Engine) Outcome(producerID int64, markerEpoch int16, commit bool) int64 {
	return e.outcome(producerID, markerEpoch, commit, func(partKey) bool { return true })
}

// OutcomeAt is Outcome where the marker has come to one partition only, in all
// groups.
func (e *Engine) OutcomeAt(at Place, producerID int64, markerEpoch int16, commit bool) int64 {
	return e.outcome(producerID, markerEpoch, commit, func(k partKey) bool { return k.topic == at.Topic && k.part == at.Partition })
}

func (e *Engine) outcome(producerID int64, markerEpoch int16, commit bool, there func(partKey) bool) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.decided[producerID] = max(markerEpoch, e.decided[producerID])
	now, n, expired := time.Now(), int64(0), false
	for k, p := range e.parts {
		if !there(k) {
			continue
		}
		if e.sem.lockRuns { // a lock ends at its time, also where the timer is late
			expired = e.partition(k).expire(now) || expired
		}
		n += p.outcome(producerID, markerEpoch, commit)
	}
	if n > 0 || expired {
		e.broadcast()
	}
	return n
}
