package shareconsumer

import (
	"maps"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// rarely has members ask their coordinator only when there is a reason, and one
// partition, so that there is one session.
func rarely(cfg *broker.Config) {
	cfg.HeartbeatInterval, cfg.Topics = time.Minute, map[string]int32{"in": 1}
}

// Where a session was lost the broker may have forgotten the member, too, and serves
// it all the same. It fetches only when the coordinator has said that it is one, and
// asks at once: what is fetched before would lose a delivery.
func TestNothingIsFetchedInDoubt(t *testing.T) {
	for name, code := range map[string]int16{"it is forgotten": kerr.UnknownMemberID.Code, "it is still known": 0} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, time.Minute-10*time.Second)
			c := startClusterWith(t, 25*time.Second, rarely)
			c.feedTo(ctx, t, 3, 1)
			m := c.consumer(t)
			gather(ctx, t, m, 3)

			const working, lost, asked, sure = 0, 1, 2, 3
			var at, early, beats atomic.Int32
			c.SetIntercept(func(r broker.Request) broker.Action {
				switch {
				case r.Key == keyShareFetch && at.CompareAndSwap(working, lost):
					return broker.Action{LoseRequest: true}
				case r.Key == keyShareFetch && at.Load() < sure:
					early.Add(1)
				case r.Key == keyShareBeat && at.CompareAndSwap(lost, asked):
					beats.Add(1)
					a := broker.Action{Delay: 500 * time.Millisecond} // for a fetch to come that must not
					if code != 0 {
						resp := r.Message().ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
						resp.ErrorCode = code
						a.Answer = resp
						return a
					}
					a.Then = func() { at.Store(sure) }
					return a
				case r.Key == keyShareBeat && at.CompareAndSwap(asked, sure): // it joins again
					beats.Add(1)
				}
				return broker.Action{}
			})
			c.put(ctx, t, "in", 0, "3")
			counts := make(map[string]int32)
			for _, r := range gather(ctx, t, m, 4) {
				counts[string(r.Value)] = r.DeliveryCount()
			}
			if at.Load() != sure || beats.Load() == 0 {
				t.Fatalf("it came to step %d, with %d heartbeats", at.Load(), beats.Load())
			}
			if n := early.Load(); n > 0 {
				t.Errorf("%d fetches of a member in doubt", n)
			}
			if want := map[string]int32{"0": 2, "1": 2, "2": 2, "3": 1}; !maps.Equal(counts, want) { // those of before were the lost session's
				t.Errorf("deliveries %v, want %v", counts, want)
			}
		})
	}
}

// A member that was denied when a transaction of it staged asks the coordinator at
// once, and starts over if it is none; any other abort is no reason.
func TestOutcastAsks(t *testing.T) {
	for name, outcast := range map[string]bool{"denied": true, "another abort": false} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, time.Minute-10*time.Second)
			c := startClusterWith(t, 25*time.Second, rarely)
			c.feedTo(ctx, t, 3, 1)
			m := c.consumer(t, AcknowledgementMode(Transactional))
			gather(ctx, t, m, 3)
			refused := c.refuseBeats(1, kerr.UnknownMemberID.Code)
			m.mu.Lock()
			var b *Batch
			for b = range m.batches {
				break
			}
			m.mu.Unlock()
			h := b.Bind()
			if err := h.Hold(); err != nil {
				t.Fatal(err)
			}
			h.Settle(bind.Settlement{Outcome: uint8(sharetxn.Aborted), Outcast: outcast})
			m.mu.Lock()
			had := m.doubts.had
			m.mu.Unlock()
			if !outcast {
				if had != 0 || refused.Load() != 0 {
					t.Errorf("%d doubts, %d heartbeats", had, refused.Load())
				}
				return
			}
			for _, r := range gather(ctx, t, m, 3) {
				if r.DeliveryCount() != 2 {
					t.Errorf("delivery %d of %s", r.DeliveryCount(), r.Value)
				}
			}
			if had != 1 || refused.Load() != 1 {
				t.Errorf("%d doubts, %d heartbeats refused", had, refused.Load())
			}
		})
	}
}

// A doubt that came while a heartbeat was under way is not settled by its answer.
func TestEarlierAnswerSettlesNothing(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	c := startClusterWith(t, 25*time.Second, rarely)
	m := c.consumer(t)
	s := newSession(m, 0)
	m.mu.Lock()
	defer m.mu.Unlock()
	s.doubt = m.doubt()
	asked := m.doubts.had
	s.doubt = m.doubt()
	if m.confirmed(asked); s.sure() {
		t.Error("settled by the answer to what was asked before")
	}
	if m.confirmed(m.doubts.had); !s.sure() {
		t.Error("not settled by the answer to what was asked since")
	}
	if m.confirmed(asked); !s.sure() {
		t.Error("in doubt again by an answer that comes late")
	}
}

// A leader that moves to a broker without a session makes no way around a doubt of
// the member; the doubt of another session is none of its.
func TestSessionBegunInDoubt(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	tp := partKey{[16]byte{1}, 0}
	for name, denied := range map[string]bool{"the member was denied": true, "another session was lost": false} {
		t.Run(name, func(t *testing.T) {
			c, s := bookkeeper()
			c.spawn = func(*session) {}
			c.topics, c.leaders = map[[16]byte]string{tp.topic: "in"}, map[partKey]leader{tp: {s.node + 1, 1}}
			c.assigned = map[partKey]struct{}{tp: {}}
			c.mu.Lock()
			defer c.mu.Unlock()
			if denied {
				c.doubted()
			} else {
				s.doubt = c.doubt()
			}
			asked := c.doubts.had
			c.route()
			begun := c.sessions[s.node+1]
			if begun == nil || len(begun.want) != 1 {
				t.Fatalf("the session is %v", begun)
			}
			if begun.sure() == denied || s.sure() {
				t.Errorf("begun sure %v, the one before %v", begun.sure(), s.sure())
			}
			if c.confirmed(asked); !begun.sure() || !s.sure() {
				t.Errorf("confirmed: begun sure %v, the one before %v", begun.sure(), s.sure())
			}
		})
	}
}

// A session in doubt keeps no place in the queue for what RecordLimit parts: who
// knows when the coordinator answers, while others could fetch.
func TestDoubtKeepsNoTurn(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	c, lost := bookkeeper()
	c.cfg.acquire, c.cfg.maxPollRecords = RecordLimit, 1
	c.mu.Lock()
	defer c.mu.Unlock()
	other := newSession(c, lost.node+1)
	c.sessions[other.node] = other
	tp := acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}
	for _, s := range c.sessions {
		s.want = map[partKey]acks.TopicIDPartition{keyOf(tp): tp}
	}
	now := time.Now()
	lost.turn, other.turn = now.Add(-time.Minute), now
	if r := c.ration(other, now); r.records != 0 {
		t.Fatalf("before the doubt it is the other's turn: %d records", r.records)
	}
	lost.doubt = c.doubt()
	if r := c.ration(other, now); r.records != 1 || len(other.wake) != 1 {
		t.Errorf("beside a session in doubt it may ask for %d records, and is told so %d times", r.records, len(other.wake))
	}
	c.confirmed(c.doubts.had)
	if r := c.ration(other, now); r.records != 0 {
		t.Errorf("after the doubt it is the other's turn again: %d records", r.records)
	}
}
