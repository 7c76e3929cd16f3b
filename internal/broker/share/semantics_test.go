package share

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var profiles = []wire.Profile{wire.Draft95, wire.KIP93}

// speaking makes a rig's engine one of the profile.
func speaking(p wire.Profile) func(*Config) { return func(c *Config) { c.Profile = p } }

// staged is a rig of the profile with ten records, all delivered to "a" once,
// of which 0 to 4 are staged as accepted by producer 7 at epoch 3.
func staged(ctx context.Context, t *testing.T, p wire.Profile, with ...func(*Config)) (r *rig, a *user, epoch int32) {
	t.Helper()
	r = newRig(ctx, t, map[string]string{configLock: "1000"}, append(with, speaking(p))...)
	r.add(10)
	a = r.user("a")
	epoch = a.join()
	a.fetch()
	if code := a.stage(a.staging(epoch, batch(0, 4, acks.Accept))); code != codeNone {
		t.Fatalf("%v: stage answered %d", p, code)
	}
	r.wantState("staged", 0, TxPending, 1)
	return r, a, epoch
}

// TestAbort: the draft gives the records to whoever comes first, the KIP text
// back to their owner, under the lock that ran on.
func TestAbort(t *testing.T) {
	for _, p := range profiles {
		synctest.Test(t, func(t *testing.T) {
			r, a, epoch := staged(t.Context(), t, p)
			time.Sleep(400 * time.Millisecond)
			if n := r.e.Outcome(7, 4, false); n != 5 {
				t.Fatalf("%v: the abort decided %d offsets", p, n)
			}
			if n := r.e.Outcome(7, 4, true); n != 0 {
				t.Fatalf("%v: the marker again decided %d offsets", p, n)
			}
			b := r.user("b")
			b.join()
			if p == wire.Draft95 {
				r.wantState("aborted", 0, Available, 1)
				wantGot(t, "free for all", b.fetch(), [3]int64{0, 4, 2})
				return
			}
			r.wantState("aborted", 0, Acquired, 1)
			wantGot(t, "nothing is free", b.fetch())
			again := a.staging(epoch, batch(0, 1, acks.Accept))
			again.ProducerEpoch = 4
			if code := a.stage(again); code != codeNone {
				t.Fatalf("staged again: %d", code)
			}
			a.mustAck(batch(2, 2, acks.Accept))
			if n := r.e.Outcome(7, 5, true); n != 2 {
				t.Fatalf("the commit decided %d offsets", n)
			}
			r.wantWindow("committed", 3, 10)
			began := time.Now()
			wantGot(t, "its lock ran on", b.fetch(waiting(time.Minute)), [3]int64{3, 9, 2})
			if took := time.Since(began); took != 600*time.Millisecond {
				t.Fatalf("the lock ended after another %v", took)
			}
		})
	}
}

// TestLockWhileStaged: in the draft it stands still; by the KIP text it ends,
// and then a marker finds nothing, whatever it says.
func TestLockWhileStaged(t *testing.T) {
	for _, p := range profiles {
		for _, commit := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				r, _, _ := staged(t.Context(), t, p)
				b := r.user("b")
				b.join()
				resp := b.fetch(waiting(time.Minute)) // when the lock of 5 to 9 ends
				if p == wire.Draft95 {
					wantGot(t, "what was not staged", resp, [3]int64{5, 9, 2})
					r.wantState("lock passed", 0, TxPending, 1)
					if n := r.e.Outcome(7, 4, commit); n != 5 {
						t.Fatalf("decided %d offsets", n)
					}
					return
				}
				wantGot(t, "all", resp, [3]int64{0, 9, 2})
				if n := r.e.Outcome(7, 4, commit); n != 0 {
					t.Fatalf("a late marker decided %d offsets", n)
				}
				r.wantState("late marker", 0, Acquired, 2)
				b.mustAck(batch(0, 9, acks.Accept))
			})
		}
	}
}

// The end of a staged record's lock is waited for, also where it is the only one
// left to end.
func TestLockOfStagedIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, map[string]string{configLock: "1000"}, speaking(wire.KIP93))
		r.add(10)
		a := r.user("a")
		epoch := a.join()
		a.fetch(exactly(5))
		time.Sleep(500 * time.Millisecond)
		a.fetch(exactly(5))
		if code := a.stage(a.staging(epoch, batch(5, 9, acks.Accept))); code != codeNone {
			t.Fatal(code)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		r.wantState("its lock ended", 0, Available, 1)
		r.wantState("its lock runs", 5, TxPending, 1)
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		r.wantState("its lock ended, staged", 5, Available, 1)
	})
}

