package conformance

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn/integration/byhand"
)

// locks is how many records may be acquired at a time and for how long.
var locks = []Case{
	{Name: "locks/expiry hands to another member", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10, "share.record.lock.duration.ms=1000")
		x.Same("accept some", h.ack(ctx, "0..2:1 5:1"), int16(0))
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("the rest", other.gather(ctx, 6), "3..4x2 6..9x2")
		x.Same("accept", other.ack(ctx, "3..4:1 6..9:1"), int16(0))
	}},
	{Name: "locks/the answers tell the group's", Run: func(ctx context.Context, x *X) {
		h := x.Fed(ctx, 1)
		for _, millis := range []int32{30000, 15000, 60000, 1000} {
			if millis != 30000 {
				h.configure(ctx, fmt.Sprintf("share.record.lock.duration.ms=%d", millis))
			}
			got, err := h.s.Fetch(ctx, byhand.Fetch{})
			x.Must(err)
			x.Same("fetch", got.LockMillis, millis)
			acked, err := h.s.Acknowledge(ctx, nil, false)
			x.Must(err)
			x.Same("acknowledge", acked.LockMillis, millis)
		}
	}},
	{Name: "locks/a shorter one holds for new acquisitions only", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 5)
		h.configure(ctx, "share.record.lock.duration.ms=1000")
		x.Feed(ctx, h.topic, 0, 5)
		x.Same("new", h.first(ctx), "5..9x1")
		x.Same("expired", h.first(ctx), "5..9x2")
		x.Same("older ones are held", h.ack(ctx, "0..4:1"), int16(0))
	}},
	{Name: "locks/their number is soft for whole batches", Run: func(ctx context.Context, x *X) {
		h := x.locksOf100(ctx)
		if h == nil {
			return
		}
		for range 4 {
			x.Feed(ctx, h.topic, 0, 70)
		}
		x.Same("first", h.first(ctx), "0..139x1")
		x.Same("no more", h.again(ctx), "")
		x.Same("accept one", h.ack(ctx, "0:1"), int16(0))
		x.Same("no more", h.again(ctx), "")
		x.Same("accept some", h.ack(ctx, "1..59:1"), int16(0))
		x.Same("room for one batch", h.again(ctx), "140..209x1")
	}},
	{Name: "locks/one batch of more", Run: func(ctx context.Context, x *X) {
		h := x.locksOf100(ctx)
		if h == nil {
			return
		}
		x.Feed(ctx, h.topic, 0, 250)
		x.Same("all of it", h.first(ctx), "0..249x1")
		x.Same("accept most", h.ack(ctx, "0..248:1"), int16(0))
		x.Feed(ctx, h.topic, 0, 1)
		x.Same("the next", h.again(ctx), "250..250x1")
	}},
	{Name: "locks/a batch cut by a record limit is in the window as a whole", Run: func(ctx context.Context, x *X) {
		h := x.locksOf100(ctx)
		if h == nil {
			return
		}
		x.Feed(ctx, h.topic, 0, 250)
		x.Feed(ctx, h.topic, 0, 10)
		f := byhand.NewFetch(h.part)
		f.RecordLimit = true
		x.Same("as many as locks", acquiredText(x.Until(ctx, h.s, f, h.part).Acquired), "0..99x1")
		x.Same("the rest of the batch", h.againWith(ctx, f), "100..249x1")
		x.Same("no more", h.againWith(ctx, f), "")
		x.Same("accept", h.ack(ctx, "0..154:1"), int16(0))
		x.Same("room for five", h.againWith(ctx, f), "250..254x1")
	}},
	{Name: "locks/a full window still hands out what came back", Run: func(ctx context.Context, x *X) {
		h := x.locksOf100(ctx)
		if h == nil {
			return
		}
		x.Feed(ctx, h.topic, 0, 100)
		x.Feed(ctx, h.topic, 0, 100)
		x.Same("first", h.first(ctx), "0..99x1")
		x.Same("release", h.ack(ctx, "20..29:2"), int16(0))
		x.Same("they come alone", h.again(ctx), "20..29x2")
	}},
	{Name: "locks/of each partition", Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.partition.max.record.locks=100") {
			return
		}
		t, group := x.Topic(ctx, 2), x.Group(ctx, "share.partition.max.record.locks=100")
		for i := range int32(2) {
			x.Feed(ctx, t, i, 100)
			x.Feed(ctx, t, i, 100)
		}
		m := x.Joined(ctx, group, 2, t.Name)
		s := m.Session(x.Leader(ctx, t, 0))
		have := map[int32]string{}
		for len(have) < 2 {
			got, err := s.Fetch(ctx, byhand.NewFetch(t.Part(0), t.Part(1)))
			x.Must(err)
			for i := range int32(2) {
				if text := acquiredText(got.Parts[t.Part(i)].Acquired); text != "" {
					have[i] += text
				}
			}
		}
		x.Same("acquired", have, map[int32]string{0: "0..99x1", 1: "0..99x1"})
	}},
	{Name: "locks/more by a new config", Run: func(ctx context.Context, x *X) {
		h := x.locksOf100(ctx)
		if h == nil {
			return
		}
		for range 3 {
			x.Feed(ctx, h.topic, 0, 100)
		}
		x.Same("first", h.first(ctx), "0..99x1")
		x.Same("no more", h.again(ctx), "")
		h.configure(ctx, "share.partition.max.record.locks=200")
		x.Same("more", h.again(ctx), "100..199x1")
	}},
}

// locksOf100 is a holder in a group with the fewest locks; nil where no group
// can set them.
func (x *X) locksOf100(ctx context.Context) *held {
	x.Helper()
	if !x.knows(ctx, "share.partition.max.record.locks=100") {
		return nil
	}
	t, group := x.Topic(ctx, 1), x.Group(ctx, "share.partition.max.record.locks=100")
	return x.Holder(ctx, group, t)
}
