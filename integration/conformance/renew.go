package conformance

import (
	"context"

	"github.com/sharetxn/sharetxn/integration/byhand"
)

// renewal is longer locks (KIP-1222) to their limits.
var renewal = []Case{
	{Name: "renew/alone changes nothing else", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("renew", h.renewing(ctx, "0..9:4"), int16(0))
		x.Same("still locked", h.again(ctx), "")
		x.Same("and again", h.renewing(ctx, "0..9:4"), int16(0))
		x.Same("accept", h.ack(ctx, "0..9:1"), int16(0))
		x.Same("nothing is left", h.again(ctx), "")
	}},
	{Name: "renew/counts no delivery", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		for range 7 {
			x.Same("renew", h.renewing(ctx, "0..9:4"), int16(0))
		}
		x.Same("release", h.ack(ctx, "0..9:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..9x2")
	}},
	{Name: "renew/mixed with others", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("code", h.renewing(ctx, "0..1:1 2..3:4 4..5:2 6..8:3,4,0"), int16(0))
		x.Same("handed out", h.again(ctx), "4..5x2")
		x.Same("what was renewed is held", h.ack(ctx, "2..3:1 7:1"), int16(0))
		x.Same("and what was not named", h.ack(ctx, "9:1"), int16(0))
	}},
	{Name: "renew/and decided in one request", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("renew first", h.renewing(ctx, "0..4:4 4..9:2"), int16(0))
		x.Same("handed out", h.again(ctx), "4..9x2")
	}},
	{Name: "renew/decided before it in one request", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("decide first", h.renewing(ctx, "0..4:2 4..9:4"), int16(codeRecordState))
		x.Same("all are held", h.ack(ctx, "0..9:1"), int16(0))
	}},
	{Name: "renew/IsRenewAck without a RENEW", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("code", h.renewing(ctx, "0..9:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..9x2")
	}},
	{Name: "renew/without IsRenewAck fails its partition", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("code", h.ack(ctx, "0..4:2 5..9:4"), int16(codeInvalidRequest))
		x.Same("nothing was released", h.again(ctx), "")
	}},
	{Name: "renew/of what is not held", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("accept", h.ack(ctx, "0..1:1 4:1"), int16(0))
		x.Same("below the start", h.renewing(ctx, "0..1:4"), int16(0))
		x.Same("accepted", h.renewing(ctx, "4:4"), int16(codeRecordState))
		x.Same("beyond", h.renewing(ctx, "10:4"), int16(codeInvalidRequest))
		x.Same("released", h.ack(ctx, "5:2"), int16(0))
		x.Same("available", h.renewing(ctx, "5:4"), int16(codeRecordState))
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("what the other gets", other.again(ctx), "5..5x2")
		x.Same("another's", other.renewing(ctx, "2:4"), int16(codeRecordState))
		x.Same("the holder's", h.renewing(ctx, "2..3:4"), int16(0))
	}},
	{Name: "renew/holds what would have expired", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=4000")
		other := x.Holder(ctx, h.group, h.topic)
		for lost := int64(0); lost < 5; { // the rest expires, maybe one by one
			x.Same("renew", h.renewing(ctx, "0..4:4"), int16(0))
			for _, r := range parseAcquired(other.again(ctx)) {
				lost += r.Last - r.First + 1
			}
		}
		x.Same("renewed", h.ack(ctx, "0..4:1"), int16(0))
		x.Same("not renewed", h.ack(ctx, "5..9:1"), int16(codeRecordState))
	}},
	{Name: "renew/after expiry", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=1000")
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("handed to another", other.gather(ctx, 10), "0..9x2")
		x.Same("too late", h.renewing(ctx, "0..9:4"), int16(codeRecordState))
	}},
	{Name: "renew/a lock that was renewed expires too", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=1000")
		x.Same("renew", h.renewing(ctx, "0..9:4"), int16(0))
		x.Same("handed out", h.gather(ctx, 10), "0..9x2")
	}},
	{Name: "renew/riding on a fetch of nothing", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Feed(ctx, h.topic, 0, 5)
		got, err := h.s.Fetch(ctx, byhand.Fetch{IsRenewAck: true, Acks: map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..4:4 5..9:2")}})
		x.Must(err)
		part := got.Parts[h.part]
		x.Same("codes", []int16{got.Code, part.Code, part.AckCode}, []int16{0, 0, 0})
		x.Same("acquired", acquiredText(part.Acquired), "")
		x.Same("handed out", h.again(ctx), "5..9x2 10..14x1")
	}},
	{Name: "renew/riding on a fetch without IsRenewAck", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		got, err := h.s.Fetch(ctx, byhand.Fetch{Acks: map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:4")}})
		x.Must(err)
		x.Same("codes", []int16{got.Code, got.Parts[h.part].AckCode}, []int16{0, codeInvalidRequest})
	}},
	renewLimit("max wait", byhand.Fetch{MaxWait: 1}),
	renewLimit("min bytes", byhand.Fetch{MinBytes: 1}),
	renewLimit("max bytes", byhand.Fetch{MaxBytes: 1}),
	renewLimit("max records", byhand.Fetch{MaxRecords: 1}),
	{Name: "renew/batch size is no limit", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		got, err := h.s.Fetch(ctx, byhand.Fetch{IsRenewAck: true, BatchSize: 7, Acks: map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:4")}})
		x.Must(err)
		x.Same("codes", []int16{got.Code, got.Parts[h.part].AckCode}, []int16{0, 0})
	}},
	{Name: "renew/switched off for the group", Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.renew.acknowledge.enable=false") {
			return
		}
		h := x.Held(ctx, 10, "share.renew.acknowledge.enable=false")
		x.Same("renew", h.renewing(ctx, "0..9:4"), int16(codeRecordState))
		x.Same("nor among others", h.renewing(ctx, "0..4:2 5:4"), int16(codeRecordState))
		x.Same("all are held", h.ack(ctx, "0..4:1"), int16(0))
		h.configure(ctx, "share.renew.acknowledge.enable=true")
		x.Same("switched on again", h.renewing(ctx, "5..9:4"), int16(0))
	}},
	{Name: "renew/a longer lock than the first", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=15000")
		h.configure(ctx, "share.record.lock.duration.ms=45000")
		got, err := h.s.Acknowledge(ctx, map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:4")}, true)
		x.Must(err)
		x.Same("code", got.Parts[h.part], int16(0))
		x.Same("lock told", got.LockMillis, int32(45000))
	}},
}

// renewLimit is the case of a renewing fetch with a limit that is not zero.
func renewLimit(what string, f byhand.Fetch) Case {
	return Case{Name: "renew/riding on a fetch with " + what, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		f.IsRenewAck, f.Acks = true, map[byhand.Partition][]byhand.Ack{h.part: parseAcks("0..9:4")}
		got, err := h.s.Fetch(ctx, f)
		x.Must(err)
		x.Same("code", got.Code, int16(codeInvalidRequest))
		x.Same("the session's epoch did not move", h.ack(ctx, "0..9:1"), int16(0))
	}}
}
