package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refuseBeats answers the first n heartbeats with a code, unhandled.
func (c *cluster) refuseBeats(n int32, code int16) *atomic.Int32 {
	var refused atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareBeat || refused.Load() >= n {
			return broker.Action{}
		}
		refused.Add(1)
		resp := r.Message().ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		resp.ErrorCode = code
		return broker.Action{Answer: resp}
	})
	return &refused
}

func TestHeartbeatTroubleThatPasses(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.CoordinatorLoadInProgress, kerr.UnknownMemberID, kerr.FencedMemberEpoch, kerr.GroupIDNotFound} {
		t.Run(code.Message, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 20*time.Second)
			c.feed(ctx, t, 3)
			refused := c.refuseBeats(2, code.Code)
			gather(ctx, t, c.consumer(t), 3)
			if refused.Load() != 2 {
				t.Fatalf("refused %d times", refused.Load())
			}
		})
	}
}

// A member that must start over gives its records back at once, also while
// nobody polls: its sessions would hold them until the locks end.
func TestFencedMemberGivesBack(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	gather(ctx, t, c.consumer(t), 3)
	refused := c.refuseBeats(1, kerr.FencedMemberEpoch.Code)
	testkit.Eventually(ctx, t, "all are available", func() bool {
		_, av, _, _ := c.totals()
		return av == 3
	})
	if refused.Load() != 1 {
		t.Fatalf("refused %d times", refused.Load())
	}
}

func TestTopicAuthorizationIsToldOnceAndWaitedOut(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	refused := c.refuseBeats(2, kerr.TopicAuthorizationFailed.Code)
	m := c.consumer(t)
	_, err := m.Poll(ctx)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
		t.Fatalf("Poll: %v", err)
	}
	gather(ctx, t, m, 3)
	if refused.Load() != 2 {
		t.Fatalf("refused %d times", refused.Load())
	}
}

func TestFatalIsToldToEveryPollAndOnceToBatches(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	refused := c.refuseBeats(1, kerr.GroupAuthorizationFailed.Code)
	m := c.consumer(t)
	yielded := 0
	for b, err := range m.Batches(ctx) {
		yielded++
		if b != nil || !errors.Is(err, kerr.GroupAuthorizationFailed) || !sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", b, err)
		}
	}
	if yielded != 1 || refused.Load() != 1 {
		t.Fatalf("yielded %d times, refused %d", yielded, refused.Load())
	}
	if _, err := m.Poll(ctx); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Fatalf("Poll: %v", err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestBrokersWithoutShareGroups(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	var asked atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != 18 {
			return broker.Action{}
		}
		asked.Add(1)
		resp := r.Message().ResponseKind().(*kmsg.ApiVersionsResponse)
		for _, k := range []struct{ key, max int16 }{{0, 9}, {1, 12}, {3, 9}, {10, 4}, {18, 3}} {
			a := kmsg.NewApiVersionsResponseApiKey()
			a.ApiKey, a.MaxVersion = k.key, k.max
			resp.ApiKeys = append(resp.ApiKeys, a)
		}
		return broker.Action{Answer: resp}
	})
	if _, err := c.consumer(t).Poll(ctx); asked.Load() == 0 || !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
		t.Fatalf("Poll: %v", err)
	}
	if n := c.Traffic(keyShareBeat).Requests; n != 0 {
		t.Fatalf("%d heartbeats were sent nevertheless", n)
	}
}

// assignments keeps what OnAssigned was told.
type assignments struct {
	mu   sync.Mutex
	seen []map[string][]int32
}

func (a *assignments) told(m map[string][]int32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.seen = append(a.seen, m)
}

func (a *assignments) last() []int32 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) == 0 {
		return nil
	}
	return a.seen[len(a.seen)-1]["in"]
}

// A second member joins and leaves: both are told what they have, all
// partitions are somebody's at the end, and what was acquired before stays
// valid (share groups revoke nothing).
func TestRebalance(t *testing.T) {
	ctx := testkit.Deadline(t, 40*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	var as, bs assignments
	a := c.consumer(t, OnAssigned(as.told))
	rs := gather(ctx, t, a, 3)
	if !slices.Equal(as.last(), []int32{0, 1, 2}) {
		t.Fatalf("assigned %v", as.last())
	}
	b := c.consumer(t, OnAssigned(bs.told))
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	_, _ = b.Poll(short) // joins; there is nothing to get
	cancel()
	testkit.Eventually(ctx, t, "both have partitions, together all", func() bool {
		all := slices.Concat(as.last(), bs.last())
		slices.Sort(all)
		return len(bs.last()) > 0 && slices.Equal(slices.Compact(all), []int32{0, 1, 2})
	})
	for _, r := range rs {
		r.Accept()
	}
	for batch := range batchesOfRecords(rs) {
		if err := batch.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the first has all again", func() bool { return slices.Equal(as.last(), []int32{0, 1, 2}) })
	c.feed(ctx, t, 3)
	gather(ctx, t, a, 3)
}

func TestBackoff(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for n, c := range map[int]struct{ lo, hi time.Duration }{
		-1: {0, 0}, 0: {0, 0}, 1: {50 * time.Millisecond, 100 * time.Millisecond}, 3: {200 * time.Millisecond, 400 * time.Millisecond},
		30: {time.Second, 2 * time.Second}, 1 << 40: {time.Second, 2 * time.Second},
	} {
		if d := backoff(n); d < c.lo || d > c.hi {
			t.Errorf("after %d failures %v", n, d)
		}
	}
}
