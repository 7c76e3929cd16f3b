package shareconsumer

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDueOf(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const lock = 8 * time.Second
	now := time.Unix(1000, 0)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	failed := &ackJob{at: in(-time.Second / 2)}
	for name, c := range map[string]struct {
		l    lease
		due  bool
		next time.Time
	}{
		"fresh":              {lease{deadline: in(lock)}, false, in(lock / 2)},
		"half over":          {lease{deadline: in(lock / 2)}, true, time.Time{}},
		"over":               {lease{deadline: in(-1)}, true, time.Time{}},
		"lost":               {lease{deadline: in(1), lost: errAgain}, false, time.Time{}},
		"not to be had":      {lease{deadline: in(1), noRenew: true}, false, time.Time{}},
		"no broker for it":   {lease{deadline: in(1), s: &session{noRenew: true}}, false, time.Time{}},
		"under way":          {lease{deadline: in(1), renewal: &ackJob{left: 1}}, false, time.Time{}},
		"failed just now":    {lease{deadline: in(1), renewal: failed}, false, in(lock/8 - time.Second/2)},
		"failed a while ago": {lease{deadline: in(1), renewal: &ackJob{at: in(-lock)}}, true, time.Time{}},
	} {
		if c.l.s == nil {
			c.l.s = &session{}
		}
		var next time.Time
		due := dueOf([]*Record{{lease: &c.l}, {lease: &c.l}}, lock, now, func(at time.Time) { next = at })
		if (len(due) == 2) != c.due || !next.Equal(c.next) {
			t.Errorf("%s: due %v, next %v", name, len(due), next)
		}
	}
}

// renewals counts the requests that renew.
func (c *cluster) renewals() *atomic.Int32 {
	var n atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareAcknowledgeRequest); ok && req.IsRenewAck {
			n.Add(1)
		}
		return broker.Action{}
	})
	return &n
}

// Records that wait to be polled use up no delivery while the caller works on
// a batch for longer than the lock.
func TestBufferedRecordsAreRenewed(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 30*time.Second)
	const lock = 2 * time.Second // a loaded machine must be able to renew in time
	c := startCluster(t, lock)
	const n = 12
	c.feedTo(ctx, t, n, 1)
	renewals := c.renewals()
	m := c.consumer(t, MaxPollRecords(4))
	first := poll(ctx, t, m)
	began, seen := time.Now(), first.Len()
	first.AcceptRest()
	if err := first.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "a lock and a half pass", func() bool { return time.Since(began) > lock+lock/2 })
	if renewals.Load() == 0 {
		t.Fatal("nothing was renewed")
	}
	for seen < n {
		b := poll(ctx, t, m)
		for _, r := range b.Records() {
			if r.DeliveryCount() != 1 {
				t.Fatalf("%s: delivery %d", where(r), r.DeliveryCount())
			}
		}
		b.AcceptRest()
		seen += b.Len()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, n)
}

// What waits to be polled is not kept from others after a fatal error, however
// often the caller polls.
func TestNothingIsKeptAfterAFatalError(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, time.Second)
	c.feedTo(ctx, t, 8, 1)
	m := c.consumer(t, MaxPollRecords(4))
	poll(ctx, t, m)
	m.setFatal(errors.New("refused for good"))
	testkit.Eventually(ctx, t, "what nobody can poll is given back", func() bool {
		if _, err := m.Poll(ctx); err == nil {
			t.Fatal("polled after a fatal error")
		}
		state, _, _, ok := c.StateOf("g", "in", 0, 7)
		return ok && state == share.Available
	})
}

// KeepLocked renews an open batch, and stops.
func TestKeepLocked(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 30*time.Second)
	const lock = 2 * time.Second // a loaded machine must be able to renew in time
	c := startCluster(t, lock)
	c.feedTo(ctx, t, 2, 1)
	renewals := c.renewals()
	b := poll(ctx, t, c.consumer(t))
	first := b.Deadline()
	b.KeepLocked(2 * lock)
	testkit.Eventually(ctx, t, "the lock runs out after all", func() bool {
		_, av, _, _ := c.totals()
		return av == 2
	})
	if moved := b.Deadline().Sub(first); renewals.Load() < 2 || moved < lock || moved > 3*lock {
		t.Fatalf("renewed %d times, the deadline moved by %v", renewals.Load(), moved)
	}
}

