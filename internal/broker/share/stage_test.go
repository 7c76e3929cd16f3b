package share

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// TestStageOrder is C3: each request breaks one check and all later ones, so the
// answer tells which came first.
func TestStageOrder(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	empty := ""
	steps := []struct {
		name  string
		want  int16
		spoil func(*rig, *user, *wire.Request)
	}{
		{"share.version", codeUnsupportedVersion, func(r *rig, _ *user, _ *wire.Request) { r.e.SetStaging(false) }},
		{"form", codeInvalidRequest, func(_ *rig, _ *user, q *wire.Request) { q.TransactionalID = nil }},
		{"member", codeUnknownMemberID, func(_ *rig, _ *user, q *wire.Request) { q.MemberID = "other" }},
		{"transaction", 90, func(r *rig, _ *user, _ *wire.Request) { r.txns.code = 90 }},
		{"ended meanwhile", codeInvalidProducerEpoch, func(r *rig, _ *user, _ *wire.Request) {
			r.txns.hook = func() { r.e.Outcome(7, 4, false) }
		}},
		{"none", codeNone, func(*rig, *user, *wire.Request) {}},
	}
	for i, step := range steps {
		r := newRig(ctx, t, nil)
		r.add(10)
		u := r.user("a")
		epoch := u.join()
		u.fetch()
		req := u.staging(epoch, batch(0, 9, acks.Accept))
		for j := len(steps) - 1; j >= i; j-- {
			steps[j].spoil(r, u, req)
		}
		resp := u.e.Stage(ctx, u.conn, req)
		if resp.ErrorCode != step.want {
			t.Errorf("%s: %d, want %d", step.name, resp.ErrorCode, step.want)
		}
		state, _ := r.state(0)
		if staged := state == TxPending; staged != (step.want == codeNone) {
			t.Errorf("%s: offset 0 is %v", step.name, state)
		}
		if step.want != codeNone && len(resp.Topics) != 0 {
			t.Errorf("%s: partitions beside a top-level error: %+v", step.name, resp.Topics)
		}
		if asked, want := len(r.txns.calls) > 0, i >= 3; asked != want {
			t.Errorf("%s: the coordinator was asked: %v", step.name, asked)
		}
	}
	for name, spoil := range map[string]func(*wire.Request){
		"empty transactional id": func(q *wire.Request) { q.TransactionalID = &empty },
		"empty group":            func(q *wire.Request) { q.GroupID = "" },
		"empty member":           func(q *wire.Request) { q.MemberID = "" },
		"long member":            func(q *wire.Request) { q.MemberID = strings.Repeat("x", 37) },
		"the handshake":          func(q *wire.Request) { *q = wire.Request{Profile: wire.Draft95} },
	} {
		r := newRig(ctx, t, nil)
		u := r.user("a")
		req := u.staging(u.join(), batch(0, 9, acks.Accept))
		spoil(req)
		if resp := u.e.Stage(ctx, u.conn, req); resp.ErrorCode != codeInvalidRequest || len(r.txns.calls) > 0 {
			t.Errorf("%s: %+v, coordinator asked %d times", name, resp, len(r.txns.calls))
		}
	}
}

func TestStageMemberEpochs(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	if resp := u.e.Stage(ctx, u.conn, u.staging(1, batch(0, 0, acks.Accept))); resp.ErrorCode != codeGroupIDNotFound {
		t.Fatalf("unknown group: %d", resp.ErrorCode)
	}
	first := u.join()
	r.user("b").join()
	second := u.heartbeat(first).MemberEpoch
	u.fetch()
	for i, c := range []struct {
		epoch int32
		want  int16
	}{{second, codeNone}, {first, codeNone}, {0, codeNone}, {second + 1, codeStaleMemberEpoch}, {-1, codeStaleMemberEpoch}} {
		resp := u.e.Stage(ctx, u.conn, u.staging(c.epoch, batch(int64(i), int64(i), acks.Accept)))
		if resp.ErrorCode != c.want {
			t.Errorf("epoch %d (now %d, before %d): %d, want %d", c.epoch, second, first, resp.ErrorCode, c.want)
		}
	}
	r.wantState("staged", 2, TxPending, 1)
	r.wantState("stale", 3, Acquired, 1)
}