// What is written down shows in the offsets: staging in the draft, only its
// outcome by the KIP text.
func TestOffsetsOfStaged(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for _, p := range profiles {
		r, _, _ := staged(ctx, t, p)
		if p == wire.Draft95 {
			r.wantOffsets("staged", 0, 10)
		} else {
			r.wantOffsets("staged", -1, -1)
		}
		r.e.Outcome(7, 4, true)
		r.wantOffsets("committed, and the start trails", 0, 5)
	}
}

// A lock ends at its time also where the marker is faster than the timer; and
// as on any expiry the delivery limit is looked at.
func TestMarkerAtTheLocksEnd(t *testing.T) {
	for _, c := range []struct {
		limit string
		state State
	}{{"5", Available}, {"2", Archived}} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t.Context(), t, map[string]string{configLock: "1000", configLimit: c.limit}, speaking(wire.KIP93))
			r.add(2)
			a := r.user("a")
			epoch := a.join()
			a.fetch(exactly(1))
			a.mustAck(batch(0, 0, acks.Release))
			wantGot(t, "second delivery", a.fetch(exactly(1)), [3]int64{0, 0, 2})
			a.fetch(exactly(1))
			if code := a.stage(a.staging(epoch, batch(0, 0, acks.Accept))); code != codeNone {
				t.Fatal(code)
			}
			r.e.timer.Stop() // a timer that never runs
			time.Sleep(time.Second)
			r.wantState("the timer is late", 0, TxPending, 2)
			if n := r.e.Outcome(7, 4, true); n != 0 {
				t.Fatalf("the marker decided %d offsets after the lock", n)
			}
			s := r.e.PartitionStates("g")[0]
			if c.state == Archived && (s.Start != 1 || s.ArchivedAtLimit != 1) {
				t.Fatalf("at the limit: %+v", s)
			}
			if c.state == Available {
				r.wantState("below the limit", 0, Available, 2)
			}
		})
	}
}

// TestStagedAndTheLeader: what moves, and what goes down, takes along what lives
// in memory: acquisitions always, staged records by the KIP text.
func TestStagedAndTheLeader(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for _, p := range profiles {
		for _, c := range []struct {
			name string
			do   func(*rig)
			hit  bool
		}{
			{"leader moved", func(r *rig) { r.e.LeaderChanged(r.in, 0) }, true},
			{"leader down", func(r *rig) { r.e.NodeDown(0) }, true},
			{"another partition's leader moved", func(r *rig) { r.e.LeaderChanged(r.in, 1) }, false},
			{"another topic's leader moved", func(r *rig) { r.e.LeaderChanged([16]byte{9}, 0) }, false},
			{"another node down", func(r *rig) { r.e.NodeDown(1) }, false},
		} {
			r, a, _ := staged(ctx, t, p)
			c.do(r)
			want, acquired, n := TxPending, Acquired, int64(5)
			switch {
			case c.hit && p == wire.KIP93: // nothing was ever written: a window of nothing
				r.wantWindow(c.name, 0, 0)
				n = 0
			case c.hit: // 5 to 9 were never written, and are not known any more
				r.wantWindow(c.name, 0, 5)
				r.wantState(c.name, 0, want, 1)
			default:
				r.wantState(c.name, 0, want, 1)
				r.wantState(c.name, 5, acquired, 1)
			}
			if got := r.e.Outcome(7, 4, true); got != n {
				t.Errorf("%v, %s: the commit decided %d offsets, want %d", p, c.name, got, n)
			}
			_, sessions := r.e.sessions[sessionKey{"g", a.id, 0}]
			if down := c.name == "leader down"; sessions == down {
				t.Errorf("%v, %s: the session is there: %v", p, c.name, sessions)
			}
		}
	}
}

