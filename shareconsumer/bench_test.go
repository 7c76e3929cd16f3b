package shareconsumer

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A fetch's way from the answer's bytes to a settled batch, per 2,000 records of
// 100 bytes in batches of 500.
func BenchmarkDelivery(b *testing.B) {
	const batches, each = 4, 500
	value := make([]byte, 100)
	var raw []byte
	for n := range batches {
		var records []byte
		for i := range each {
			r := kmsg.Record{OffsetDelta: int32(i), Value: value}
			r.Length = int32(len(r.AppendTo(nil)) - 1)
			records = r.AppendTo(records)
		}
		raw = append(raw, encode(kmsg.RecordBatch{FirstOffset: int64(n * each), LastOffsetDelta: each - 1, NumRecords: each, Records: records})...)
	}
	c, s := bookkeeper()
	c.cfg.maxPollRecords = 500
	tp := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}
	b.ReportAllocs()
	b.SetBytes(batches * each) // MB/s are millions of records
	for b.Loop() {
		records, _, err := decode("in", 0, raw)
		if err != nil || len(records) != batches*each {
			b.Fatalf("%d records, %v", len(records), err)
		}
		ours, _ := sift(records, []span{{0, batches*each - 1, 1}})
		for _, rs := range ours {
			c.gave(&lease{s: s, tp: tp, count: 1, deadline: time.Now().Add(time.Hour), waiting: rs, first: rs[0].Offset, last: rs[len(rs)-1].Offset})
		}
		for batch := c.handOut(time.Now()); batch != nil; batch = c.handOut(time.Now()) {
			batch.AcceptRest()
			c.plain(batch.records, false)
			batch.settle()
		}
		l := s.takeQueue(all)
		if topics := ackTopics(l.parts); len(topics) != 1 {
			b.Fatalf("%d topics", len(topics))
		}
	}
}

// Acknowledgements of 500 records: all alike, and no two neighbours alike.
func BenchmarkAcknowledgements(b *testing.B) {
	offsets := make([]int64, 500)
	for i := range offsets {
		offsets[i] = int64(i)
	}
	for name, verdict := range map[string]func(i int) acks.Type{
		"alike":       func(int) acks.Type { return acks.Accept },
		"alternating": func(i int) acks.Type { return []acks.Type{acks.Accept, acks.Reject}[i%2] },
	} {
		b.Run(name, func(b *testing.B) {
			c, s := bookkeeper()
			l := leaseOf(s, offsets...)
			c.gave(l)
			batch := c.handOut(time.Now())
			for i, r := range batch.records {
				r.verdict = verdict(i)
			}
			rs := slices.Clone(batch.records)
			b.ReportAllocs()
			for b.Loop() {
				c.plain(rs, false)
				l := s.takeQueue(all)
				_ = ackTopics(l.parts)
			}
		})
	}
}
