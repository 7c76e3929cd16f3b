package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLapseIn(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		limit, since time.Duration
		busy         bool
		want         time.Duration
	}{
		"off":              {0, 24 * time.Hour, false, time.Hour},
		"off and busy":     {0, 24 * time.Hour, true, time.Hour},
		"just polled":      {time.Minute, 0, false, time.Minute},
		"some time ago":    {time.Minute, 50 * time.Second, false, 10 * time.Second},
		"exactly":          {time.Minute, time.Minute, false, 0},
		"too long ago":     {time.Minute, 90 * time.Second, false, -30 * time.Second},
		"at work for long": {time.Minute, 90 * time.Second, true, time.Minute},
	} {
		if got := lapseIn(c.limit, now.Add(-c.since), c.busy, now); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// Nobody polls: the member closes its sessions and leaves, in that order; what it
// held goes to others at once and is lost here, by name. The next poll joins
// again as the same member.
func TestLeavesWhenNobodyPolls(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 25*time.Second, &w)
	c.feedTo(ctx, t, 3, 1)
	var b beats
	b.watch(c)
	m := c.consumer(t, MaxPollInterval(300*time.Millisecond))
	rs := gather(ctx, t, m, 3)
	rs[0].Accept()
	testkit.Eventually(ctx, t, "all are available", func() bool {
		_, av, _, _ := c.totals()
		return av == 3
	})
	testkit.Eventually(ctx, t, "the member left", func() bool { return slices.Contains(w.events(), sharetxn.MemberLeft) })
	members := kept(&w, &w.members)
	if last := members[len(members)-1]; last.Event != sharetxn.MemberLeft || last.Err == nil || !strings.Contains(last.Err.Error(), "MaxPollInterval") {
		t.Errorf("last %+v", last)
	}
	if code := rawLeave(ctx, t, c, m.id); code == 0 {
		t.Error("the member was in the group still")
	}
	if !m.ShareGroupMetadata().IsZero() {
		t.Errorf("still %v", m.ShareGroupMetadata())
	}
	err := rs[0].batch.CommitSync(ctx)
	if re := recordsErrorIn(t, err); !errors.Is(err, sharetxn.ErrStale) || !slices.Equal(re.Offsets, []int64{0}) || !strings.Contains(err.Error(), "MaxPollInterval") {
		t.Errorf("CommitSync: %v", err)
	}
	if rs[1].Held() {
		t.Error("held still")
	}
	lost := kept(&w, &w.lost)
	if len(lost) != 1 || lost[0].Records != 3 || lost[0].Unpolled {
		t.Errorf("lost %+v", lost)
	}
	sessions := kept(&w, &w.sessions)
	if last := sessions[len(sessions)-1]; last.Event != sharetxn.SessionClosed {
		t.Errorf("last session event %+v", last)
	}
	again := gather(ctx, t, m, 3)
	for _, r := range again {
		if r.DeliveryCount() != 2 {
			t.Errorf("%s: delivery %d", where(r), r.DeliveryCount())
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.IndexFunc(b.seen, func(r *kmsg.ShareGroupHeartbeatRequest) bool { return r.MemberEpoch == leaveEpoch })
	if i < 0 {
		t.Fatal("no leave was sent")
	}
	j := i + slices.IndexFunc(b.seen[i:], func(r *kmsg.ShareGroupHeartbeatRequest) bool { return r.MemberID == m.id && r.MemberEpoch == 0 })
	if j < i || !slices.Equal(b.seen[j].SubscribedTopicNames, []string{"in"}) {
		t.Errorf("joined again with %+v", b.seen[i:])
	}
}

// Polling, a transaction, and KeepLocked each keep the member in its group; what
// a transaction holds is not disturbed, and the time runs from its end.
func TestWorkKeepsTheMember(t *testing.T) {
	const limit = 200 * time.Millisecond
	for name, work := range map[string]func(ctx context.Context, t *testing.T, m *Consumer, b *Batch) (end func()){
		"a poll waits": func(ctx context.Context, _ *testing.T, m *Consumer, _ *Batch) func() {
			ctx, cancel := context.WithCancel(ctx)
			done := make(chan struct{})
			go func() { defer close(done); _, _ = m.Poll(ctx) }()
			return func() { cancel(); <-done }
		},
		"a transaction holds a batch": func(_ context.Context, t *testing.T, _ *Consumer, b *Batch) func() {
			if err := b.Bind().Hold(); err != nil {
				t.Fatal(err)
			}
			return func() { b.Bind().Settle(bind.Settlement{Outcome: uint8(sharetxn.Aborted)}) }
		},
		"a transaction has frozen a batch": func(ctx context.Context, t *testing.T, _ *Consumer, b *Batch) func() {
			if err := b.Bind().Hold(); err != nil {
				t.Fatal(err)
			}
			b.AcceptRest()
			if _, err := b.Bind().Freeze(ctx); err != nil {
				t.Fatal(err)
			}
			return func() { b.Bind().Settle(bind.Settlement{Outcome: uint8(sharetxn.Aborted)}) }
		},
		"a batch is kept locked": func(_ context.Context, _ *testing.T, _ *Consumer, b *Batch) func() {
			b.KeepLocked(time.Minute)
			return func() { b.KeepLocked(0) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 30*time.Second)
			var w watcher
			c := startCluster(t, 25*time.Second, &w)
			c.feedTo(ctx, t, 1, 1)
			m := c.consumer(t, AcknowledgementMode(Transactional), MaxPollInterval(limit))
			b := poll(ctx, t, m)
			end := work(ctx, t, m, b)
			before := c.Traffic(keyShareBeat).Requests
			testkit.Eventually(ctx, t, "time passes", func() bool { return c.Traffic(keyShareBeat).Requests > before+8 }) // of 100 ms each, at least
			if slices.Contains(w.events(), sharetxn.MemberLeft) || !b.Records()[0].Held() {
				t.Fatal("the member left")
			}
			end()
			testkit.Eventually(ctx, t, "the member left afterwards", func() bool { return slices.Contains(w.events(), sharetxn.MemberLeft) })
		})
	}
}

// What is started by a poll joins, also if it looks at the time before the poll
// is noted: it has not been idle since the year 1.
func TestStartIsNoLapse(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 25*time.Second, &w)
	c.consumer(t, MaxPollInterval(time.Hour)).start()
	testkit.Eventually(ctx, t, "the member joined or left", func() bool { return len(w.events()) > 0 })
	if first := w.events()[0]; first != sharetxn.MemberJoined {
		t.Fatalf("it began with %v", first)
	}
}

