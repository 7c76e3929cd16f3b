package conformance

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/twmb/franz-go/pkg/kgo"
)

// parked is what wakes a fetch that waits for records. They wait for longer than
// a case may take: what does not wake them fails the case.
var parked = []Case{
	{Name: "parked/a new record wakes", Run: func(ctx context.Context, x *X) {
		w := x.wait(ctx, x.Group(ctx))
		x.Feed(ctx, w.topic, 0, 1)
		x.Same("handed out", w.answer(ctx), "3..3x1")
	}},
	{Name: "parked/the end of another member's lock wakes", Run: func(ctx context.Context, x *X) {
		w := x.wait(ctx, x.Group(ctx, "share.record.lock.duration.ms=5000"))
		x.Same("handed out", w.answer(ctx), "0..2x2")
	}},
	{Name: "parked/a moved last stable offset wakes", Run: func(ctx context.Context, x *X) {
		w := x.wait(ctx, x.Group(ctx, "share.isolation.level=read_committed"))
		cl := x.Producer(kgo.TransactionalID(x.Fresh("id")))
		x.Must(cl.BeginTransaction())
		x.Must(cl.ProduceSync(ctx, &kgo.Record{Topic: w.topic.Name, Value: []byte("committed")}).FirstErr())
		x.Must(cl.EndTransaction(ctx, kgo.TryCommit))
		x.Same("handed out", w.answer(ctx), "3..4x1")
	}},
	givenBack("a release", func(ctx context.Context, x *X, w *waiter) {
		x.Same("release", x.Ack(ctx, w.holder, w.part, 0, 2, release), int16(0))
	}),
	givenBack("a release that rides on a fetch", func(ctx context.Context, x *X, w *waiter) {
		f := byhand.NewFetch()
		f.MaxWait, f.MaxRecords, f.Acks = 0, 0, one(w.part, 0, 2, release)
		got, err := w.holder.Fetch(ctx, f)
		x.Must(err)
		x.Same("release", got.Parts[w.part].AckCode, int16(0))
	}),
	givenBack("a closed session", func(ctx context.Context, x *X, w *waiter) {
		closed, err := w.holder.CloseSession(ctx, nil)
		x.Must(err)
		x.Same("code of closing", closed.Code, int16(0))
	}),
	givenBack("a cut connection", func(_ context.Context, _ *X, w *waiter) { w.holder.Member().CutConnections() }),
}

// givenBack is the case of something that gives the holder's records back. Kafka
// looks for parked fetches before it has written that, and again only when they
// are over: another member may be faster.
func givenBack(what string, do func(ctx context.Context, x *X, w *waiter)) Case {
	return Case{Name: "parked/what " + what + " gives back", Run: func(ctx context.Context, x *X) {
		const attempts = 5 // a fetch may come too late to be parked
		for range attempts {
			w := x.wait(ctx, x.Group(ctx))
			do(ctx, x, w)
			if woke := w.woken(ctx); woke == x.Target.Embedded() {
				x.Differs("wakes", "the embedded broker wakes parked fetches when something came back, Kafka just before", woke, false, true)
				return
			}
		}
		x.Errorf("%d attempts, and each went as on the other kind of broker", attempts)
	}}
}

// waiter is a member with a parked fetch of a partition, of which another one
// holds all three records.
type waiter struct {
	x      *X
	topic  Topic
	part   byhand.Partition
	group  string
	holder *byhand.Session
	got    chan byhand.Fetched
}

// wait returns when the fetch was sent and the holder has had some answers since.
// That it is parked by then is likely and not sure: nothing tells.
func (x *X) wait(ctx context.Context, group string) *waiter {
	x.Helper()
	w := &waiter{x: x, group: group, got: make(chan byhand.Fetched, 1)}
	w.topic, w.holder, w.part = x.Filled(ctx, group, 3)
	x.Take(ctx, w.holder, w.part, byhand.Acquired{First: 0, Last: 2, Count: 1})
	s := x.At(ctx, group, w.topic, 0)
	x.Opens(ctx, s, w.part)
	go func() {
		f := byhand.NewFetch()
		f.MaxWait = int32((10 * time.Minute).Milliseconds())
		got, err := s.Fetch(ctx, f)
		if err == nil { // else the case is over
			w.got <- got
		}
	}()
	const some = 20
	for range some {
		got, err := w.holder.Acknowledge(ctx, nil, false)
		x.Must(err)
		x.Same("code of acknowledging nothing", got.Code, int16(0))
	}
	return w
}

// answer is what the parked fetch brings in the end.
func (w *waiter) answer(ctx context.Context) string {
	w.x.Helper()
	select {
	case got := <-w.got:
		w.x.Same("code", got.Code, int16(0))
		return acquiredText(got.Parts[w.part].Acquired)
	case <-ctx.Done():
		w.x.Fatalf("the parked fetch was never woken: %v", context.Cause(ctx))
		return ""
	}
}

// woken tells whether what the holder gave back went to the parked fetch, or
// whether somebody else who asks can have it. On the embedded broker nobody else
// asks, who could be faster than what is woken.
func (w *waiter) woken(ctx context.Context) bool {
	w.x.Helper()
	if w.x.Target.Embedded() {
		w.x.Same("handed out to who waited", w.answer(ctx), "0..2x2")
		return true
	}
	other := w.x.At(ctx, w.group, w.topic, 0)
	w.x.Opens(ctx, other, w.part)
	for {
		select {
		case got := <-w.got:
			if have := acquiredText(got.Parts[w.part].Acquired); have != "" { // else it came too late for them
				w.x.Same("handed out to who waited", have, "0..2x2")
				return true
			}
		default:
		}
		f := byhand.NewFetch()
		f.MaxWait = 0
		got, err := other.Fetch(ctx, f)
		w.x.Must(err)
		if have := acquiredText(got.Parts[w.part].Acquired); have != "" {
			w.x.Same("handed out to somebody else", have, "0..2x2")
			return false
		}
	}
}
