package wire

import (
	"bytes"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"pgregory.net/rapid"
)

func text() *rapid.Generator[string] { return rapid.String().Filter(utf8.ValidString) }

func nullableText() *rapid.Generator[*string] {
	return rapid.OneOf(rapid.Just[*string](nil), rapid.Ptr(text(), false))
}

func topicID() *rapid.Generator[[16]byte] {
	return rapid.Custom(func(t *rapid.T) (id [16]byte) {
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic id"))
		return id
	})
}

// batch is valid, as only such are sent: a type for all or one each.
func batch(p Profile) *rapid.Generator[acks.AcknowledgementBatch] {
	types := rapid.Map(rapid.Int8(), func(v int8) acks.Type { return acks.Type(v) })
	return rapid.Custom(func(t *rapid.T) acks.AcknowledgementBatch {
		b := acks.AcknowledgementBatch{FirstOffset: rapid.Int64Range(0, 1<<62).Draw(t, "first")}
		if p == KIP93 || rapid.Bool().Draw(t, "one type") {
			b.LastOffset = b.FirstOffset + rapid.Int64Range(0, 1<<61).Draw(t, "more")
			b.Types = []acks.Type{types.Draw(t, "type")}
			return b
		}
		b.Types = rapid.SliceOfN(types, 1, 20).Draw(t, "types")
		b.LastOffset = b.FirstOffset + int64(len(b.Types)) - 1
		return b
	})
}

func request(p Profile) *rapid.Generator[*Request] {
	partition := rapid.Custom(func(t *rapid.T) RequestPartition {
		return RequestPartition{Partition: rapid.Int32().Draw(t, "partition"), Batches: rapid.SliceOfN(batch(p), 0, 5).Draw(t, "batches")}
	})
	topic := rapid.Custom(func(t *rapid.T) RequestTopic {
		return RequestTopic{TopicID: topicID().Draw(t, "id"), Partitions: rapid.SliceOfN(partition, 0, 4).Draw(t, "partitions")}
	})
	return rapid.Custom(func(t *rapid.T) *Request {
		return &Request{
			Profile:         p,
			TransactionalID: nullableText().Draw(t, "transactional id"),
			GroupID:         text().Draw(t, "group"),
			ProducerID:      rapid.Int64().Draw(t, "producer id"),
			ProducerEpoch:   rapid.Int16().Draw(t, "producer epoch"),
			MemberID:        text().Draw(t, "member"),
			MemberEpoch:     rapid.Int32().Draw(t, "member epoch"),
			Topics:          rapid.SliceOfN(topic, 0, 4).Draw(t, "topics"),
		}
	})
}

func response(p Profile) *rapid.Generator[*Response] {
	partition := rapid.Custom(func(t *rapid.T) ResponsePartition {
		out := ResponsePartition{
			Partition:    rapid.Int32().Draw(t, "partition"),
			ErrorCode:    rapid.Int16().Draw(t, "code"),
			ErrorMessage: nullableText().Draw(t, "message"),
		}
		if p == KIP93 && rapid.Bool().Draw(t, "leader known") {
			out.CurrentLeader = &CurrentLeader{rapid.Int32().Draw(t, "leader"), rapid.Int32().Draw(t, "leader epoch")}
		}
		return out
	})
	topic := rapid.Custom(func(t *rapid.T) ResponseTopic {
		return ResponseTopic{TopicID: topicID().Draw(t, "id"), Partitions: rapid.SliceOfN(partition, 0, 4).Draw(t, "partitions")}
	})
	return rapid.Custom(func(t *rapid.T) *Response {
		return &Response{
			Profile:        p,
			ThrottleMillis: rapid.Int32().Draw(t, "throttle"),
			ErrorCode:      rapid.Int16().Draw(t, "code"),
			Topics:         rapid.SliceOfN(topic, 0, 4).Draw(t, "topics"),
		}
	})
}

func TestRoundTrip(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	for _, p := range []Profile{Draft95, KIP93} {
		t.Run(p.String()+" request", rapid.MakeCheck(func(t *rapid.T) { roundTrip(t, request(p).Draw(t, "request")) }))
		t.Run(p.String()+" response", rapid.MakeCheck(func(t *rapid.T) { roundTrip(t, response(p).Draw(t, "response")) }))
	}
}

func roundTrip(t *rapid.T, m message) {
	src := m.AppendTo(nil)
	kept := bytes.Clone(src)
	back := blank(m)
	if err := back.ReadFrom(src); err != nil {
		t.Fatal(err)
	}
	for i := range src { // what was read must not live in the connection's buffer
		src[i] = 0xaa
	}
	if !equal(back, m) {
		t.Fatalf("read %+v, want %+v", back, m)
	}
	if !bytes.Equal(back.AppendTo(nil), kept) {
		t.Fatalf("written again it differs")
	}
}

// TestMixedTypesRoundTrip: what KIP93 sends says the same of each offset as
// what it was given.
func TestMixedTypesRoundTrip(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	rapid.Check(t, func(t *rapid.T) {
		var set acks.Set
		tp := acks.TopicIDPartition{TopicID: topicA}
		for o := range rapid.Int64Range(1, 60).Draw(t, "offsets") {
			if typ := rapid.SampledFrom([]acks.Type{acks.Gap, acks.Accept, acks.Accept, acks.Reject}).Draw(t, "type"); typ != acks.Gap {
				if err := set.Add(tp, o, typ); err != nil {
					t.Fatal(err)
				}
			}
		}
		req := &Request{Profile: KIP93, Topics: []RequestTopic{{TopicID: topicA, Partitions: []RequestPartition{{Batches: set.Map()[tp]}}}}}
		got := &Request{Profile: KIP93}
		if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		var back acks.Set
		if sent := got.Topics[0].Partitions[0].Batches; len(sent) > 0 {
			if err := back.AddBatches(tp, sent); err != nil { // valid, ascending, disjoint
				t.Fatal(err)
			}
		}
		if back.Len() != set.Len() || back.Merge(&set) != nil {
			t.Fatalf("sent %v, want %v", back.Map(), set.Map())
		}
	})
}
