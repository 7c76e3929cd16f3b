package conformance

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// longLimit is for cases that wait for several locks.
const longLimit = 2 * time.Minute

// counts is how often records are delivered, and how often at most.
var counts = []Case{
	{Name: "counts/a release loop ends at the default limit", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1)
		for n := 2; n <= 5; n++ {
			x.Same("release", h.ack(ctx, "0:2"), int16(0))
			x.Same("handed out", h.again(ctx), span(0, 0, n))
		}
		x.Same("the last release", h.ack(ctx, "0:2"), int16(0))
		x.Same("archived", h.again(ctx), "")
		x.Same("nobody's", h.ack(ctx, "0:1"), int16(0)) // below the start
		x.Feed(ctx, h.topic, 0, 1)
		x.Same("the next record", h.first(ctx), "1..1x1")
	}},
	{Name: "counts/the last delivery can be accepted", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1)
		for n := 2; n <= 5; n++ {
			x.Same("release", h.ack(ctx, "0:2"), int16(0))
			x.Same("handed out", h.again(ctx), span(0, 0, n))
		}
		x.Same("accept", h.ack(ctx, "0:1"), int16(0))
	}},
	limitByGroup(2), limitByGroup(3), limitByGroup(10),
	{Name: "counts/a session's close is a delivery for nothing", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 3)
		for n := 2; n <= 3; n++ {
			_, err := h.s.CloseSession(ctx, nil)
			x.Must(err)
			x.Same("handed out", h.first(ctx), span(0, 2, n))
		}
	}},
	{Name: "counts/a cut connection is a delivery for nothing", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 3)
		h.cut(ctx, h.s)
		h.s.Epoch = 0
		x.Same("handed out", h.first(ctx), "0..2x2")
	}},
	{Name: "counts/expiry is a delivery for nothing", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1, "share.record.lock.duration.ms=1000")
		for n := 2; n <= 5; n++ {
			x.Same("handed out", h.first(ctx), span(0, 0, n))
		}
		testkit.Eventually(ctx, x, "the record is archived", func() bool { return h.offsets(ctx).Lag == 0 })
		x.Feed(ctx, h.topic, 0, 1)
		x.Same("the next record", h.first(ctx), "1..1x1")
	}},
	{Name: "counts/another member goes on counting", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 3)
		other := x.Holder(ctx, h.group, h.topic)
		x.Same("release", h.ack(ctx, "0..2:2"), int16(0))
		x.Same("handed out", other.again(ctx), "0..2x2")
		x.Same("release", other.ack(ctx, "0..2:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..2x3")
	}},
	{Name: "counts/ranges are told apart by counts", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 10)
		x.Same("release", h.ack(ctx, "0..3:2 6:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..3x2 6..6x2")
		x.Same("release", h.ack(ctx, "0..1:2 4..9:2"), int16(0))
		x.Feed(ctx, h.topic, 0, 2)
		x.Same("handed out", h.again(ctx), "0..1x3 4..5x2 6..6x3 7..9x2 10..11x1")
	}},
	{Name: "counts/poison is handed out apart", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 8)
		var all []string
		for got := span(0, 7, 1); got != ""; got = h.again(ctx) {
			all = append(all, got)
			x.Same("release", h.ack(ctx, releaseText(got)), int16(0))
		}
		x.Same("deliveries", all, []string{
			"0..7x1", "0..7x2", "0..7x3", "0..3x4", "0..0x5", "1..1x5", "2..2x5", "3..3x5", "4..7x4", "4..4x5", "5..5x5", "6..6x5", "7..7x5",
		})
	}},
	{Name: "counts/one poison record among good ones", Limit: longLimit, Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 8)
		var all []string
		for got := span(0, 7, 1); got != ""; got = h.again(ctx) {
			all = append(all, got)
			x.Same("release", h.ack(ctx, "3:2"), int16(0))
		}
		x.Same("deliveries", all, []string{"0..7x1", "3..3x2", "3..3x3", "3..3x4", "3..3x5"})
		x.Same("the others are held", h.ack(ctx, "0..2:1 4..7:1"), int16(0))
	}},
	{Name: "counts/a lower limit holds for what is in flight", Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.delivery.count.limit=2") {
			return
		}
		h := x.Held(ctx, 1)
		for n := 2; n <= 3; n++ {
			x.Same("release", h.ack(ctx, "0:2"), int16(0))
			x.Same("handed out", h.again(ctx), span(0, 0, n))
		}
		h.configure(ctx, "share.delivery.count.limit=2")
		x.Same("release", h.ack(ctx, "0:2"), int16(0))
		x.Same("archived", h.again(ctx), "")
	}},
	{Name: "counts/a higher limit holds for what is in flight", Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.delivery.count.limit=2") {
			return
		}
		h := x.Held(ctx, 1, "share.delivery.count.limit=2")
		x.Same("release", h.ack(ctx, "0:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..0x2")
		h.configure(ctx, "share.delivery.count.limit=4")
		x.Same("release", h.ack(ctx, "0:2"), int16(0))
		x.Same("handed out", h.again(ctx), "0..0x3")
	}},
	{Name: "counts/the limit archives by a session's close", Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.delivery.count.limit=2") {
			return
		}
		h := x.Held(ctx, 2, "share.delivery.count.limit=2")
		x.Same("release", h.ack(ctx, "0..1:2"), int16(0))
		x.Same("handed out", h.first(ctx), "0..1x2")
		_, err := h.s.CloseSession(ctx, nil)
		x.Must(err)
		x.Feed(ctx, h.topic, 0, 1)
		x.Same("the next record", h.first(ctx), "2..2x1")
	}},
}

// limitByGroup is the case of a limit that the group sets (KIP-1240, since 4.3).
func limitByGroup(limit int) Case {
	return Case{Name: fmt.Sprintf("counts/a limit of %d by group config", limit), Run: func(ctx context.Context, x *X) {
		if !x.knows(ctx, "share.delivery.count.limit=2") {
			return
		}
		h := x.Held(ctx, 1, fmt.Sprintf("share.delivery.count.limit=%d", limit))
		for n := 2; n <= limit; n++ {
			x.Same("release", h.ack(ctx, "0:2"), int16(0))
			x.Same("handed out", h.again(ctx), span(0, 0, n))
		}
		x.Same("the last release", h.ack(ctx, "0:2"), int16(0))
		x.Same("archived", h.again(ctx), "")
	}}
}

// knows tells whether groups have a config of KIP-1240, which came with 4.3;
// before, setting it must be refused.
func (x *X) knows(ctx context.Context, config string) bool {
	x.Helper()
	if x.Target.Version().Since(4, 3) {
		return true
	}
	k, v, _ := strings.Cut(config, "=")
	x.Same("code of setting "+config, x.AlterGroup(ctx, x.Fresh("g"), map[string]string{k: v}), int16(codeInvalidConfig))
	return false
}

// releaseText releases all that an acquiredText tells.
func releaseText(acquired string) string {
	var out string
	for _, r := range parseAcquired(acquired) {
		out += fmt.Sprintf("%d..%d:2 ", r.First, r.Last)
	}
	return out
}

// parseAcquired reads what acquiredText wrote.
func parseAcquired(text string) (out []byhand.Acquired) {
	for text != "" {
		var r byhand.Acquired
		var n int
		if _, err := fmt.Sscanf(text, "%d..%dx%d", &r.First, &r.Last, &r.Count); err != nil {
			panic(fmt.Sprintf("acquired %q: %v", text, err))
		}
		n = len(span(int(r.First), int(r.Last), int(r.Count)))
		text = text[min(len(text), n+1):]
		out = append(out, r)
	}
	return out
}
