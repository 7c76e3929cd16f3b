package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fetch is what ShareFetch hands out (KIP-932, KIP-1206).
var fetch = slices.Concat([]Case{
	{Name: "fetch/the limit of records is soft: whole batches", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 4, 4, 4)
		f := byhand.NewFetch(p)
		f.MaxRecords = 1
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		f.MaxRecords = 5
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 4, Last: 11, Count: 1})
	}},
	{Name: "fetch/record_limit hands out not one more", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 10, 2)
		f := byhand.NewFetch(p)
		f.RecordLimit = true
		for _, step := range []struct {
			most        int32
			first, last int
		}{{1, 0, 0}, {3, 1, 3}, {7, 4, 10}, {7, 11, 11}} {
			f.MaxRecords = step.most
			x.Same("acquired", acquiredText(x.Until(ctx, s, f, p).Acquired), span(step.first, step.last, 1)) // cut where the broker likes
		}
	}},
	{Name: "fetch/record_limit sends the whole batch all the same", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 4)
		f := byhand.NewFetch(p)
		f.RecordLimit, f.MaxRecords = true, 2
		got := x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.Same("records sent", Offsets(got.Records), []int64{0, 1, 2, 3})
		got = x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 2, Last: 3, Count: 1})
		x.Same("records sent then", Offsets(got.Records), []int64{0, 1, 2, 3})
	}},
	{Name: "fetch/two members with record_limit share a batch", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, a, p := x.batches(ctx, group, 5)
		f := byhand.NewFetch(p)
		f.RecordLimit, f.MaxRecords = true, 2
		b := x.At(ctx, group, t, 0)
		x.TakeWith(ctx, a, f, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.TakeWith(ctx, b, f, p, byhand.Acquired{First: 2, Last: 3, Count: 1})
		x.TakeWith(ctx, a, f, p, byhand.Acquired{First: 4, Last: 4, Count: 1})
		x.Same("code of one's own", x.Ack(ctx, b, p, 2, 3, accept), int16(0))
		x.Same("code of the other's", x.Ack(ctx, b, p, 4, 4, accept), kerr.InvalidRecordState.Code)
	}},
	batchSize(1, byhand.Acquired{First: 0, Last: 3, Count: 1}, byhand.Acquired{First: 4, Last: 7, Count: 1}, byhand.Acquired{First: 8, Last: 11, Count: 1}),
	batchSize(4, byhand.Acquired{First: 0, Last: 3, Count: 1}, byhand.Acquired{First: 4, Last: 7, Count: 1}, byhand.Acquired{First: 8, Last: 11, Count: 1}),
	batchSize(5, byhand.Acquired{First: 0, Last: 7, Count: 1}, byhand.Acquired{First: 8, Last: 11, Count: 1}),
	batchSize(100, byhand.Acquired{First: 0, Last: 11, Count: 1}),
	{Name: "fetch/a limit of no records acquires none", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 2)
		f := byhand.NewFetch(p)
		f.MaxRecords = 0
		for range 3 {
			got, err := s.Fetch(ctx, f)
			x.Must(err)
			x.Same("code", got.Code, int16(0))
			x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired(nil))
		}
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
	}},
	{Name: "fetch/a limit of no records still acknowledges", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		f := byhand.NewFetch()
		f.MaxRecords, f.Acks = 0, one(p, 0, 1, release)
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code of the acknowledgement", got.Parts[p].AckCode, int16(0))
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired(nil))
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 2})
	}},
	{Name: "fetch/one that finds nothing waits, and is woken by records", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		got := x.parked(ctx, s, p, func() { x.Feed(ctx, t, 0, 1) })
		want := byhand.Acquired{First: 1, Last: 1, Count: 1}
		if len(got.Parts[p].Acquired) == 0 { // woken, and not served: a busy broker had the partition in use
			x.Take(ctx, s, p, want)
			return
		}
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired{want})
	}},
	{Name: "fetch/what another member releases meanwhile is handed out in the end", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		// Kafka wakes no fetch for it: those that wait find it when their time is over.
		got := x.waiting(ctx, x.At(ctx, group, t, 0), p, 1000, func() { x.Same("code", x.Ack(ctx, s, p, 0, 1, release), int16(0)) })
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired{{First: 0, Last: 1, Count: 2}})
	}},
	{Name: "fetch/what another member's session gives back meanwhile is handed out in the end", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		t, s, p := x.batches(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		got := x.waiting(ctx, x.At(ctx, group, t, 0), p, 1000, func() {
			closed, err := s.CloseSession(ctx, nil)
			x.Must(err)
			x.Same("code of closing", closed.Code, int16(0))
		})
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired{{First: 0, Last: 1, Count: 2}})
	}},
	{Name: "fetch/one that waits is woken by the end of a lock", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx, "share.record.lock.duration.ms=1000")
		t, s, p := x.batches(ctx, group, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		got := x.parked(ctx, x.At(ctx, group, t, 0), p, func() {})
		x.Same("acquired", got.Parts[p].Acquired, []byhand.Acquired{{First: 0, Last: 1, Count: 2}})
	}},
	{Name: "fetch/records are handed out when the time is over, though they are few", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 2)
		f := byhand.NewFetch(p)
		f.MinBytes, f.MaxWait = 10<<20, 300
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
	}},
	{Name: "fetch/enough records end the wait", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.FeedValues(ctx, t, 0, bytes.Repeat([]byte("x"), 2000))
		f := byhand.NewFetch(p)
		f.MinBytes, f.MaxWait = 1000, 3600_000
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 1, Last: 1, Count: 1})
	}},
	{Name: "fetch/no wait is asked for and there is nothing", Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		f := byhand.NewFetch(p)
		f.MaxWait = 0
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("partitions answered", len(got.Parts), 0)
	}},
	{Name: "fetch/the first batch is sent though it is larger than the limit of bytes", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		for range 2 {
			x.FeedValues(ctx, t, 0, bytes.Repeat([]byte("x"), 50_000))
		}
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		f := byhand.NewFetch(p)
		f.MaxBytes = 1000
		for i := range int64(2) {
			got := x.TakeWith(ctx, s, f, p, byhand.Acquired{First: i, Last: i, Count: 1})
			x.Same("records sent", Offsets(got.Records), []int64{i})
		}
	}},
	{Name: "fetch/as many batches as the limit of bytes holds", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		for range 4 {
			x.FeedValues(ctx, t, 0, bytes.Repeat([]byte("x"), 10_000))
		}
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		f := byhand.NewFetch(p)
		f.MaxBytes = 25_000
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 2, Last: 3, Count: 1})
	}},
	{Name: "fetch/records handed back come first", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 5)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 4, Count: 1})
		for _, offset := range []int64{1, 3} {
			x.Same("code of a release", x.Ack(ctx, s, p, offset, offset, release), int16(0))
		}
		x.Feed(ctx, t, 0, 2)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 2}, byhand.Acquired{First: 3, Last: 3, Count: 2}, byhand.Acquired{First: 5, Last: 6, Count: 1})
		x.Same("records sent", Offsets(got.Records), []int64{0, 1, 2, 3, 4, 5, 6})
	}},
	{Name: "fetch/two partitions of two topics in one answer", Run: func(ctx context.Context, x *X) {
		a, b := x.Topic(ctx, 2), x.Topic(ctx, 1)
		parts := []byhand.Partition{a.Part(0), a.Part(1), b.Part(0)}
		x.Feed(ctx, a, 0, 2)
		x.Feed(ctx, a, 1, 3)
		x.Feed(ctx, b, 0, 4)
		s := x.Reader(ctx, x.Group(ctx), 3, a, b)
		have := make(map[byhand.Partition][]byhand.Acquired)
		for len(have) < 3 { // those whose state is loaded are answered first
			got, err := s.Fetch(ctx, byhand.NewFetch(parts...))
			x.Must(err)
			for p, part := range got.Parts {
				if len(part.Acquired) > 0 {
					have[p] = append(have[p], part.Acquired...)
				}
			}
		}
		for i, p := range parts {
			x.Same(fmt.Sprint("acquired of partition ", i), have[p], []byhand.Acquired{{First: 0, Last: int64(i) + 1, Count: 1}})
			x.Same(fmt.Sprint("code of accepting partition ", i), x.Ack(ctx, s, p, 0, int64(i)+1, accept), int16(0))
		}
	}},
	{Name: "fetch/no partition starves another", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 3)
		for p := range int32(3) {
			for range 6 {
				x.Feed(ctx, t, p, 1)
			}
		}
		s := x.Reader(ctx, x.Group(ctx), 3, t)
		f := byhand.NewFetch(t.Part(0), t.Part(1), t.Part(2))
		f.MaxRecords = 1
		served := make(map[byhand.Partition]bool)
		for range 9 {
			got, err := s.Fetch(ctx, f)
			x.Must(err)
			for p, part := range got.Parts {
				if len(part.Acquired) > 0 {
					served[p] = true
				}
			}
		}
		x.Same("partitions served", len(served), 3)
	}},
	{Name: "fetch/an unknown topic id", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 1)
		unknown := byhand.Partition{Topic: [16]byte{15: 9, 0: 9}}
		x.meansNothing(ctx, s, unknown)
		x.Same("code with an acknowledgement", x.Ack(ctx, s, unknown, 0, 0, accept), kerr.UnknownTopicID.Code)
		if x.Target.Version().Since(4, 4) {
			x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1}) // beside it
		}
		beyond := t.Part(7)
		got := x.Until(ctx, x.At(ctx, x.Group(ctx), t, 0), byhand.NewFetch(beyond), beyond)
		x.Same("code of a partition that is not there", got.Code, kerr.UnknownTopicOrPartition.Code)
	}},
	{Name: "fetch/a topic that was deleted", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		_, err := x.Adm.DeleteTopic(ctx, t.Name)
		x.Must(err)
		testkit.Eventually(ctx, x, "the topic is gone", func() bool {
			return x.Ack(ctx, s, p, 0, 1, gap) == kerr.UnknownTopicID.Code
		})
		got, err := s.Fetch(ctx, byhand.NewFetch())
		x.Must(err)
		if x.Target.Version().Since(4, 4) {
			x.Same("code in the session that knew it", got.Parts[p].Code, kerr.UnknownTopicOrPartition.Code)
		} else {
			x.Same("code of the whole answer", got.Code, kerr.UnknownServerError.Code)
		}
		x.meansNothing(ctx, x.Member(x.Group(ctx), t.Name).Session(s.Node), p)
	}},
	{Name: "fetch/what a record is made of", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		want := []*kgo.Record{
			{Key: []byte("k"), Value: []byte("v"), Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "a", Value: []byte("2")}, {Key: "", Value: nil}}},
			{Key: nil, Value: []byte("no key")},
			{Key: []byte("no value"), Value: nil},
			{Key: []byte{}, Value: []byte{}},
			{Key: nil, Value: nil},
		}
		for _, r := range want {
			r.Topic = t.Name
		}
		x.Must(x.Client.ProduceSync(ctx, want...).FirstErr())
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 4, Count: 1})
		for i, r := range got.Records {
			x.Same(fmt.Sprintf("record %d", i), fmt.Sprintf("%#v %#v %#v %d", r.Key, r.Value, r.Headers, r.Timestamp.UnixMilli()),
				fmt.Sprintf("%#v %#v %#v %d", want[i].Key, want[i].Value, want[i].Headers, want[i].Timestamp.UnixMilli()))
		}
	}},
	{Name: "fetch/a record of a megabyte, and one that is too large", Run: func(ctx context.Context, x *X) {
		t, large := x.Topic(ctx, 1), x.Topic(ctx, 1, "max.message.bytes=3000000")
		producer := x.Producer(kgo.ProducerBatchMaxBytes(4<<20), kgo.ProducerBatchCompression(kgo.NoCompression()))
		send := func(t Topic, size int) error {
			return producer.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Value: bytes.Repeat([]byte("x"), size)}).FirstErr()
		}
		x.Must(send(t, 1_000_000))
		x.Same("two megabytes are refused", errors.Is(send(t, 2_000_000), kerr.MessageTooLarge), true)
		x.Must(send(large, 2_000_000))
		s := x.Reader(ctx, x.Group(ctx), 2, t, large)
		for _, step := range []struct {
			t    Topic
			size int
		}{{t, 1_000_000}, {large, 2_000_000}} {
			f := byhand.NewFetch(step.t.Part(0))
			f.MaxBytes = 1000
			got := x.TakeWith(ctx, s, f, step.t.Part(0), byhand.Acquired{First: 0, Last: 0, Count: 1})
			x.Same("records", len(got.Records), 1)
			x.Same("size", len(got.Records[0].Value), step.size)
		}
	}},
	{Name: "fetch/the log's start moves under what is available", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 2, 2, 2)
		x.deleteRecords(ctx, t, 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 5, Count: 1})
	}},
	{Name: "fetch/the log's start moves under what is acquired", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 2, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		x.deleteRecords(ctx, t, 2)
		x.Feed(ctx, t, 0, 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 4, Count: 1})
		x.Same("code below the start", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
		x.Same("code above it", x.Ack(ctx, s, p, 2, 3, accept), int16(0))
	}},
	{Name: "fetch/the log's start moves into a batch", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 10, 2)
		x.deleteRecords(ctx, t, 4)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 11, Count: 1})
		x.Same("records sent", Offsets(got.Records), []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	}},
	{Name: "fetch/the log's start moves into a batch that came back", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 10)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 9, Count: 1})
		x.Same("code of a release", x.Ack(ctx, s, p, 0, 7, release), int16(0))
		x.deleteRecords(ctx, t, 4)
		x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 7, Count: 2})
	}},
	{Name: "fetch/the log's start moves into a batch of which some is acquired", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 10)
		f := byhand.NewFetch(p)
		f.MaxRecords, f.RecordLimit = 3, true
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 2, Count: 1})
		x.deleteRecords(ctx, t, 6)
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 6, Last: 8, Count: 1})
		x.Same("code below the start", x.Ack(ctx, s, p, 0, 5, accept), int16(0))
		x.Same("code above it", x.Ack(ctx, s, p, 6, 8, accept), int16(0))
	}},
	{Name: "fetch/the log's start moves into a batch behind all that is acquired", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 10, 10, 10)
		f := byhand.NewFetch(p)
		f.MaxRecords = 6
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 0, Last: 9, Count: 1})
		x.deleteRecords(ctx, t, 14)
		got := x.Until(ctx, s, f, p)
		x.Differs("acquired", "Kafka hands such a batch out from its first offset on, the embedded broker nothing below the log's start",
			acquiredText(got.Acquired), "10..19x1", "14..19x1")
		x.Same("code below the start", x.Ack(ctx, s, p, 0, 9, accept), int16(0))
		x.Same("code of what was acquired", x.Ack(ctx, s, p, got.Acquired[0].First, 19, accept), int16(0))
		x.TakeWith(ctx, s, f, p, byhand.Acquired{First: 20, Last: 29, Count: 1})
	}},
	{Name: "fetch/what is given back below the log's start is not handed out again", Run: func(ctx context.Context, x *X) {
		t, s, p := x.batches(ctx, x.Group(ctx), 2, 2)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		x.deleteRecords(ctx, t, 2)
		x.Feed(ctx, t, 0, 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 4, Count: 1})
		x.Same("code of a release across the start", x.Ack(ctx, s, p, 0, 3, release), int16(0))
		x.Take(ctx, s, p, byhand.Acquired{First: 2, Last: 3, Count: 2})
	}},
	{Name: "fetch/a compacted log has gaps", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1, "cleanup.policy=compact", "min.cleanable.dirty.ratio=0.01", "segment.ms=100", "min.compaction.lag.ms=0", "delete.retention.ms=100")
		value := func(key string) {
			x.Must(x.Client.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Key: []byte(key), Value: []byte("v")}).FirstErr())
		}
		for _, key := range []string{"a", "b", "a", "a", "c"} {
			value(key)
		}
		last := int64(4)
		testkit.Eventually(ctx, x, "offsets 0 and 2 are gone", func() bool {
			value("end") // rolls the segment
			last++
			offsets := x.readLog(ctx, t, 5)
			return !slices.Contains(offsets, 0) && !slices.Contains(offsets, 2) && slices.Contains(offsets, 3)
		})
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		f := byhand.NewFetch(p)
		f.RecordLimit, f.MaxRecords = true, 4
		got := x.Until(ctx, s, f, p)
		x.Same("acquired", got.Acquired, []byhand.Acquired{{First: 1, Last: 4, Count: 1}})
		x.Same("code of accepting records and acknowledging the gap", x.ackAll(ctx, s, p,
			byhand.Ack{First: 1, Last: 1, Types: []int8{accept}}, byhand.Ack{First: 2, Last: 2, Types: []int8{gap}}, byhand.Ack{First: 3, Last: 4, Types: []int8{accept}}), int16(0))
	}},
}, codecs(), transactional)