// A connection that ends after its broker went down is no member that left: the
// deliveries are forgotten, not counted.
func TestNodeDownForgetsDeliveries(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for _, p := range profiles {
		r := newRig(ctx, t, nil, speaking(p))
		r.add(10)
		a := r.user("a")
		a.join()
		a.fetch()
		a.mustAck(batch(0, 4, acks.Release))
		a.fetch()
		r.e.NodeDown(0)
		r.e.ConnClosed(0, a.conn.ID)
		a.epoch = 0
		wantGot(t, "released once; never", a.fetch(), [3]int64{0, 4, 2}, [3]int64{5, 9, 1})
	}
}

// TestCallOverPartitions: one partition of a call fails. In the draft the others
// are staged all the same; by the KIP text nothing is, and the answer says so.
func TestCallOverPartitions(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	one := func(p int32, b acks.AcknowledgementBatch) wire.RequestPartition {
		return wire.RequestPartition{Partition: p, Batches: []acks.AcknowledgementBatch{b}}
	}
	bad := map[string]struct {
		part   wire.RequestPartition
		code   [2]int16 // Draft95, KIP93
		leader *wire.CurrentLeader
	}{
		"none":          {one(2, batch(0, 0, acks.Accept)), [2]int16{}, nil},
		"release":       {one(2, batch(0, 0, acks.Release)), [2]int16{codeInvalidRequest, codeInvalidRecordState}, nil},
		"renew":         {one(2, batch(0, 0, acks.Renew)), [2]int16{codeInvalidRequest, codeInvalidRecordState}, nil},
		"unknown type":  {one(2, batch(0, 0, 9)), [2]int16{codeInvalidRequest, codeInvalidRecordState}, nil},
		"gap":           {one(2, batch(0, 0, acks.Gap)), [2]int16{codeNone, codeInvalidRecordState}, nil},
		"inverted":      {one(2, batch(3, 2, acks.Accept)), [2]int16{codeInvalidRequest, codeInvalidRequest}, nil},
		"beyond":        {one(2, batch(0, 70, acks.Accept)), [2]int16{codeInvalidRequest, codeInvalidRequest}, nil},
		"not acquired":  {one(2, batch(6, 6, acks.Accept)), [2]int16{codeInvalidRecordState, codeInvalidRecordState}, nil},
		"other leader":  {one(1, batch(0, 0, acks.Accept)), [2]int16{codeNotLeaderOrFollower, codeNotLeaderOrFollower}, &wire.CurrentLeader{LeaderID: 1, LeaderEpoch: 5}},
		"not loaded":    {one(4, batch(0, 0, acks.Accept)), [2]int16{codeNotLeaderOrFollower, codeNotLeaderOrFollower}, nil},
		"not there":     {one(9, batch(0, 0, acks.Accept)), [2]int16{codeUnknownTopicOrPartition, codeUnknownTopicOrPartition}, nil},
		"unknown topic": {wire.RequestPartition{Partition: -1}, [2]int16{codeUnknownTopicID, codeUnknownTopicID}, nil},
	}
	for i, p := range profiles {
		for name, c := range bad {
			var undone []Event
			r, a, epoch := staged(ctx, t, p, func(c *Config) {
				c.Observe = func(ev Event) {
					if ev.Kind == EventRolledBack {
						undone = append(undone, ev)
					}
				}
			})
			many := r.log.create("many", 5) // node 0 leads 0, 2 and 4
			for _, part := range []int32{0, 2} {
				r.log.add("many", part, 5)
				a.fetch(func(q *kmsg.ShareFetchRequest) { q.Topics[0].TopicID, q.Topics[0].Partitions[0].Partition = many, part })
			}
			r.log.add("many", 2, 5)
			r.e.parts[partKey{"g", many, 2}].extend(9)
			where := func(topic [16]byte, part int32, offset int64) State {
				s, _, _, ok := r.e.StateOf("g", topic, part, offset)
				if !ok {
					t.Fatalf("offset %d is outside of the window", offset)
				}
				return s
			}
			req := a.staging(epoch, batch(3, 7, acks.Accept)) // 3 and 4 again
			second := wire.RequestTopic{TopicID: many, Partitions: []wire.RequestPartition{one(0, batch(0, 4, acks.Reject)), c.part}}
			if c.part.Partition < 0 {
				second.Partitions = second.Partitions[:1]
				req.Topics = append(req.Topics, wire.RequestTopic{TopicID: [16]byte{88}, Partitions: []wire.RequestPartition{one(0, batch(0, 0, acks.Accept))}})
			}
			req.Topics = append(req.Topics, second)
			resp := a.e.Stage(a.ctx, a.conn, req)
			if resp.ErrorCode != codeNone {
				t.Fatalf("%v, %s: answered %d", p, name, resp.ErrorCode)
			}
			var codes []int16
			for _, rt := range resp.Topics {
				for _, rp := range rt.Partitions {
					codes = append(codes, rp.ErrorCode)
					want := c.leader
					if p == wire.Draft95 || rp.Partition != c.part.Partition || rp.ErrorCode != codeNotLeaderOrFollower {
						want = nil
					}
					if (rp.CurrentLeader == nil) != (want == nil) || (want != nil && *rp.CurrentLeader != *want) {
						t.Errorf("%v, %s: partition %+v, want leader %+v", p, name, rp, want)
					}
				}
			}
			good, state, events := codeNone, TxPending, 0
			if p == wire.KIP93 && c.code[i] != codeNone {
				good, state, events = codeOperationNotAttempted, Acquired, 2
			}
			want := []int16{good, good, c.code[i]}
			if c.part.Partition < 0 {
				want = []int16{good, c.code[i], good}
			}
			if !slices.Equal(codes, want) {
				t.Errorf("%v, %s: codes %d, want %d", p, name, codes, want)
			}
			if a, b, c := where(r.in, 0, 5), where(r.in, 0, 7), where(many, 0, 4); a != state || b != state || c != state {
				t.Errorf("%v, %s: the others are %v, %v and %v, want %v", p, name, a, b, c, state)
			}
			if len(undone) != events {
				t.Errorf("%v, %s: told of %d staged and undone: %+v", p, name, len(undone), undone)
			}
			r.wantState("staged by an earlier call", 3, TxPending, 1)
			a.mustAck(batch(8, 8, acks.Accept))
		}
	}
}

