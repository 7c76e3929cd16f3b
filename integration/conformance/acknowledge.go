package conformance

import (
	"context"

	"github.com/sharetxn/sharetxn/integration/byhand"
)

// Codes of acknowledgements.
const (
	codeUnknownPartition = 3
	codeInvalidRequest   = 42
	codeUnknownTopicID   = 100
	codeRecordState      = 121
)

// acknowledge is what becomes of acknowledgements (KIP-932, ShareAcknowledge
// and what rides on ShareFetch).
var acknowledge = append([]Case{
	// Ten records in one batch, all acquired by one member: what acknowledging
	// answers, and what is handed out afterwards.
	ackRow("accept", "0..9:1", 0, ""),
	ackRow("release hands the records out again", "0..9:2", 0, "0..9x2"),
	ackRow("reject", "0..9:3", 0, ""),
	ackRow("a gap that is none archives the record", "0..9:0", 0, ""),
	ackRow("one type for each offset", "0..9:1,2,3,0,1,2,1,1,2,2", 0, "1..1x2 5..5x2 8..9x2"),
	ackRow("several ranges of different types", "0..1:1 2..3:2 4..5:3 6..7:0 8..9:2", 0, "2..3x2 8..9x2"),
	ackRow("ranges with holes between", "1:2 5..6:2", 0, "1..1x2 5..6x2"),
	ackRow("a range of one offset with its type in a list", "4..4:2", 0, "4..4x2"),
	ackRow("equal types in a list", "2..4:2,2,2", 0, "2..4x2"),
	ackRow("a list for one range and one type for another", "0..1:1,2 2..9:1", 0, "1..1x2"),
	ackRow("first offset behind the last", "5..4:1", codeInvalidRequest, ""),
	ackRow("an offset below -1", "-2..3:2", codeInvalidRequest, ""),
	ackRow("offset -1 is below the start", "-1..3:2", 0, "0..3x2"),
	ackRow("no types", "0..9:", codeInvalidRequest, ""),
	ackRow("too few types", "0..9:1,1,1", codeInvalidRequest, ""),
	ackRow("too many types", "0..1:1,1,1", codeInvalidRequest, ""),
	ackRow("two types for one offset", "0:1,1", codeInvalidRequest, ""),
	ackRow("an unknown type", "0:5", codeInvalidRequest, ""),
	ackRow("a negative type", "0:-1", codeInvalidRequest, ""),
	ackRow("an unknown type in a list", "0..2:1,5,1", codeInvalidRequest, ""),
	ackRow("RENEW without IsRenewAck", "0:4", codeInvalidRequest, ""),
	ackRow("ranges out of order", "5..9:1 0..4:1", codeInvalidRequest, ""),
	ackRow("ranges that overlap", "0..4:1 3..9:1", codeInvalidRequest, ""),
	ackRow("a range from the last offset of the one before", "0..4:2 4..9:2", codeRecordState, ""),
	ackRow("the same range twice", "0..9:1 0..9:1", codeInvalidRequest, ""),
	ackRow("one bad form fails good ranges before it", "0..4:2 5..9:7", codeInvalidRequest, ""),
	ackRow("beyond what was ever acquired", "10..12:1", codeInvalidRequest, ""),
	ackRow("across the end of what was acquired", "5..10:2", codeInvalidRequest, ""),
	ackRow("beyond the end fails good ranges before it", "0..4:2 20..22:1", codeInvalidRequest, ""),
}, []Case{
	{Name: "acknowledge/twice below the start offset", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("first", h.ack(ctx, "0..4:1"), int16(0))
		x.Same("again", h.ack(ctx, "0..4:1"), int16(0))
		x.Same("as another type", h.ack(ctx, "0..4:2"), int16(0))
		x.Same("handed out", h.again(ctx), "")
	}},
	{Name: "acknowledge/twice within the window", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("first", h.ack(ctx, "5..6:1"), int16(0))
		x.Same("again", h.ack(ctx, "5..6:1"), int16(codeRecordState))
		x.Same("within a longer range", h.ack(ctx, "4..7:1"), int16(codeRecordState))
		x.Same("its neighbours are still held", h.ack(ctx, "4:1 7:1"), int16(0))
	}},
	{Name: "acknowledge/twice a release", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("first", h.ack(ctx, "3..4:2"), int16(0))
		x.Same("again", h.ack(ctx, "3..4:2"), int16(codeRecordState))
		x.Same("handed out", h.again(ctx), "3..4x2")
	}},
	{Name: "acknowledge/across the start offset", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("first", h.ack(ctx, "0..4:1"), int16(0))
		x.Same("the part above counts", h.ack(ctx, "2..6:2"), int16(0))
		x.Same("handed out", h.again(ctx), "5..6x2")
	}},
	{Name: "acknowledge/everything done and once more", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("first", h.ack(ctx, "0..9:1"), int16(0))
		x.Same("again", h.ack(ctx, "0..9:1"), int16(0))
		x.Same("beyond", h.ack(ctx, "10:1"), int16(codeRecordState))
	}},
	{Name: "acknowledge/across the end when everything is done", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("accept", h.ack(ctx, "0..9:1"), int16(0))
		got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{h.part: parseAcks("5..10:1")}, false)
		x.Must(err)
		x.Differs("codes of answer and partition", "the broker's own failure", []int16{got.Code, got.Parts[h.part]}, []int16{-1, 0}, []int16{0, codeRecordState})
	}},
	{Name: "acknowledge/no ranges", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		stranger := Topic{"", [16]byte{1, 2, 3}}
		got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{h.part: nil, h.topic.Part(7): nil, stranger.Part(0): nil}, false)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("only bad ones are told", got.Parts, map[byhand.Partition]int16{h.topic.Part(7): codeUnknownPartition, stranger.Part(0): codeUnknownTopicID})
		x.Same("an answer to nothing at all", h.ackNothing(ctx), map[byhand.Partition]int16{})
	}},
	{Name: "acknowledge/what was never acquired", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 10)
		f := byhand.NewFetch(h.part)
		f.MaxRecords, f.RecordLimit = 4, true
		part := x.Until(ctx, h.s, f, h.part)
		x.Same("acquired", acquiredText(part.Acquired), "0..3x1")
		x.Same("across", h.ack(ctx, "2..5:1"), int16(codeRecordState))
		x.Same("beyond", h.ack(ctx, "4..5:1"), int16(codeRecordState))
		x.Same("what is held", h.ack(ctx, "0..3:1"), int16(0))
		x.Same("handed out", h.again(ctx), "4..9x1")
	}},
	{Name: "acknowledge/of another member", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("the other has nothing", other.again(ctx), "")
		for _, text := range []string{"0..9:1", "0..9:2", "0..9:3", "0..9:0", "4:1"} {
			x.Same(text, other.ack(ctx, text), int16(codeRecordState))
		}
		x.Same("the holder", h.ack(ctx, "0..9:1"), int16(0))
	}},
	{Name: "acknowledge/partly of another member", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 10)
		other := x.Holder(ctx, h.group, h.topic)
		f := byhand.NewFetch(h.part)
		f.MaxRecords, f.RecordLimit = 5, true
		x.Same("one", acquiredText(x.Until(ctx, h.s, f, h.part).Acquired), "0..4x1")
		x.Same("other", other.again(ctx), "5..9x1")
		x.Same("across both", h.ack(ctx, "3..6:1"), int16(codeRecordState))
		x.Same("good range before the other's", h.ack(ctx, "0..4:2 5:1"), int16(codeRecordState))
		x.Same("own", h.ack(ctx, "0..4:1"), int16(0))
		x.Same("the other's", other.ack(ctx, "5..9:1"), int16(0))
	}},
	{Name: "acknowledge/of a record released and taken by another", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("release", h.ack(ctx, "2..3:2"), int16(0))
		x.Same("other", other.again(ctx), "2..3x2")
		x.Same("not any more", h.ack(ctx, "2..3:1"), int16(codeRecordState))
		x.Same("the other", other.ack(ctx, "2..3:1"), int16(0))
	}},
	{Name: "acknowledge/after expiry", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=1000")
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("handed to another", acquiredText(x.Until(ctx, other.s, byhand.NewFetch(h.part), h.part).Acquired), "0..9x2")
		x.Same("too late", h.ack(ctx, "0..9:1"), int16(codeRecordState))
		x.Same("too late to release", h.ack(ctx, "0..9:2"), int16(codeRecordState))
	}},
	{Name: "acknowledge/after another session of the member", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		h.s.Epoch = 0 // opening again does not release
		x.Same("still locked", h.again(ctx), "")
		x.Same("still ours", h.ack(ctx, "0..9:1"), int16(0))
	}},
	{Name: "acknowledge/one bad range fails its partition only", Run: func(ctx context.Context, x *X) {
		t, group := x.Topic(ctx, 3), x.Group(ctx)
		for i := range int32(3) {
			x.Feed(ctx, t, i, 10)
		}
		m := x.Joined(ctx, group, 3, t.Name)
		s := m.Session(x.Leader(ctx, t, 0))
		for i := range int32(3) {
			x.Until(ctx, s, byhand.NewFetch(t.Part(i)), t.Part(i))
		}
		got, err := s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{
			t.Part(0): parseAcks("0..9:2"), t.Part(1): parseAcks("0..3:2 5..20:1"), t.Part(2): parseAcks("0..9:9"),
		}, false)
		x.Must(err)
		x.Same("code", got.Code, int16(0))
		x.Same("codes", got.Parts, map[byhand.Partition]int16{t.Part(0): 0, t.Part(1): codeInvalidRequest, t.Part(2): codeInvalidRequest})
		again, err := s.Fetch(ctx, byhand.NewFetch())
		x.Must(err)
		x.Same("released", acquiredText(again.Parts[t.Part(0)].Acquired), "0..9x2")
		x.Same("not released", acquiredText(again.Parts[t.Part(1)].Acquired), "")
		x.Same("nor this", acquiredText(again.Parts[t.Part(2)].Acquired), "")
	}},
	{Name: "acknowledge/unknown topics and partitions", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		stranger := Topic{"", [16]byte{1, 2, 3}}
		got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{
			h.part: parseAcks("0..4:1"), h.topic.Part(7): parseAcks("0..4:1"), stranger.Part(0): parseAcks("0..4:1"),
		}, false)
		x.Must(err)
		x.Same("codes", got.Parts, map[byhand.Partition]int16{h.part: 0, h.topic.Part(7): codeUnknownPartition, stranger.Part(0): codeUnknownTopicID})
	}},
	{Name: "acknowledge/of a partition that was never fetched", Run: func(ctx context.Context, x *X) {
		t, group := x.Topic(ctx, 2), x.Group(ctx)
		x.Feed(ctx, t, 0, 10)
		m := x.Joined(ctx, group, 2, t.Name)
		s := m.Session(x.Leader(ctx, t, 0))
		x.Until(ctx, s, byhand.NewFetch(t.Part(0)), t.Part(0))
		got, err := s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{t.Part(0): parseAcks("0..9:1"), t.Part(1): parseAcks("0..9:1")}, false)
		x.Must(err)
		x.Same("codes", got.Parts, map[byhand.Partition]int16{t.Part(0): 0, t.Part(1): codeUnknownPartition})
	}},
	{Name: "acknowledge/riding on a fetch", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		f := byhand.NewFetch()
		f.Acks = map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..4:1 5..9:2")}
		got, err := h.s.Fetch(ctx, f)
		x.Must(err)
		x.Same("codes", []int16{got.Code, got.Parts[h.part].Code, got.Parts[h.part].AckCode}, []int16{0, 0, 0})
		back := acquiredText(got.Parts[h.part].Acquired)
		if back == "" { // what it released may be there only after the answer
			back = h.first(ctx)
		}
		x.Same("what it released comes back", back, "5..9x2")
	}},
	{Name: "acknowledge/riding on a fetch and refused", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Feed(ctx, h.topic, 0, 5)
		f := byhand.NewFetch()
		f.Acks = map[byhand.Partition][]byhand.Ack{h.part: parseAcks("5..9:1 0..4:2")}
		got, err := h.s.Fetch(ctx, f)
		x.Must(err)
		x.Same("codes", []int16{got.Code, got.Parts[h.part].Code, got.Parts[h.part].AckCode}, []int16{0, 0, codeInvalidRequest})
		x.Same("the fetch goes on", acquiredText(got.Parts[h.part].Acquired), "10..14x1")
	}},
	{Name: "acknowledge/riding on a fetch of nothing", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Feed(ctx, h.topic, 0, 5)
		f := byhand.Fetch{Acks: map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:1")}}
		got, err := h.s.Fetch(ctx, f)
		x.Must(err)
		part, told := got.Parts[h.part]
		x.Same("codes", []int16{got.Code, part.Code, part.AckCode}, []int16{0, 0, 0})
		x.Same("told and nothing acquired", []any{told, acquiredText(part.Acquired)}, []any{true, ""})
		x.Same("the rest comes after", h.again(ctx), "10..14x1")
	}},
	{Name: "acknowledge/riding on the fetch that opens a session", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		epoch := h.s.Epoch
		h.s.Epoch = 0
		f := byhand.NewFetch()
		f.Acks = map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:1")}
		got, err := h.s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(codeInvalidRequest))
		h.s.Epoch = epoch
		x.Same("the old session goes on", h.ack(ctx, "0..9:1"), int16(0))
	}},
	{Name: "acknowledge/with the last epoch", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		got, err := h.s.CloseSession(ctx, map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..4:1 5:3")})
		x.Must(err)
		x.Same("codes", []int16{got.Code, got.Parts[h.part]}, []int16{0, 0})
		x.Same("the rest comes back", h.first(ctx), "6..9x2")
	}},
	{Name: "acknowledge/the answer tells the lock", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=17000")
		got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0:1")}, false)
		x.Must(err)
		x.Same("milliseconds", got.LockMillis, int32(17000))
	}},
}...)

// ackRow is a case: ten records in one batch, all held by a member with one
// lock; the code of one acknowledgement, and what the next fetch hands out.
func ackRow(what, text string, code int16, again string) Case {
	return Case{Name: "acknowledge/" + what, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("code", h.ack(ctx, text), code)
		x.Same("handed out afterwards", h.again(ctx), again)
	}}
}
