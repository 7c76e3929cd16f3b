package share

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestHeartbeatErrors is B2's list; the group has one member, "known", at epoch
// 1 or later.
func TestHeartbeatErrors(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	blank, rack := "", "r1"
	for _, c := range []struct {
		name   string
		change func(*kmsg.ShareGroupHeartbeatRequest)
		node   int32
		want   int16
	}{
		{"empty group", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID = "" }, 0, codeInvalidRequest},
		{"empty member", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID = "" }, 0, codeInvalidRequest},
		{"blank group (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID = " " }, 0, codeInvalidRequest},
		{"blank member (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID = " " }, 0, codeInvalidRequest},
		{"a group of another type (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID = "classic" }, 0, codeGroupIDNotFound},
		{"member of 36", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID = strings.Repeat("x", 36) }, 0, codeNone},
		{"member of 37", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID = strings.Repeat("x", 37) }, 0, codeInvalidRequest},
		{"epoch -2", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberEpoch = -2 }, 0, codeInvalidRequest},
		{"blank rack", func(r *kmsg.ShareGroupHeartbeatRequest) { r.RackID = &blank }, 0, codeInvalidRequest},
		{"a rack", func(r *kmsg.ShareGroupHeartbeatRequest) { r.RackID = &rack }, 0, codeNone},
		{"join without topics", func(r *kmsg.ShareGroupHeartbeatRequest) { r.SubscribedTopicNames = nil }, 0, codeInvalidRequest},
		{"not the coordinator", func(*kmsg.ShareGroupHeartbeatRequest) {}, 1, codeNotCoordinator},
		{"full group", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID = "full" }, 0, codeGroupMaxSizeReached},
		{"unknown member at an epoch (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberEpoch = 3 }, 0, codeUnknownMemberID},
		{"unknown member leaves (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberEpoch = -1 }, 0, codeUnknownMemberID},
		{"unknown group at an epoch (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID, r.MemberEpoch = "no", 3 }, 0, codeGroupIDNotFound},
		{"unknown group is left (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.GroupID, r.MemberEpoch = "no", -1 }, 0, codeGroupIDNotFound},
		{"foreign epoch (measured)", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID, r.MemberEpoch = "known", 77 }, 0, codeFencedMemberEpoch},
		{"known member joins again", func(r *kmsg.ShareGroupHeartbeatRequest) { r.MemberID = "known" }, 0, codeNone},
		{"new member", func(*kmsg.ShareGroupHeartbeatRequest) {}, 0, codeNone},
	} {
		r := newRig(ctx, t, nil, func(c *Config) { c.MaxMembers = 3 })
		r.user("known").join()
		for i := range 3 {
			u := r.user(fmt.Sprint("f", i))
			u.group = "full"
			u.join()
		}
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.Version, req.GroupID, req.MemberID, req.SubscribedTopicNames = 1, "g", "new", []string{"in"}
		c.change(req)
		resp := r.e.Handle(ctx, Conn{ID: 9, Node: c.node}, req).(*kmsg.ShareGroupHeartbeatResponse)
		if resp.ErrorCode != c.want {
			t.Errorf("%s: %d, want %d", c.name, resp.ErrorCode, c.want)
		}
	}
}

// assigned is how many partitions of each topic an answer assigns; nil if it
// assigns nothing new.
func assigned(resp *kmsg.ShareGroupHeartbeatResponse) map[[16]byte][]int32 {
	if resp.Assignment == nil {
		return nil
	}
	out := make(map[[16]byte][]int32)
	for _, tp := range resp.Assignment.TopicPartitions {
		out[tp.TopicID] = tp.Partitions
	}
	return out
}

func TestMemberEpochs(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	a, b := r.user("a"), r.user("b")
	first := a.heartbeat(0, "in")
	if got := assigned(first); len(got[r.in]) != 1 || first.HeartbeatIntervalMillis != 5000 {
		t.Fatalf("join answered %+v", first)
	}
	if again := a.heartbeat(first.MemberEpoch); again.MemberEpoch != first.MemberEpoch || again.Assignment != nil {
		t.Fatalf("nothing changed, but the answer is %+v", again)
	}
	b.join()
	next := a.heartbeat(first.MemberEpoch)
	if next.MemberEpoch <= first.MemberEpoch {
		t.Fatalf("epoch %d after %d: another member joined", next.MemberEpoch, first.MemberEpoch)
	}
	// An answer may be lost, so the epoch before is good; the one before that is not.
	if got := a.heartbeat(first.MemberEpoch); got.ErrorCode != codeNone || got.MemberEpoch != next.MemberEpoch {
		t.Fatalf("the epoch before answered %+v", got)
	}
	r.user("c").join()
	a.heartbeat(next.MemberEpoch)
	if got := a.heartbeat(first.MemberEpoch); got.ErrorCode != codeFencedMemberEpoch {
		t.Fatalf("two epochs back answered %d", got.ErrorCode)
	}
	if got := a.heartbeat(0, "in"); got.ErrorCode != codeNone || assigned(got) == nil {
		t.Fatalf("joining again answered %+v", got)
	}
}

func TestSubscriptionsAndTopicsChange(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	a := r.user("a")
	resp := a.heartbeat(0, "later") // does not exist yet
	if got := assigned(resp); got == nil || len(got) != 0 {
		t.Fatalf("no topic: assigned %v", got)
	}
	later := r.log.create("later", 3)
	resp = a.heartbeat(resp.MemberEpoch)
	if got := assigned(resp); len(got[later]) != 3 {
		t.Fatalf("the topic was created: assigned %v", got)
	}
	resp = a.heartbeat(resp.MemberEpoch, "later", "in")
	if got := assigned(resp); len(got[later]) != 3 || len(got[r.in]) != 1 {
		t.Fatalf("two topics: assigned %v", got)
	}
	// Created anew, with another id and more partitions.
	r.log.mu.Lock()
	r.log.topics["later"].ID, r.log.topics["later"].Partitions = [16]byte{99}, 4
	r.log.mu.Unlock()
	resp = a.heartbeat(resp.MemberEpoch)
	if got := assigned(resp); len(got[later]) != 0 || len(got[[16]byte{99}]) != 4 {
		t.Fatalf("created anew: assigned %v", got)
	}
	resp = a.heartbeat(resp.MemberEpoch, "in")
	if got := assigned(resp); len(got) != 1 || len(got[r.in]) != 1 {
		t.Fatalf("one topic left: assigned %v", got)
	}
}

// Every partition has a member, every member a partition, and loads differ by
// one at most while there are enough partitions.
func TestDistribute(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	topics := map[string]Topic{"x": {ID: [16]byte{1}, Name: "x", Partitions: 3}, "y": {ID: [16]byte{2}, Name: "y", Partitions: 4}}
	for n := 1; n <= 20; n++ {
		var members []*member
		for i := range n {
			members = append(members, &member{id: fmt.Sprint(i), order: int64(i), topics: []string{"x", "y"}})
		}
		distribute(members, topics)
		covered := make(map[[16]byte]map[int32]int)
		least, most := 100, 0
		for _, m := range members {
			load := 0
			for id, ps := range m.target {
				for _, p := range ps {
					if covered[id] == nil {
						covered[id] = make(map[int32]int)
					}
					covered[id][p]++
					load++
				}
			}
			least, most = min(least, load), max(most, load)
		}
		if len(covered[[16]byte{1}]) != 3 || len(covered[[16]byte{2}]) != 4 {
			t.Errorf("%d members cover %v", n, covered)
		}
		if least == 0 || most-least > 1 {
			t.Errorf("%d members have between %d and %d partitions", n, least, most)
		}
		if n <= 7 {
			for id, ps := range covered {
				for p, times := range ps {
					if times != 1 {
						t.Errorf("%d members: partition %d of %v has %d", n, p, id, times)
					}
				}
			}
		}
	}
	odd := []*member{{id: "a", topics: []string{"x"}}, {id: "b", topics: []string{"y"}}, {id: "c", topics: []string{"none"}}}
	distribute(odd, topics)
	if len(odd[0].target[[16]byte{1}]) != 3 || len(odd[0].target) != 1 || len(odd[1].target[[16]byte{2}]) != 4 || len(odd[1].target) != 1 || len(odd[2].target) != 0 {
		t.Errorf("own subscriptions: %v, %v, %v", odd[0].target, odd[1].target, odd[2].target)
	}
}

// Kafka 4.3 and later answer the first heartbeat without partitions and assign
// an interval later.
func TestAssignmentInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, nil, func(c *Config) { c.AssignmentInterval = time.Second })
		a, b := r.user("a"), r.user("b")
		first := a.heartbeat(0, "in")
		if got := assigned(first); got == nil || len(got) != 0 || first.MemberEpoch < 1 {
			t.Fatalf("first answer is %+v", first)
		}
		time.Sleep(900 * time.Millisecond)
		if got := a.heartbeat(first.MemberEpoch); got.Assignment != nil {
			t.Fatalf("assigned early: %+v", got)
		}
		time.Sleep(200 * time.Millisecond)
		next := a.heartbeat(first.MemberEpoch)
		if got := assigned(next); len(got[r.in]) != 1 || next.MemberEpoch <= first.MemberEpoch {
			t.Fatalf("after the interval: %+v", next)
		}
		// One assignment later the interval counts from the last.
		time.Sleep(300 * time.Millisecond)
		joined := b.heartbeat(0, "in")
		if got := assigned(joined); len(got) != 0 || joined.MemberEpoch != next.MemberEpoch {
			t.Fatalf("second member: %+v", joined)
		}
		time.Sleep(650 * time.Millisecond)
		if got := assigned(b.heartbeat(joined.MemberEpoch)); len(got[r.in]) != 1 {
			t.Fatalf("second member has %v", got)
		}
		if err := r.e.SetGroupConfig("g", map[string]*string{configAssignment: new(string)}); err == nil {
			t.Fatal("an empty interval was taken")
		}
		zero := "0"
		if err := r.e.SetGroupConfig("g", map[string]*string{configAssignment: &zero}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := assigned(r.user("c").heartbeat(0, "in")); len(got[r.in]) != 1 {
			t.Fatalf("without an interval: %v", got)
		}
	})
}

func TestSessionTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, nil, func(c *Config) { c.SessionTimeout = 3 * time.Second })
		a, b := r.user("a"), r.user("b")
		epoch := a.join()
		b.join()
		for range 4 {
			time.Sleep(2 * time.Second)
			resp := a.heartbeat(epoch)
			if resp.ErrorCode != codeNone {
				t.Fatalf("heartbeat in time: %d", resp.ErrorCode)
			}
			epoch = resp.MemberEpoch
		}
		if got := b.heartbeat(1); got.ErrorCode != codeUnknownMemberID {
			t.Fatalf("silent member: %d", got.ErrorCode)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if groups := r.e.Groups(); len(groups) != 1 || groups["g"] {
			t.Fatalf("groups %v, want g without members", groups)
		}
	})
}

// A timer that fired while a heartbeat was being answered removes nobody.
func TestHeartbeatOvertakesTheTimer(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	epoch := r.user("a").join()
	r.e.mu.Lock()
	g := r.e.groups["g"]
	m := g.members["a"]
	r.e.mu.Unlock()
	r.e.sessionTimeout(g, m)
	if got := r.user("a").heartbeat(epoch); got.ErrorCode != codeNone {
		t.Fatalf("heartbeat: %d", got.ErrorCode)
	}
}

// Leaving the group leaves sessions, locks and staged records alone (measured
// for sessions and locks).
func TestLeaving(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	a, b := r.user("a"), r.user("b")
	epoch := a.join()
	a.fetch()
	if code := a.stage(a.staging(epoch, batch(8, 9, 1))); code != codeNone {
		t.Fatal(code)
	}
	if got := a.heartbeat(-1); got.ErrorCode != codeNone || got.MemberEpoch != -1 {
		t.Fatalf("leaving answered %+v", got)
	}
	if got := a.heartbeat(epoch); got.ErrorCode != codeUnknownMemberID {
		t.Fatalf("heartbeat after leaving: %d", got.ErrorCode)
	}
	wantGot(t, "another member", b.fetch())
	a.mustAck(batch(0, 3, 1))
	if resp := a.e.Stage(ctx, a.conn, a.staging(epoch, batch(4, 4, 1))); resp.ErrorCode != codeUnknownMemberID {
		t.Fatalf("staging after leaving: %d", resp.ErrorCode)
	}
	a.closeSession()
	wantGot(t, "after the session", b.fetch(), [3]int64{4, 7, 2})
	r.wantState("staged", 8, TxPending, 1)
}