// Without the option a member stays, however long nobody polls.
func TestStaysByDefault(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 25*time.Second, &w)
	c.feedTo(ctx, t, 1, 1)
	held := gather(ctx, t, c.consumer(t), 1)[0]
	before := c.Traffic(keyShareBeat).Requests
	testkit.Eventually(ctx, t, "time passes", func() bool { return c.Traffic(keyShareBeat).Requests > before+8 })
	if slices.Contains(w.events(), sharetxn.MemberLeft) || !held.Held() {
		t.Fatal("the member left")
	}
}

// A coordinator that does not answer the leave is not waited for longer than
// CloseTimeout; when it does, the member joins again behind it, and Close is in
// order.
func TestLeavesWithASilentCoordinator(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 25*time.Second, &w)
	c.feedTo(ctx, t, 1, 1)
	answers := make(chan struct{})
	silent := c.onKey(keyShareBeat, 1, func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareGroupHeartbeatRequest); !ok || req.MemberEpoch != leaveEpoch {
			return broker.Action{}
		}
		return broker.Action{Wait: answers}
	})
	m := c.consumer(t, MaxPollInterval(200*time.Millisecond), CloseTimeout(2*time.Second))
	gather(ctx, t, m, 1)
	testkit.Eventually(ctx, t, "the member gave up", func() bool { return slices.Contains(w.events(), sharetxn.MemberLeft) })
	if silent.Load() != 1 {
		t.Fatalf("%d leaves were held up", silent.Load())
	}
	close(answers)
	gather(ctx, t, m, 1) // and is back
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}