// batchSize acquires three batches of four records with a batch size.
func batchSize(size int32, want ...byhand.Acquired) Case {
	return Case{Name: fmt.Sprint("fetch/ranges of three batches of 4 with batch size ", size), Run: func(ctx context.Context, x *X) {
		_, s, p := x.batches(ctx, x.Group(ctx), 4, 4, 4)
		f := byhand.NewFetch(p)
		f.BatchSize = size
		x.TakeWith(ctx, s, f, p, want...)
	}}
}

// codecs reads what was compressed in each way.
func codecs() (out []Case) {
	for _, c := range []struct {
		name  string
		codec kgo.CompressionCodec
	}{
		{"nothing", kgo.NoCompression()}, {"gzip", kgo.GzipCompression()}, {"snappy", kgo.SnappyCompression()},
		{"lz4", kgo.Lz4Compression()}, {"zstd", kgo.ZstdCompression()},
	} {
		out = append(out, Case{Name: "fetch/compressed with " + c.name, Run: func(ctx context.Context, x *X) {
			t := x.Topic(ctx, 1)
			producer := x.Producer(kgo.ProducerBatchCompression(c.codec), kgo.ProducerLinger(0))
			var rs []*kgo.Record
			for i := range 50 {
				rs = append(rs, &kgo.Record{Topic: t.Name, Value: []byte(strings.Repeat(fmt.Sprint(i, " "), 100))})
			}
			x.Must(producer.ProduceSync(ctx, rs...).FirstErr())
			s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
			got := x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 49, Count: 1})
			x.Same("records", len(got.Records), len(rs))
			for i, r := range got.Records {
				x.Same(fmt.Sprint("value ", i), string(r.Value), string(rs[i].Value))
			}
			x.Same("code of accepting", x.Ack(ctx, s, p, 0, 49, accept), int16(0))
		}})
	}
	return out
}