func TestRenewByHand(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	b := poll(ctx, t, c.consumer(t))
	before := b.Deadline()
	if err := b.Renew(ctx); err != nil || !b.Deadline().After(before) {
		t.Fatalf("%v, the deadline moved by %v", err, b.Deadline().Sub(before))
	}
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("a settled batch was renewed: %v", err)
	}
}

// A group that does not allow renewals loses nothing by our asking: the locks
// run, their deadlines stay true, and the batch can be frozen while they last.
func TestGroupWithoutRenewals(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 6*time.Second)
	if err := c.SetGroupConfig("g", map[string]string{"share.renew.acknowledge.enable": "false"}); err != nil {
		t.Fatal(err)
	}
	c.feedTo(ctx, t, 20, 1)
	renewals := c.renewals()
	m := c.consumer(t, AcknowledgementMode(Transactional))
	b := poll(ctx, t, m)
	deadline := b.Deadline()
	h := b.Bind()
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	b.AcceptRest()
	testkit.Eventually(ctx, t, "renewing was tried and given up", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return b.records[0].lease.noRenew
	})
	f, err := h.Freeze(ctx)
	if err != nil || f.Records != 20 || !f.LockUntil.Equal(deadline) {
		t.Fatalf("%d records until %v, %v", f.Records, f.LockUntil, err)
	}
	if n := renewals.Load(); n == 0 || n > 40 {
		t.Fatalf("%d renewals sent", n)
	}
}

// A broker that does not know renewals (version 1) is not asked again.
func TestBrokerWithoutRenewals(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	const lock = 600 * time.Millisecond
	c := startCluster(t, lock)
	c.feedTo(ctx, t, 2, 1)
	var refused atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareAcknowledgeRequest)
		if !ok || !req.IsRenewAck {
			return broker.Action{}
		}
		refused.Add(1)
		return broker.Action{Answer: ackAnswer(req, kerr.InvalidRequest.Code)}
	})
	m := c.consumer(t, AcknowledgementMode(Transactional))
	b := poll(ctx, t, m)
	if err := b.Bind().Hold(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the lock runs out", func() bool {
		_, av, _, _ := c.totals()
		return av == 2
	})
	if refused.Load() != 1 {
		t.Fatalf("asked %d times", refused.Load())
	}
}

// Freeze waits for a renewal under way, wherever its record has moved since.
func TestFreezeWaitsForRenewals(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t, AcknowledgementMode(Transactional))
	b := poll(ctx, t, m)
	free, held := make(chan struct{}), make(chan struct{})
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareAcknowledgeRequest); ok && req.IsRenewAck {
			close(held)
			return broker.Action{Wait: free}
		}
		return broker.Action{}
	})
	renewed := make(chan error)
	go func() { renewed <- b.Renew(ctx) }()
	<-held
	part, err := b.Split(b.Records()[0])
	if err != nil {
		t.Fatal(err)
	}
	h := part.Bind()
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	part.AcceptRest()
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	if _, err := h.Freeze(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("frozen while a renewal is under way: %v", err)
	}
	close(free)
	if err := <-renewed; err != nil {
		t.Fatal(err)
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	part.AcceptRest()
	if f, err := h.Freeze(ctx); err != nil || f.Records != 1 {
		t.Fatalf("%+v, %v", f, err)
	}
}

// A frozen record that this member got again may have been staged as the newer
// delivery: the transaction must abort.
func TestFrozenRecordDeliveredAgain(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 500*time.Millisecond)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t, AcknowledgementMode(Transactional))
	b := poll(ctx, t, m)
	h := b.Bind()
	if err := h.Hold(); err != nil {
		t.Fatal(err)
	}
	b.AcceptRest()
	if _, err := h.Freeze(ctx); err != nil || h.Check() != nil {
		t.Fatalf("%v, %v", err, h.Check())
	}
	if again := gather(ctx, t, m, 2); again[0].DeliveryCount() != 2 {
		t.Fatalf("delivery %d", again[0].DeliveryCount())
	}
	if err := h.Check(); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("Check: %v", err)
	}
	h.Settle(settlement(sharetxn.Aborted, false))
	if b.Len() != 0 {
		t.Fatalf("%d records of the older delivery came back", b.Len())
	}
}
