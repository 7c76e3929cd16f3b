package demo

import (
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// moment is what a process is about to do.
type moment uint8

const (
	staging moment = iota // its records are acquired
	ending                // commit: its records are staged, or without staging acquired
	acking                // its outputs are committed, its records acquired
)

// chance is a request at which a fault may strike.
type chance struct {
	process *process
	at      moment
	id      string  // transactional id; not of acking
	key     txn.Key // the same
	commit  bool    // of ending
	records records
}

func (c chance) slot() *slot { return c.process.slot }

// records are what a request is about.
type records struct {
	member string
	places []place
}

// place is a run of offsets of a source partition.
type place struct {
	partition   int32
	first, last int64
}

// reader reads requests: those of a process whose guarantee it is.
type reader struct {
	guarantee processor.Guarantee
	profile   wire.Profile // of staging
	source    [16]byte     // the topic
}

const (
	keyEndTxn           = 26
	keyShareFetch       = 78
	keyShareAcknowledge = 79
)

// message decodes a request that could be a chance; nil of all others.
func (r reader) message(q frame.Request) kmsg.Request {
	profile := wire.None
	if r.guarantee == processor.Staged {
		profile = r.profile
	}
	switch {
	case q.Key == keyEndTxn, q.Key == keyShareFetch, q.Key == keyShareAcknowledge, profile != wire.None && q.Key == profile.Key():
	default:
		return nil
	}
	m, err := q.Message(profile)
	if err != nil {
		return nil
	}
	return m
}

// chance tells what a request is about, all but whose it is; false if a fault
// has no reason to strike there. What is acknowledged plainly is not one where
// acknowledgements are staged.
func (r reader) chance(m kmsg.Request) (c chance, ok bool) {
	switch m := m.(type) {
	case *wire.Request:
		if m.TransactionalID == nil {
			return c, false
		}
		c.at, c.id, c.key = staging, *m.TransactionalID, txn.Key{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch}
		c.records.member = m.MemberID
	case *kmsg.EndTxnRequest:
		c.at, c.id, c.key, c.commit = ending, m.TransactionalID, txn.Key{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch}, m.Commit
		return c, true
	case *kmsg.ShareAcknowledgeRequest:
		c.at, c.records.member = acking, value(m.MemberID)
	case *kmsg.ShareFetchRequest:
		c.at, c.records.member = acking, value(m.MemberID)
	default:
		return c, false
	}
	c.records.places = r.places(m, decided)
	return c, len(c.records.places) > 0 && (c.at != acking || r.guarantee != processor.Staged)
}

// decided tells whether a type ends a record's delivery for good.
func decided(t acks.Type) bool { return t == acks.Accept || t == acks.Reject }

func renewed(t acks.Type) bool { return t == acks.Renew }

// places are what a request acknowledges in a certain way.
func (r reader) places(m kmsg.Request, is func(acks.Type) bool) (out []place) {
	add := func(topic [16]byte, partition int32, first, last int64, types []acks.Type) {
		if topic != r.source {
			return
		}
		for run := range (acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: types}).Runs() {
			if is(run.Type) {
				out = append(out, place{partition, run.First, run.Last})
			}
		}
	}
	switch m := m.(type) {
	case *wire.Request:
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				for _, x := range p.Batches {
					add(t.TopicID, p.Partition, x.FirstOffset, x.LastOffset, x.Types)
				}
			}
		}
	case *kmsg.ShareAcknowledgeRequest:
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				for _, x := range p.AcknowledgementBatches {
					add(t.TopicID, p.Partition, x.FirstOffset, x.LastOffset, types(x.AcknowledgeTypes))
				}
			}
		}
	case *kmsg.ShareFetchRequest: // they ride on it
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				for _, x := range p.AcknowledgementBatches {
					add(t.TopicID, p.Partition, x.FirstOffset, x.LastOffset, types(x.AcknowledgeTypes))
				}
			}
		}
	}
	return out
}

func types(raw []int8) []acks.Type {
	out := make([]acks.Type, len(raw))
	for i, t := range raw {
		out[i] = acks.Type(t)
	}
	return out
}

func value(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// any tells whether something is true of one of the records.
func (r records) any(is func(partition int32, offset int64) bool) bool {
	for _, p := range r.places {
		for offset := p.first; offset <= p.last; offset++ {
			if is(p.partition, offset) {
				return true
			}
		}
	}
	return false
}