// transactional is what becomes of transactions' records and markers, under both
// isolation levels (share.isolation.level).
var transactional = []Case{
	{Name: "fetch/a marker is acquired as a gap behind its records", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 3, kgo.TryCommit)
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		x.Same("records and markers sent", marked(got.Records), "0 1 2 3m")
		x.Same("code", x.ackAll(ctx, s, p, byhand.Ack{First: 0, Last: 2, Types: []int8{accept}}, byhand.Ack{First: 3, Last: 3, Types: []int8{gap}}), int16(0))
	}},
	{Name: "fetch/a marker may be accepted like a record", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 3, kgo.TryCommit)
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		x.Same("code", x.Ack(ctx, s, p, 0, 3, accept), int16(0))
	}},
	{Name: "fetch/a marker that is not acknowledged comes back alone", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 3, kgo.TryCommit)
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 3, Count: 1})
		_, err := s.CloseSession(ctx, one(p, 0, 2, accept))
		x.Must(err)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 3, Last: 3, Count: 2})
		x.Same("records and markers sent", marked(got.Records), "3m")
	}},
	{Name: "fetch/aborted records are delivered by default", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 2, kgo.TryAbort)
		x.Feed(ctx, t, 0, 2)
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 4, Count: 1})
		x.Same("records and markers sent", marked(got.Records), "0 1 2m 3 4")
	}},
	{Name: "fetch/aborted records are not acquired with read_committed", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 1)
		x.transaction(ctx, t, 2, kgo.TryAbort)
		x.Feed(ctx, t, 0, 2)
		s, p := x.Reader(ctx, x.Group(ctx, "share.isolation.level=read_committed"), 1, t), t.Part(0)
		got := x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1}, byhand.Acquired{First: 3, Last: 5, Count: 1})
		x.Same("records and markers sent", marked(got.Records), "0 1 2 3m 4 5")
		x.Same("code of accepting", x.ackAll(ctx, s, p, byhand.Ack{First: 0, Last: 0, Types: []int8{accept}}, byhand.Ack{First: 3, Last: 5, Types: []int8{accept}}), int16(0))
		x.TakeNone(ctx, s, p)
	}},
	{Name: "fetch/two transactions side by side, one aborted, with read_committed", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		a, b := x.begun(ctx), x.begun(ctx)
		for range 2 {
			x.produceIn(ctx, a, t)
			x.produceIn(ctx, b, t)
		}
		x.Must(a.EndTransaction(ctx, kgo.TryAbort))
		x.Must(b.EndTransaction(ctx, kgo.TryCommit))
		s, p := x.Reader(ctx, x.Group(ctx, "share.isolation.level=read_committed"), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 1}, byhand.Acquired{First: 3, Last: 5, Count: 1})
	}},
	{Name: "fetch/an open transaction holds back what follows with read_committed", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.Feed(ctx, t, 0, 1)
		a := x.begun(ctx)
		x.produceIn(ctx, a, t)
		x.Feed(ctx, t, 0, 1)
		s, p := x.Reader(ctx, x.Group(ctx, "share.isolation.level=read_committed"), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.TakeNone(ctx, s, p)
		got := x.parked(ctx, s, p, func() { x.Must(a.EndTransaction(ctx, kgo.TryCommit)) })
		x.Same("acquired after the commit", got.Parts[p].Acquired, []byhand.Acquired{{First: 1, Last: 3, Count: 1}})
	}},
	{Name: "fetch/an open transaction's records are delivered by default", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		a := x.begun(ctx)
		x.produceIn(ctx, a, t)
		s, p := x.Reader(ctx, x.Group(ctx), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 0, Count: 1})
		x.Must(a.EndTransaction(ctx, kgo.TryAbort))
		got := x.Take(ctx, s, p, byhand.Acquired{First: 1, Last: 1, Count: 1})
		x.Same("records and markers sent", marked(got.Records), "1m")
		x.Same("code of accepting what was aborted", x.Ack(ctx, s, p, 0, 1, accept), int16(0))
	}},
	{Name: "fetch/only aborted records with read_committed", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 3, kgo.TryAbort)
		s, p := x.Reader(ctx, x.Group(ctx, "share.isolation.level=read_committed"), 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 3, Last: 3, Count: 1})
		x.Same("code of the gap", x.Ack(ctx, s, p, 3, 3, gap), int16(0))
		x.Feed(ctx, t, 0, 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 4, Last: 4, Count: 1})
	}},
	{Name: "fetch/the isolation level is changed under a group", Run: func(ctx context.Context, x *X) {
		t := x.Topic(ctx, 1)
		x.transaction(ctx, t, 1, kgo.TryAbort)
		group := x.Group(ctx)
		s, p := x.Reader(ctx, group, 1, t), t.Part(0)
		x.Take(ctx, s, p, byhand.Acquired{First: 0, Last: 1, Count: 1})
		x.GroupConfigs(ctx, group, "share.isolation.level=read_committed")
		x.transaction(ctx, t, 1, kgo.TryAbort)
		x.Feed(ctx, t, 0, 1)
		x.Take(ctx, s, p, byhand.Acquired{First: 3, Last: 4, Count: 1})
	}},
}