// Partitions of one request do not depend on each other.
func TestStagePartitionsAreApart(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	two := r.log.create("two", 2) // node 1 leads partition 1
	u := r.user("a")
	epoch := u.join()
	u.fetch()
	req := u.staging(epoch, batch(0, 4, acks.Accept))
	one := func(p int32, b acks.AcknowledgementBatch) wire.RequestPartition {
		return wire.RequestPartition{Partition: p, Batches: []acks.AcknowledgementBatch{b}}
	}
	req.Topics = append(req.Topics,
		wire.RequestTopic{TopicID: [16]byte{88}, Partitions: []wire.RequestPartition{one(0, batch(0, 0, acks.Accept))}},
		wire.RequestTopic{TopicID: two, Partitions: []wire.RequestPartition{
			one(0, batch(0, 0, acks.Accept)), // not loaded here
			one(1, batch(0, 0, acks.Accept)),
			one(7, batch(0, 0, acks.Accept)),
		}},
		wire.RequestTopic{TopicID: u.in, Partitions: []wire.RequestPartition{
			one(0, batch(6, 5, acks.Accept)),
			one(0, batch(5, 5, acks.Release)),
			one(0, batch(5, 20, acks.Accept)),
		}},
	)
	resp := u.e.Stage(ctx, u.conn, req)
	if resp.ErrorCode != codeNone {
		t.Fatalf("answered %d", resp.ErrorCode)
	}
	want := [][]int16{{codeNone}, {codeUnknownTopicID}, {codeNotLeaderOrFollower, codeNotLeaderOrFollower, codeUnknownTopicOrPartition}, {codeInvalidRequest, codeInvalidRequest, codeInvalidRequest}}
	for i, rt := range resp.Topics {
		if rt.TopicID != req.Topics[i].TopicID {
			t.Fatalf("topic %d is %v", i, rt.TopicID)
		}
		for j, p := range rt.Partitions {
			if p.ErrorCode != want[i][j] || p.Partition != req.Topics[i].Partitions[j].Partition || p.CurrentLeader != nil {
				t.Errorf("topic %d, partition %d: %+v, want %d", i, j, p, want[i][j])
			}
		}
	}
	r.wantState("the good one", 4, TxPending, 1)
	r.wantState("the bad ones", 5, Acquired, 1)
	if n := len(r.txns.parts[0]); n != 6 {
		t.Errorf("%d state partitions registered, want those of the 6 that exist", n)
	}
	// Nothing that could be staged: answered without asking anybody.
	req.Topics = req.Topics[1:2]
	req.MemberID = "other"
	if resp := u.e.Stage(ctx, u.conn, req); resp.ErrorCode != codeNone || resp.Topics[0].Partitions[0].ErrorCode != codeUnknownTopicID || len(r.txns.calls) != 1 {
		t.Errorf("unknown topics only: %+v, coordinator asked %d times", resp, len(r.txns.calls))
	}
}

// A failed stage changes nothing: the lock runs on as it did.
func TestLocksAroundStaging(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, map[string]string{configLock: "1000"})
		r.add(10)
		a, b := r.user("a"), r.user("b")
		epoch := a.join()
		a.fetch()
		if code := a.stage(a.staging(epoch, batch(0, 4, acks.Accept))); code != codeNone {
			t.Fatal(code)
		}
		if code := a.stage(a.staging(epoch, batch(3, 7, acks.Reject))); code != codeInvalidRecordState {
			t.Fatalf("staged with another type: %d", code)
		}
		if code := a.ack(batch(0, 0, acks.Accept)); code != codeInvalidRecordState {
			t.Fatalf("plain acknowledgement of a staged record: %d", code)
		}
		wantGot(t, "the lock of what was not staged ends", b.fetch(waiting(time.Minute)), [3]int64{5, 9, 2})
		b.mustAck(batch(5, 9, acks.Accept))
		time.Sleep(time.Hour)
		r.wantState("staged for an hour", 4, TxPending, 1)
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			if n := r.e.Outcome(7, 4, false); n != 5 {
				t.Errorf("abort decided %d offsets", n)
			}
		})
		wantGot(t, "after the abort", b.fetch(waiting(time.Minute)), [3]int64{0, 4, 2})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("abort seen after %v", took)
		}
	})
}

// Several members in one transaction, over partitions of several groups.
func TestOneMarkerDecidesAll(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	a, b := r.user("a"), r.user("b")
	ea, eb := a.join(), b.join()
	ea = a.heartbeat(ea).MemberEpoch
	a.fetch(exactly(5))
	b.fetch()
	if code := a.stage(a.staging(ea, batch(0, 4, acks.Accept))); code != codeNone {
		t.Fatal(code)
	}
	if code := b.stage(b.staging(eb, batch(5, 8, acks.Accept))); code != codeNone {
		t.Fatal(code)
	}
	r.wantWindow("staged", 0, 10)
	if p := r.e.PartitionStates("g")[0]; p.Pending != 9 || p.Acquired != 1 || p.MaxDeliveries != 1 {
		t.Fatalf("audit says %+v", p)
	}
	if n := r.e.Outcome(7, 4, true); n != 9 {
		t.Fatalf("marker decided %d offsets", n)
	}
	r.wantWindow("committed", 9, 10)
	r.wantOffsets("committed, and the start trails", 0, 1)
	if n := r.e.Outcome(7, 4, true); n != 0 {
		t.Fatalf("marker again decided %d offsets", n)
	}
}

func TestStatePartitions(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	// Java: Utils.abs("g:AQAAAAAAAAAAAAAAAAAAAA:0".hashCode()) % 50 and so on, for groups "g" and "ä€".
	for _, c := range []struct {
		profile wire.Profile
		group   string
		want    []int32 // of partitions 0 and 1
	}{
		{wire.Draft95, "g", []int32{15, 16}},
		{wire.Draft95, "ä€", []int32{10, 11}},
		{wire.KIP93, "g", []int32{3}},
		{wire.KIP93, "ä€", []int32{32}},
	} {
		e := New(Config{Profile: c.profile, StatePartitions: 50})
		got := e.addStatePartition(nil, c.group, topicPart{[16]byte{1}, 0})
		got = e.addStatePartition(got, c.group, topicPart{[16]byte{1}, 1})
		if !slices.Equal(got, c.want) {
			t.Errorf("%v, group %s: %d, want %d", c.profile, c.group, got, c.want)
		}
		e.Close()
	}
}