func TestDescribeGroup(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	describe := func(node int32, groups ...string) []kmsg.ShareGroupDescribeResponseGroup {
		req := kmsg.NewPtrShareGroupDescribeRequest()
		req.Version, req.GroupIDs = 1, groups
		return r.e.Handle(ctx, Conn{Node: node}, req).(*kmsg.ShareGroupDescribeResponse).Groups
	}
	u := r.user("a")
	epoch := u.join()
	got := describe(0, "g", "no")
	if g := got[0]; g.ErrorCode != 0 || g.GroupState != "Stable" || g.Assignor != "simple" || g.AssignmentEpoch != epoch || len(g.Members) != 1 {
		t.Fatalf("group is %+v", g)
	}
	m := got[0].Members[0]
	if m.MemberID != "a" || m.MemberEpoch != epoch || m.ClientID != "client-a" || m.ClientHost != "/127.0.0.1" || !slices.Equal(m.SubscribedTopicNames, []string{"in"}) {
		t.Fatalf("member is %+v", m)
	}
	if tp := m.Assignment.TopicPartitions; len(tp) != 1 || tp[0].TopicID != r.in || tp[0].Topic != "in" || !slices.Equal(tp[0].Partitions, []int32{0}) {
		t.Fatalf("assignment is %+v", tp)
	}
	if got[1].ErrorCode != codeGroupIDNotFound || got[1].GroupState != "" {
		t.Fatalf("unknown group is %+v", got[1])
	}
	if got := describe(1, "g"); got[0].ErrorCode != codeNotCoordinator {
		t.Fatalf("elsewhere: %+v", got[0])
	}
	u.heartbeat(-1)
	if got := describe(0, "g"); got[0].GroupState != "Empty" || len(got[0].Members) != 0 {
		t.Fatalf("left group is %+v", got[0])
	}
}