// meansNothing fetches from a partition whose topic id means nothing to a session.
// Before Kafka 4.4 that fails the whole fetch, and the session goes on.
func (x *X) meansNothing(ctx context.Context, s *byhand.Session, p byhand.Partition) {
	x.Helper()
	got, err := s.Fetch(ctx, byhand.NewFetch(p))
	x.Must(err)
	if !x.Target.Version().Since(4, 4) {
		x.Same("code of the whole answer", got.Code, kerr.UnknownServerError.Code)
		s.Epoch++
		return
	}
	x.Same("code of the answer", got.Code, int16(0))
	x.Same("code of the topic id", got.Parts[p].Code, kerr.UnknownTopicID.Code)
}

// batches gives a topic of one partition with batches of so many records, and the
// session of the group's first member with its leader.
func (x *X) batches(ctx context.Context, group string, sizes ...int) (Topic, *byhand.Session, byhand.Partition) {
	x.Helper()
	t := x.Topic(ctx, 1)
	for _, n := range sizes {
		x.Feed(ctx, t, 0, n)
	}
	return t, x.Reader(ctx, group, 1, t), t.Part(0)
}

// FeedValues produces records with those values to one partition, in one batch
// that is not compressed.
func (x *X) FeedValues(ctx context.Context, t Topic, partition int32, values ...[]byte) {
	x.Helper()
	var rs []*kgo.Record
	for _, v := range values {
		rs = append(rs, &kgo.Record{Topic: t.Name, Partition: partition, Value: v})
	}
	x.Must(x.Producer(kgo.ProducerBatchCompression(kgo.NoCompression())).ProduceSync(ctx, rs...).FirstErr())
}

