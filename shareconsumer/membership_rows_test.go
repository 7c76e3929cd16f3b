package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// beats records heartbeats, and does something to the one after arming it.
type beats struct {
	mu    sync.Mutex
	seen  []*kmsg.ShareGroupHeartbeatRequest
	nodes []int32
	armed func(*kmsg.ShareGroupHeartbeatRequest) broker.Action
	at    int // of the armed one in seen; -1 until it came
}

func (b *beats) watch(c *cluster) {
	b.at = -1
	c.SetIntercept(func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareGroupHeartbeatRequest)
		if !ok {
			return broker.Action{}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.seen, b.nodes = append(b.seen, req), append(b.nodes, r.Node)
		if b.armed == nil {
			return broker.Action{}
		}
		act := b.armed(req)
		b.armed, b.at = nil, len(b.seen)-1
		return act
	})
}

func (b *beats) arm(fn func(*kmsg.ShareGroupHeartbeatRequest) broker.Action) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.armed = fn
}

// after waits for n heartbeats behind the armed one and gives it and them.
func (b *beats) after(ctx context.Context, t *testing.T, n int) (out []*kmsg.ShareGroupHeartbeatRequest) {
	t.Helper()
	testkit.Eventually(ctx, t, "heartbeats behind the one that failed", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.at < 0 || len(b.seen) <= b.at+n {
			return false
		}
		out = slices.Clone(b.seen[b.at : b.at+n+1])
		return true
	})
	return out
}

// refuse answers a heartbeat with a code.
func refuse(code int16) func(*kmsg.ShareGroupHeartbeatRequest) broker.Action {
	return func(req *kmsg.ShareGroupHeartbeatRequest) broker.Action {
		resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		resp.ErrorCode = code
		return broker.Action{Answer: resp}
	}
}

// Every row of KIP-932's table, and an answer that is lost: what the next
// heartbeat says, whether the coordinator is looked for, and what becomes of the
// records. The one after that is brief again.
func TestHeartbeatRows(t *testing.T) {
	lose := func(*kmsg.ShareGroupHeartbeatRequest) broker.Action { return broker.Action{LoseAnswer: true} }
	for name, row := range map[string]struct {
		fault   func(*kmsg.ShareGroupHeartbeatRequest) broker.Action
		rejoins bool  // at epoch 0, and all is lost
		seeks   bool  // asks for the coordinator
		tells   error // the next poll
	}{
		"nothing":                     {func(*kmsg.ShareGroupHeartbeatRequest) broker.Action { return broker.Action{} }, false, false, nil},
		"UNKNOWN_MEMBER_ID":           {refuse(25), true, false, nil},
		"FENCED_MEMBER_EPOCH":         {refuse(110), true, false, nil},
		"GROUP_ID_NOT_FOUND":          {refuse(69), true, false, nil},
		"NOT_COORDINATOR":             {refuse(16), false, true, nil},
		"COORDINATOR_NOT_AVAILABLE":   {refuse(15), false, true, nil},
		"COORDINATOR_LOAD_IN_PROGRES": {refuse(14), false, false, nil},
		"REQUEST_TIMED_OUT":           {refuse(7), false, false, nil},
		"TOPIC_AUTHORIZATION_FAILED":  {refuse(29), false, false, kerr.TopicAuthorizationFailed},
		"lost answer":                 {lose, false, true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 25*time.Second)
			c.feedTo(ctx, t, 1, 1)
			var b beats
			b.watch(c)
			m := c.consumer(t, ClientRack("r1"))
			held := gather(ctx, t, m, 1)[0]
			found := c.Traffic(10).Requests
			b.arm(row.fault)
			seen := b.after(ctx, t, 2)
			failed, next, later := seen[0], seen[1], seen[2]
			if failed.MemberEpoch < 1 || failed.SubscribedTopicNames != nil || failed.RackID != nil {
				t.Errorf("the heartbeat before said %+v", failed)
			}
			full := name != "nothing"
			if got := slices.Equal(next.SubscribedTopicNames, []string{"in"}) && next.RackID != nil && *next.RackID == "r1"; got != full {
				t.Errorf("the next heartbeat said %+v", next)
			}
			if row.rejoins != (next.MemberEpoch == 0) || !row.rejoins && next.MemberEpoch != failed.MemberEpoch || next.MemberID != m.id {
				t.Errorf("the next heartbeat was at epoch %d as %s", next.MemberEpoch, next.MemberID)
			}
			if later.MemberEpoch < 1 || later.SubscribedTopicNames != nil || later.RackID != nil || later.MemberID != m.id {
				t.Errorf("the one after it said %+v", later)
			}
			if got := c.Traffic(10).Requests > found; got != row.seeks {
				t.Errorf("coordinator looked for: %v", got)
			}
			if held.Held() == row.rejoins {
				t.Errorf("held afterwards: %v", held.Held())
			}
			if row.tells != nil {
				if _, err := m.Poll(ctx); !errors.Is(err, row.tells) {
					t.Errorf("Poll: %v", err)
				}
			}
			if row.rejoins {
				gather(ctx, t, m, 1) // its records come again
				return
			}
			held.Accept()
			if err := held.batch.CommitSync(ctx); err != nil {
				t.Errorf("CommitSync: %v", err)
			}
		})
	}
}

