package shareconsumer

import (
	"cmp"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var decompressor = kgo.DefaultDecompressor()

// span is a range of acquired offsets with its delivery count.
type span struct {
	first, last int64
	count       int32
}

// sanitise makes acquired ranges ascending and disjoint, whatever a broker
// sends: inverted and negative ones are dropped, overlaps keep the larger
// count.
func sanitise(in []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) []span {
	var out []span
	for _, a := range in {
		if a.FirstOffset >= 0 && a.FirstOffset <= a.LastOffset {
			out = append(out, span{a.FirstOffset, a.LastOffset, max(1, int32(a.DeliveryCount))})
		}
	}
	slices.SortFunc(out, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	merged := out[:0]
	for _, s := range out {
		n := len(merged)
		if n == 0 || merged[n-1].last < s.first {
			merged = append(merged, s)
			continue
		}
		merged[n-1].last = max(merged[n-1].last, s.last)
		merged[n-1].count = max(merged[n-1].count, s.count)
	}
	return merged
}

// sift walks records and acquired ranges together: records outside every range
// are not ours; offsets inside one without a record are holes (markers,
// compaction, what could not be decoded).
func sift(records []*kgo.Record, spans []span) (ours []*kgo.Record, counts []int32, holes []acks.Run) {
	i := 0
	for _, s := range spans {
		next := s.first
		for ; i < len(records) && records[i].Offset <= s.last; i++ {
			o := records[i].Offset
			if o < next {
				continue
			}
			if o > next {
				holes = append(holes, acks.Run{First: next, Last: o - 1})
			}
			ours, counts = append(ours, records[i]), append(counts, s.count)
			next = o + 1
		}
		if next <= s.last {
			holes = append(holes, acks.Run{First: next, Last: s.last})
		}
	}
	return ours, counts, holes
}

// acquired decodes what a partition gave. Holes are acknowledged as gaps, or
// they would stay acquired and come back; where decoding failed they are
// released instead, since nobody has decided those records, and the next poll
// is told.
func (s *session) acquired(k partKey, p *kmsg.ShareFetchResponseTopicPartition, deadline time.Time) {
	spans := sanitise(p.AcquiredRecords)
	if len(spans) == 0 {
		return
	}
	c := s.c
	c.mu.Lock()
	name := c.topics[k.topic]
	c.mu.Unlock()
	plain := kmsg.NewFetchResponseTopicPartition()
	plain.Partition, plain.RecordBatches = k.part, p.Records
	plain.HighWatermark, plain.LastStableOffset, plain.LogStartOffset = -1, -1, -1
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: name, Partition: k.part}, &plain, decompressor, nil)
	ours, counts, holes := sift(fp.Records, spans)
	hole := acks.Gap
	if fp.Err != nil {
		hole = acks.Release
	}
	for i := range holes {
		holes[i].Type = hole
	}
	tp := acks.TopicIDPartition{TopicID: k.topic, Topic: name, Partition: k.part}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, kr := range ours {
		r := &Record{Record: kr, TopicID: k.topic, count: counts[i], c: c, node: s.node, deadline: deadline}
		c.track(r)
		s.buffer = append(s.buffer, r)
	}
	if len(holes) > 0 {
		s.gaps(tp, holes)
	}
	if fp.Err != nil {
		c.surfaced = append(c.surfaced, &sharetxn.Error{Op: "Poll", Class: sharetxn.ClassAbortable, Group: c.group, Topic: name, Partition: k.part, Err: &sharetxn.RecordsError{
			Topic: name, Partition: k.part, Offsets: []int64{holes[0].First}, More: int(min(holes[len(holes)-1].Last-holes[0].First, 1<<30)), Err: fp.Err,
		}})
	}
	c.announce()
}