// Producer makes another client that produces to partitions by hand.
func (x *X) Producer(opts ...kgo.Opt) *kgo.Client {
	x.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(x.Target.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DisableClientMetrics(),
	}, opts...)...)
	x.Must(err)
	x.Cleanup(cl.Close)
	return cl
}

// begun makes a transactional producer with an open transaction.
func (x *X) begun(ctx context.Context) *kgo.Client {
	x.Helper()
	cl := x.Producer(kgo.TransactionalID(x.Fresh("id")))
	_, _, err := cl.ProducerID(ctx)
	x.Must(err)
	x.Must(cl.BeginTransaction())
	return cl
}

// produceIn produces one record to partition 0.
func (x *X) produceIn(ctx context.Context, cl *kgo.Client, t Topic) {
	x.Helper()
	x.Must(cl.ProduceSync(ctx, &kgo.Record{Topic: t.Name, Value: []byte("in a transaction")}).FirstErr())
}

// transaction produces n records in one batch to partition 0 in a transaction, and
// ends it.
func (x *X) transaction(ctx context.Context, t Topic, n int, end kgo.TransactionEndTry) {
	x.Helper()
	cl := x.begun(ctx)
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: t.Name, Value: fmt.Append(nil, i)})
	}
	x.Must(cl.ProduceSync(ctx, rs...).FirstErr())
	x.Must(cl.EndTransaction(ctx, end))
	testkit.Eventually(ctx, x, "the marker is written", func() bool {
		ends, err := x.Adm.ListCommittedOffsets(ctx, t.Name)
		all, err2 := x.Adm.ListEndOffsets(ctx, t.Name)
		if err != nil || err2 != nil {
			return false
		}
		stable, _ := ends.Lookup(t.Name, 0)
		end, _ := all.Lookup(t.Name, 0)
		return stable.Offset == end.Offset && end.Offset > rs[n-1].Offset+1
	})
}

