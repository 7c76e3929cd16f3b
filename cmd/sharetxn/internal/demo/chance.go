package demo

import (
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// moment is what a process is about to do.
type moment uint8

const (
	staging moment = iota // its records are acquired
	ending                // commit: its records are staged, or in the other pattern acquired
	acking                // its outputs are committed, its records acquired
)

// chance is a request at which a fault may strike.
type chance struct {
	slot    *slot
	at      moment
	id      string  // transactional id; not of acking
	key     txn.Key // the same
	records records
}

// records are what a request is about.
type records struct {
	member string
	places []place
}

// place is a run of offsets of a source partition.
type place struct {
	topic       string
	partition   int32
	first, last int64
}

// add takes runs that are accepted or rejected.
func (r *records) add(topic string, partition int32, first, last int64, types []acks.Type) {
	for run := range (acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: types}).Runs() {
		if run.Type == acks.Accept || run.Type == acks.Reject {
			r.places = append(r.places, place{topic, partition, run.First, run.Last})
		}
	}
}

func (r *records) addStaged(b *broker.Cluster, req *wire.Request) {
	r.member = req.MemberID
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			for _, x := range p.Batches {
				r.add(b.TopicName(t.TopicID), p.Partition, x.FirstOffset, x.LastOffset, x.Types)
			}
		}
	}
}

func (r *records) addAcked(b *broker.Cluster, req *kmsg.ShareAcknowledgeRequest) {
	r.member = *req.MemberID
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			for _, x := range p.AcknowledgementBatches {
				types := make([]acks.Type, len(x.AcknowledgeTypes))
				for i, t := range x.AcknowledgeTypes {
					types[i] = acks.Type(t)
				}
				r.add(b.TopicName(t.TopicID), p.Partition, x.FirstOffset, x.LastOffset, types)
			}
		}
	}
}

// all tells whether there are records and the group has them all in a state,
// held by their member.
func (r records) all(b *broker.Cluster, want share.State) bool {
	return len(r.places) > 0 && !r.any(b, func(s share.State, owner string, _ int16) bool { return s != want || owner != r.member })
}

// none is all of no record.
func (r records) none(b *broker.Cluster, bad share.State) bool {
	return !r.any(b, func(s share.State, owner string, _ int16) bool { return s == bad && owner == r.member })
}

// fresh tells whether none was delivered more often than so: faults must not
// use up a record's deliveries.
func (r records) fresh(b *broker.Cluster, most int16) bool {
	return !r.any(b, func(_ share.State, _ string, deliveries int16) bool { return deliveries > most })
}

// any tells whether something is true of one of them; what is below the group's
// start is done.
func (r records) any(b *broker.Cluster, is func(s share.State, owner string, deliveries int16) bool) bool {
	for _, p := range r.places {
		for offset := p.first; offset <= p.last; offset++ {
			s, owner, n, ok := b.StateOf(group, p.topic, p.partition, offset)
			if !ok {
				s = share.Acknowledged
			}
			if is(s, owner, n) {
				return true
			}
		}
	}
	return false
}

// view is a transactional id as the coordinator has it.
func view(b *broker.Cluster, id string) (v txn.View) {
	for _, v := range b.Transactions() {
		if v.ID == id {
			return v
		}
	}
	return v
}

// open tells whether a transaction has not been ended.
func (c chance) open(b *broker.Cluster) bool {
	v := view(b, c.id)
	return v.Status == txn.Ongoing && v.Writer == c.key
}

// held tells whether the chance is there still: the records are as they are when
// the request comes.
func (c chance) held(b *broker.Cluster, p pattern) bool {
	switch {
	case c.at != ending:
		return c.records.all(b, share.Acquired)
	case p == staged:
		return c.open(b) && c.records.all(b, share.TxPending)
	}
	return c.open(b)
}