// TestSetStaging: off only while nothing is staged, and then a stage says so and
// changes nothing.
func TestSetStaging(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for _, p := range profiles {
		r, a, epoch := staged(ctx, t, p)
		if r.e.SetStaging(false) {
			t.Fatalf("%v: turned off with records staged", p)
		}
		if code := a.stage(a.staging(epoch, batch(5, 5, acks.Accept))); code != codeNone {
			t.Fatalf("%v: stage after the refusal: %d", p, code)
		}
		r.e.Outcome(7, 4, true)
		if !r.e.SetStaging(false) {
			t.Fatalf("%v: not turned off", p)
		}
		next := a.staging(epoch, batch(6, 6, acks.Accept))
		next.ProducerEpoch = 4
		if resp := a.e.Stage(ctx, a.conn, next); resp.ErrorCode != codeUnsupportedVersion || len(resp.Topics) > 0 {
			t.Fatalf("%v: %+v", p, resp)
		}
		r.wantState("refused", 6, Acquired, 1)
		if !r.e.SetStaging(true) {
			t.Fatalf("%v: not turned on", p)
		}
		if code := a.stage(next); code != codeNone {
			t.Fatalf("%v: turned on again: %d", p, code)
		}
		r.e.Outcome(7, 5, true)
		// Turned off while the coordinator was asked.
		next.ProducerEpoch = 5
		r.txns.hook = func() { r.e.SetStaging(false) }
		if resp := a.e.Stage(ctx, a.conn, next); resp.ErrorCode != codeUnsupportedVersion || len(r.txns.calls) != 4 {
			t.Fatalf("%v: turned off meanwhile: %+v after %d questions", p, resp, len(r.txns.calls))
		}
	}
}

// One registration for a group, of its one state partition, in the KIP text; one
// for each share partition in the draft.
func TestRegistration(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for i, want := range []int{2, 1} {
		r, a, epoch := staged(ctx, t, profiles[i])
		many := r.log.create("many", 1)
		req := a.staging(epoch, batch(5, 5, acks.Accept))
		req.Topics = append(req.Topics, wire.RequestTopic{TopicID: many, Partitions: []wire.RequestPartition{{Batches: []acks.AcknowledgementBatch{batch(0, 0, acks.Accept)}}}})
		a.e.Stage(ctx, a.conn, req)
		if got := r.txns.parts[1]; len(got) != want {
			t.Errorf("%v: state partitions %v, want %d", profiles[i], got, want)
		}
	}
}