// parked has a fetch wait for up to an hour, does something meanwhile, and gives
// the answer.
func (x *X) parked(ctx context.Context, s *byhand.Session, p byhand.Partition, do func()) byhand.Fetched {
	x.Helper()
	return x.waiting(ctx, s, p, 3600_000, do)
}

// waiting is parked with a wait of so many milliseconds.
func (x *X) waiting(ctx context.Context, s *byhand.Session, p byhand.Partition, wait int32, do func()) byhand.Fetched {
	x.Helper()
	if s.Epoch == 0 {
		x.Opens(ctx, s, p)
	}
	type answer struct {
		got byhand.Fetched
		err error
	}
	answered := make(chan answer, 1)
	f := byhand.NewFetch(p)
	f.MaxWait = wait
	go func() {
		got, err := s.Fetch(ctx, f)
		answered <- answer{got, err}
	}()
	do()
	a := <-answered
	x.Must(a.err)
	x.Same("code of the fetch that waited", a.got.Code, int16(0))
	return a.got
}

// ackAll acknowledges several ranges of one partition at once and gives its code.
func (x *X) ackAll(ctx context.Context, s *byhand.Session, p byhand.Partition, ranges ...byhand.Ack) int16 {
	x.Helper()
	got, err := s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{p: ranges}, false)
	x.Must(err)
	x.Same("code of the acknowledgement's answer", got.Code, int16(0))
	return got.Parts[p]
}