func TestDeleteGroup(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	if code := r.e.DeleteGroup("g"); code != codeGroupIDNotFound {
		t.Fatalf("unknown group: %d", code)
	}
	epoch := u.join()
	u.fetch()
	if code := u.stage(u.staging(epoch, batch(0, 9, 1))); code != codeNone {
		t.Fatal(code)
	}
	if code := r.e.DeleteGroup("g"); code != codeNonEmptyGroup {
		t.Fatalf("group with a member: %d", code)
	}
	u.heartbeat(-1)
	if code := r.e.DeleteGroup("g"); code != codeNonEmptyGroup {
		t.Fatalf("group with staged records: %d", code)
	}
	r.e.Outcome(7, 4, true)
	if code := r.e.DeleteGroup("g"); code != codeNone {
		t.Fatalf("empty group: %d", code)
	}
	if groups := r.e.Groups(); len(groups) != 0 {
		t.Fatalf("groups left: %v", groups)
	}
	if got := u.send(u.ask()); got.ErrorCode != codeShareSessionNotFound {
		t.Fatalf("old session: %d", got.ErrorCode)
	}
	u.epoch = 0
	wantGot(t, "a new group begins by its policy, which stays", u.fetch(), [3]int64{0, 9, 1})
}

func TestClosedEngine(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	u := r.user("a")
	epoch := u.join()
	r.e.Close()
	r.e.Close()
	if got := u.heartbeat(epoch); got.ErrorCode != codeNotCoordinator {
		t.Fatalf("heartbeat: %d", got.ErrorCode)
	}
	if got := r.e.Handle(ctx, u.conn, kmsg.NewPtrMetadataRequest()); got != nil {
		t.Fatalf("metadata answered %+v", got)
	}
}

// Who tells the subscription is told the assignment, also where it is unchanged
// (measured).
func TestFullHeartbeatIsToldTheAssignment(t *testing.T) {
	r := newRig(testkit.Deadline(t, 10*time.Second), t, nil)
	u := r.user("a")
	epoch := u.join()
	if resp := u.heartbeat(epoch); resp.ErrorCode != codeNone || resp.Assignment != nil {
		t.Errorf("heartbeat without a subscription: code %d, assignment %v, want none", resp.ErrorCode, resp.Assignment)
	}
	resp := u.heartbeat(epoch, "in")
	if resp.ErrorCode != codeNone || resp.Assignment == nil || len(resp.Assignment.TopicPartitions) != 1 {
		t.Errorf("heartbeat with a subscription: code %d, assignment %v, want the topic", resp.ErrorCode, resp.Assignment)
	}
}