// What is fatal is told by every poll, and nothing more is asked.
func TestFatalHeartbeatRows(t *testing.T) {
	for name, code := range map[string]int16{
		"GROUP_AUTHORIZATION_FAILED": 30, "INVALID_REQUEST": 42, "GROUP_MAX_SIZE_REACHED": 81, "UNSUPPORTED_ASSIGNOR": 112, "UNSUPPORTED_VERSION": 35, "unknown code": 4711,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 25*time.Second)
			var b beats
			b.watch(c)
			b.arm(refuse(code))
			m := c.consumer(t)
			for range 2 {
				_, err := m.Poll(ctx)
				var e *sharetxn.Error
				if !errors.As(err, &e) || e.Code != code || !e.FromBroker || !sharetxn.IsFatal(err) {
					t.Fatalf("Poll: %v", err)
				}
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			if n := len(b.seen); n != 2 || b.seen[1].MemberEpoch != -1 {
				t.Errorf("%d heartbeats", n)
			}
		})
	}
}

// FindCoordinator's answers count as the heartbeat's.
func TestCoordinatorThatCannotBeFound(t *testing.T) {
	for name, tc := range map[string]struct {
		code  int16
		fatal bool
	}{"COORDINATOR_NOT_AVAILABLE": {15, false}, "GROUP_AUTHORIZATION_FAILED": {30, true}} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			c := startCluster(t, 25*time.Second)
			c.feedTo(ctx, t, 1, 1)
			refused := c.onKey(10, 2, func(r broker.Request) broker.Action {
				req := r.Message().(*kmsg.FindCoordinatorRequest)
				resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
				found := kmsg.NewFindCoordinatorResponseCoordinator()
				found.Key, found.NodeID, found.ErrorCode = "g", -1, tc.code
				resp.Coordinators = append(resp.Coordinators, found)
				resp.ErrorCode = tc.code
				return broker.Action{Answer: resp}
			})
			m := c.consumer(t)
			b, err := m.Poll(ctx)
			if tc.fatal {
				if !errors.Is(err, kerr.GroupAuthorizationFailed) || !sharetxn.IsFatal(err) || refused.Load() != 1 {
					t.Fatalf("Poll: %v after %d refusals", err, refused.Load())
				}
				return
			}
			if err != nil || b.Len() != 1 || refused.Load() != 2 {
				t.Fatalf("Poll: %v after %d refusals", err, refused.Load())
			}
		})
	}
}

// When the group's coordinator is another broker, heartbeats follow, at the same
// epoch: kgo would go on asking the one before.
func TestCoordinatorMoves(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var b beats
	b.watch(c)
	m := c.consumer(t)
	held := gather(ctx, t, m, 1)[0]
	epoch, last := m.ShareGroupMetadata().MemberEpoch(), func() int32 {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.nodes[len(b.nodes)-1]
	}
	before := last()
	for range 8 { // where it goes is kfake's hash
		if _, err := c.AddNode(); err != nil {
			t.Fatal(err)
		}
		if node := c.coordinator(ctx, t); node != before {
			testkit.Eventually(ctx, t, "heartbeats go to the new coordinator", func() bool { return last() == node })
			if now := m.ShareGroupMetadata().MemberEpoch(); now != epoch || !held.Held() {
				t.Fatalf("epoch %d, then %d", epoch, now)
			}
			held.Accept()
			if err := held.batch.CommitSync(ctx); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("the coordinator never moved")
}

// coordinator asks who coordinates group g.
func (c *cluster) coordinator(ctx context.Context, t *testing.T) int32 {
	t.Helper()
	k, err := c.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey = "g"
	resp, err := req.RequestWith(ctx, k)
	if err != nil {
		t.Fatal(err)
	}
	return resp.NodeID
}

// However often the subscription changes, one heartbeat is in flight at most.
func TestOneHeartbeatInFlight(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	var mu sync.Mutex
	now, most, all := 0, 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		now += by
		most, all = max(most, now), all+max(0, by)
	}
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareBeat {
			return broker.Action{}
		}
		return broker.Action{Before: func() { count(1) }, Delay: 20 * time.Millisecond, Then: func() { count(-1) }}
	})
	m := c.consumer(t)
	_, _ = m.Poll(short(ctx, t))
	testkit.Eventually(ctx, t, "twenty heartbeats", func() bool {
		for _, topic := range []string{"a", "b", "in"} {
			if err := m.SetTopics(topic); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		return all >= 20
	})
	mu.Lock()
	defer mu.Unlock()
	if most != 1 {
		t.Fatalf("%d heartbeats at a time", most)
	}
}

// Leaving: both answers that say that the member is not there are as good, one
// that points elsewhere is followed, and another is told in the log only.
func TestLeaveRows(t *testing.T) {
	for name, tc := range map[string]struct {
		code int16
		left bool
		asks int
	}{
		"UNKNOWN_MEMBER_ID":          {25, true, 1},
		"GROUP_ID_NOT_FOUND":         {69, true, 1},
		"NOT_COORDINATOR":            {16, true, 2},
		"COORDINATOR_NOT_AVAILABLE":  {15, true, 2},
		"GROUP_AUTHORIZATION_FAILED": {30, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 30*time.Second)
			var w watcher
			c := startCluster(t, 25*time.Second, &w)
			c.feedTo(ctx, t, 1, 1)
			m := c.consumer(t)
			gather(ctx, t, m, 1)
			var mu sync.Mutex
			asks := 0
			c.SetIntercept(func(r broker.Request) broker.Action {
				req, ok := r.Message().(*kmsg.ShareGroupHeartbeatRequest)
				if !ok || req.MemberEpoch != leaveEpoch {
					return broker.Action{}
				}
				mu.Lock()
				defer mu.Unlock()
				if asks++; asks > 1 {
					return broker.Action{}
				}
				return refuse(tc.code)(req)
			})
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			if left := slices.Contains(w.events(), sharetxn.MemberLeft); left != tc.left || asks != tc.asks {
				t.Fatalf("left: %v, asked %d times", left, asks)
			}
		})
	}
}