// marked are offsets, those of markers with an m.
func marked(rs []*kgo.Record) string {
	var out []string
	for _, r := range rs {
		s := fmt.Sprint(r.Offset)
		if r.Attrs.IsControl() {
			s += "m"
		}
		out = append(out, s)
	}
	return strings.Join(out, " ")
}

// deleteRecords moves the start of partition 0's log.
func (x *X) deleteRecords(ctx context.Context, t Topic, to int64) {
	x.Helper()
	at := kadm.Offsets{}
	at.Add(kadm.Offset{Topic: t.Name, Partition: 0, At: to})
	resps, err := x.Adm.DeleteRecords(ctx, at)
	x.Must(err)
	x.Must(resps.Error())
}

// readLog reads the first offsets of partition 0's log, as an ordinary consumer.
func (x *X) readLog(ctx context.Context, t Topic, below int64) (out []int64) {
	x.Helper()
	cl := x.Producer(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{t.Name: {0: kgo.NewOffset().AtStart()}}), kgo.FetchMaxWait(10*time.Millisecond))
	defer cl.Close()
	for len(out) == 0 || out[len(out)-1] < below {
		fs := cl.PollFetches(ctx)
		x.Must(fs.Err())
		fs.EachRecord(func(r *kgo.Record) { out = append(out, r.Offset) })
	}
	return out
}
