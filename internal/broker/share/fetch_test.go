package share

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestFetchErrors is B3's list, top-level part, in order.
func TestFetchErrors(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	text := func(s string) *string { return &s }
	for _, c := range []struct {
		name string
		req  func(*kmsg.ShareFetchRequest)
		want int16
	}{
		{"no group", func(r *kmsg.ShareFetchRequest) { r.GroupID = nil }, codeInvalidRequest},
		{"no member", func(r *kmsg.ShareFetchRequest) { r.MemberID = nil }, codeInvalidRequest},
		{"empty member", func(r *kmsg.ShareFetchRequest) { r.MemberID = text("") }, codeInvalidRequest},
		{"member of 36", func(r *kmsg.ShareFetchRequest) { r.MemberID = text(strings.Repeat("x", 36)) }, codeNone},
		{"member of 37", func(r *kmsg.ShareFetchRequest) { r.MemberID = text(strings.Repeat("x", 37)) }, codeInvalidRequest},
		{"renewal with a limit", func(r *kmsg.ShareFetchRequest) { r.IsRenewAck = true }, codeInvalidRequest},
		{"acks while opening", func(r *kmsg.ShareFetchRequest) {
			r.Topics[0].Partitions[0].AcknowledgementBatches = []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{{LastOffset: 1, AcknowledgeTypes: []int8{1}}}
		}, codeInvalidRequest},
		{"closing without a session", func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch = finalEpoch }, codeShareSessionNotFound},
		{"going on without a session", func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch = 4 }, codeShareSessionNotFound},
		{"opening", func(*kmsg.ShareFetchRequest) {}, codeNone},
	} {
		u := newRig(ctx, t, nil).user("a")
		if got := u.send(u.ask(c.req)); got.ErrorCode != c.want {
			t.Errorf("%s: %d, want %d", c.name, got.ErrorCode, c.want)
		}
	}
}

func TestSessionEpochs(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	u := newRig(ctx, t, nil).user("a")
	u.fetch()
	u.fetch()
	if u.epoch != 2 {
		t.Fatalf("next epoch is %d", u.epoch)
	}
	for _, wrong := range []int32{1, 3} {
		if got := u.send(u.ask(func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch = wrong })); got.ErrorCode != codeInvalidShareSessionEpoch {
			t.Errorf("fetch at epoch %d instead of 2: %d", wrong, got.ErrorCode)
		}
		req := u.ackReq()
		req.ShareSessionEpoch = wrong
		if got := u.sendAck(req); got.ErrorCode != codeInvalidShareSessionEpoch {
			t.Errorf("acknowledge at epoch %d instead of 2: %d", wrong, got.ErrorCode)
		}
	}
	req := u.ackReq()
	req.ShareSessionEpoch = 0
	if got := u.sendAck(req); got.ErrorCode != codeInvalidShareSessionEpoch {
		t.Errorf("an acknowledgement opened a session: %d", got.ErrorCode)
	}
	u.epoch = 2
	if got := u.sendAck(u.ackReq()); got.ErrorCode != codeNone { // acknowledgements move the epoch on as fetches do
		t.Errorf("acknowledge at the right epoch: %d", got.ErrorCode)
	}
	u.fetch()
	if nextEpoch(1<<31-1) != 1 {
		t.Error("the epoch does not wrap to 1")
	}
	u.closeSession()
	u.epoch = 4
	if got := u.send(u.ask()); got.ErrorCode != codeShareSessionNotFound {
		t.Errorf("fetch after the close: %d", got.ErrorCode)
	}
}

func TestOpeningAgainKeepsWhatIsAcquired(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	wantGot(t, "first", u.fetch(), [3]int64{0, 9, 1})
	u.epoch = 0
	wantGot(t, "opened again", u.fetch())
	u.mustAck(batch(0, 9, acks.Accept))
	r.wantWindow("acknowledged", 10, 10)
}

func TestClosingGivesBack(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for name, end := range map[string]func(*user){
		"by ShareAcknowledge": (*user).closeSession,
		"by ShareFetch":       func(u *user) { u.fetch(func(r *kmsg.ShareFetchRequest) { r.ShareSessionEpoch = finalEpoch }) },
		"connection closed":   func(u *user) { u.e.ConnClosed(u.conn.Node, u.conn.ID) },
	} {
		r := newRig(ctx, t, nil)
		r.add(10)
		u, other := r.user("a"), r.user("b")
		wantGot(t, name, u.fetch(exactly(5)), [3]int64{0, 4, 1})
		wantGot(t, name, other.fetch(), [3]int64{5, 9, 1})
		u.mustAck(batch(0, 1, acks.Accept))
		end(u)
		r.wantState(name, 2, Available, 1)
		r.wantState(name+": another member's", 5, Acquired, 1)
		wantGot(t, name, other.fetch(), [3]int64{2, 4, 2})
	}
}

// Closing a session carries its last acknowledgements, fetch or not.
func TestClosingAcknowledges(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	u.fetch()
	req := u.ackReq(batch(0, 5, acks.Accept))
	req.ShareSessionEpoch = finalEpoch
	if resp := u.sendAck(req); resp.ErrorCode != 0 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("close answered %+v", resp)
	}
	r.wantWindow("closed", 6, 10)
	r.wantState("closed", 6, Available, 1)
}

// Only the connection that opened a session ends it.
func TestOtherConnectionsDoNotMatter(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	u.fetch()
	r.e.ConnClosed(u.conn.Node, u.conn.ID+1)
	r.e.ConnClosed(u.conn.Node+1, u.conn.ID)
	r.wantState("others closed", 5, Acquired, 1)
	u.conn.ID += 50 // acknowledgements may come on another connection
	u.mustAck(batch(0, 4, acks.Accept))
	u.conn.ID -= 50
	r.e.ConnClosed(u.conn.Node, u.conn.ID)
	r.wantState("its own closed", 5, Available, 1)
}

// A session is one with one broker, and ends what is held there.
func TestOtherBrokersKeepWhatIsHeld(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	two := r.log.create("two", 2) // node 1 leads partition 1
	r.log.add("two", 1, 10)
	here, there := r.user("a"), r.user("a")
	there.conn.Node = 1
	there.rig = &rig{t: t, ctx: ctx, log: r.log, txns: r.txns, e: r.e, in: two}
	here.fetch()
	wantGot(t, "at node 1", there.fetch(func(req *kmsg.ShareFetchRequest) { req.Topics[0].Partitions[0].Partition = 1 }), [3]int64{0, 9, 1})
	here.closeSession()
	r.wantState("at node 0", 5, Available, 1)
	if s, _, _, _ := r.e.StateOf("g", two, 1, 5); s != Acquired {
		t.Fatalf("at node 1: %v", s)
	}
	r.e.ConnClosed(1, there.conn.ID)
	if s, _, _, _ := r.e.StateOf("g", two, 1, 5); s != Available {
		t.Fatalf("at node 1, its own session closed: %v", s)
	}
}

func TestRetentionMovesTheStart(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	for range 3 {
		r.add(10)
	}
	u := r.user("a")
	u.fetch()
	u.mustAck(batch(0, 29, acks.Release))
	r.log.with("in", 0, func(p *fakePartition) { p.Start = 15 })
	wantGot(t, "what is left", u.fetch(), [3]int64{15, 29, 2})
	r.wantWindow("what is left", 15, 30)
}

func TestForgottenPartitions(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	u.fetch(exactly(1))
	wantGot(t, "forgotten", u.fetch(func(req *kmsg.ShareFetchRequest) {
		f := kmsg.NewShareFetchRequestForgottenTopicsData()
		f.TopicID, f.Partitions = u.in, []int32{0}
		req.Topics, req.ForgottenTopicsData = nil, append(req.ForgottenTopicsData, f)
	}))
	wantGot(t, "still forgotten", u.fetch(func(req *kmsg.ShareFetchRequest) { req.Topics = nil }))
	wantGot(t, "listed again", u.fetch(), [3]int64{1, 9, 1})
	wantGot(t, "remembered", u.fetch(func(req *kmsg.ShareFetchRequest) { req.Topics = nil }))
	r.add(5)
	wantGot(t, "remembered", u.fetch(func(req *kmsg.ShareFetchRequest) { req.Topics = nil }), [3]int64{10, 14, 1})
}

func TestSessionLimitAnswersAfterTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, nil, func(c *Config) { c.MaxSessions = 1 })
		one, two := r.user("a"), r.user("b")
		one.fetch()
		began := time.Now()
		if got := two.send(two.ask(waiting(700 * time.Millisecond))); got.ErrorCode != codeShareSessionLimitReached {
			t.Fatalf("second session: %d", got.ErrorCode)
		}
		if took := time.Since(began); took != 700*time.Millisecond {
			t.Fatalf("answered after %v", took)
		}
		one.epoch = 0
		one.fetch() // replacing one's own session takes no more room
		two.conn.Node = 1
		if got := two.send(two.ask()); got.ErrorCode != codeNone {
			t.Fatalf("session at the other broker: %d", got.ErrorCode)
		}
		two.conn.Node, two.epoch = 0, 0
		one.closeSession()
		two.fetch()
	})
}

func TestPartitionErrors(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name   string
		change func(*rig, *kmsg.ShareFetchRequest)
		code   int16
		leader int32
	}{
		{"unknown topic", func(_ *rig, r *kmsg.ShareFetchRequest) { r.Topics[0].TopicID = [16]byte{77} }, codeUnknownTopicID, 0},
		{"unknown partition", func(_ *rig, r *kmsg.ShareFetchRequest) { r.Topics[0].Partitions[0].Partition = 1 }, codeUnknownTopicOrPartition, 0},
		{"negative partition", func(_ *rig, r *kmsg.ShareFetchRequest) { r.Topics[0].Partitions[0].Partition = -1 }, codeUnknownTopicOrPartition, 0},
		{"moved", func(x *rig, _ *kmsg.ShareFetchRequest) {
			x.log.with("in", 0, func(p *fakePartition) { p.leader, p.epoch = 1, 6 })
		}, codeNotLeaderOrFollower, 1},
		{"moved while the log is read", func(x *rig, _ *kmsg.ShareFetchRequest) {
			x.log.onRead = func() {
				x.log.onRead = nil
				x.log.with("in", 0, func(p *fakePartition) { p.leader, p.epoch = 1, 6 })
				x.e.LeaderChanged(x.in, 0)
			}
		}, codeNotLeaderOrFollower, 1},
		{"log fails", func(x *rig, _ *kmsg.ShareFetchRequest) { x.log.fail = errors.New("on purpose") }, codeUnknownServerError, 0},
	} {
		r := newRig(ctx, t, nil)
		r.add(3)
		u := r.user("a")
		resp := u.fetch(func(req *kmsg.ShareFetchRequest) { c.change(r, req); waiting(time.Hour)(req) }) // told at once
		p := part(t, resp)
		if p.ErrorCode != c.code || p.CurrentLeader.LeaderID != c.leader || len(p.Records) > 0 {
			t.Errorf("%s: %+v", c.name, p)
		}
		if hinted := len(resp.NodeEndpoints) == 1 && resp.NodeEndpoints[0].NodeID == 1 && resp.NodeEndpoints[0].Port == 9001; hinted != (c.leader == 1) {
			t.Errorf("%s: endpoints %+v", c.name, resp.NodeEndpoints)
		}
		if c.leader == 1 && p.CurrentLeader.LeaderEpoch != 6 {
			t.Errorf("%s: leader epoch %d", c.name, p.CurrentLeader.LeaderEpoch)
		}
		if r.log.fail != nil { // a log that works again is read again
			r.log.fail = nil
			wantGot(t, c.name, u.fetch(), [3]int64{0, 2, 1})
		}
	}
}

func TestAckErrorsAreApart(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	u.fetch(exactly(5))
	ack := func(first, last int64, ty int8, change func(*kmsg.ShareFetchRequest)) kmsg.ShareFetchResponseTopicPartition {
		return part(t, u.fetch(func(req *kmsg.ShareFetchRequest) {
			req.Topics[0].Partitions[0].AcknowledgementBatches = []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{{FirstOffset: first, LastOffset: last, AcknowledgeTypes: []int8{ty}}}
			if change != nil {
				change(req)
			}
		}))
	}
	if p := ack(12, 13, 1, exactly(2)); p.ErrorCode != 0 || p.AcknowledgeErrorCode != codeInvalidRequest || len(p.AcquiredRecords) != 1 {
		t.Fatalf("bad acknowledgement, good fetch: %+v", p)
	}
	none := func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.MaxBytes, r.MinBytes = 0, 0, 0 }
	if p := ack(0, 3, 1, none); p.ErrorCode != 0 || p.AcknowledgeErrorCode != 0 || len(p.Records) != 0 {
		t.Fatalf("acknowledgement without a fetch: %+v", p)
	}
	r.wantWindow("acknowledged", 4, 10)
	if p := ack(4, 4, 4, none); p.AcknowledgeErrorCode != codeInvalidRequest {
		t.Fatalf("renewal that is not said to be one: %+v", p)
	}
	if p := ack(4, 4, 4, func(r *kmsg.ShareFetchRequest) { none(r); r.IsRenewAck = true }); p.AcknowledgeErrorCode != 0 || len(p.AcquiredRecords) != 0 {
		t.Fatalf("renewal: %+v", p)
	}
	r.log.with("in", 0, func(p *fakePartition) { p.leader = 1 })
	resp := u.fetch(func(req *kmsg.ShareFetchRequest) {
		req.Topics[0].Partitions[0].AcknowledgementBatches = []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{{FirstOffset: 4, LastOffset: 4, AcknowledgeTypes: []int8{1}}}
	})
	if p := part(t, resp); p.AcknowledgeErrorCode != codeUnknownTopicOrPartition || p.ErrorCode != codeNotLeaderOrFollower || p.CurrentLeader.LeaderID != 1 || len(resp.NodeEndpoints) != 1 {
		t.Fatalf("acknowledgement at the old leader: %+v, endpoints %+v", p, resp.NodeEndpoints)
	}
}

func TestShareAcknowledgeAnswers(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	u.fetch(exactly(5))
	req := u.ackReq(batch(0, 1, acks.Accept))
	add := func(topic [16]byte, partition int32, ty int8) {
		rt := kmsg.NewShareAcknowledgeRequestTopic()
		rt.TopicID = topic
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.Partition = partition
		p.AcknowledgementBatches = []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{AcknowledgeTypes: []int8{ty}}}
		rt.Partitions = append(rt.Partitions, p)
		req.Topics = append(req.Topics, rt)
	}
	two := r.log.create("two", 2)
	add([16]byte{77}, 0, 9) // the topic is looked at first (measured)
	add(u.in, 5, 1)
	add(two, 0, 1) // not loaded
	add(two, 1, 1) // led by node 1: not loaded here (measured)
	add(two, 1, 9) // a bad type is seen before the leader
	resp := u.sendAck(req)
	var codes []int16
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			codes = append(codes, p.ErrorCode)
		}
	}
	want := []int16{codeNone, codeUnknownTopicID, codeUnknownTopicOrPartition, codeUnknownTopicOrPartition, codeUnknownTopicOrPartition, codeInvalidRequest}
	if !slices.Equal(codes, want) {
		t.Fatalf("codes %v, want %v", codes, want)
	}
	if l := resp.Topics[4].Partitions[0].CurrentLeader; l.LeaderID != 0 || l.LeaderEpoch != 0 || len(resp.NodeEndpoints) != 0 {
		t.Fatalf("hint %+v, endpoints %+v, want zeros: only fetches are told of leaders", l, resp.NodeEndpoints)
	}
	if resp.AcquisitionLockTimeoutMillis != 30000 {
		t.Fatalf("lock of %d ms", resp.AcquisitionLockTimeoutMillis)
	}
	r.wantWindow("first partition", 2, 10)
	if resp := u.sendAck(u.ackReq()); resp.ErrorCode != codeNone || len(resp.Topics) != 0 {
		t.Fatalf("no batches: code %d, %d topics named", resp.ErrorCode, len(resp.Topics))
	}
}

func TestLongPoll(t *testing.T) {
	type world struct {
		r            *rig
		parked, busy *user
	}
	for _, c := range []struct {
		name string
		do   func(*world)
		want [3]int64
		took time.Duration
	}{
		{"nothing comes", func(*world) {}, [3]int64{}, 2 * time.Second},
		{"records come", func(w *world) { w.r.add(3) }, [3]int64{10, 12, 1}, time.Second},
		{"a release", func(w *world) { w.busy.mustAck(batch(2, 3, acks.Release)) }, [3]int64{2, 3, 2}, time.Second},
		{"an accept", func(w *world) { w.busy.mustAck(batch(2, 3, acks.Accept)) }, [3]int64{}, 2 * time.Second},
		{"a session closed", func(w *world) { w.busy.closeSession() }, [3]int64{0, 9, 2}, time.Second},
		{"a connection closed", func(w *world) { w.r.e.ConnClosed(0, w.busy.conn.ID) }, [3]int64{0, 9, 2}, time.Second},
		{"an abort", func(w *world) {
			w.r.e.Outcome(7, 4, false)
		}, [3]int64{5, 9, 2}, time.Second},
		{"a leader move there and back", func(w *world) { w.r.e.LeaderChanged(w.r.in, 0) }, [3]int64{0, 9, 1}, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t.Context(), t, nil)
			w := &world{r, r.user("a"), r.user("b")}
			r.add(10)
			epoch := w.busy.join()
			w.busy.fetch()
			if strings.Contains(c.name, "abort") {
				if code := w.busy.stage(w.busy.staging(epoch, batch(5, 9, acks.Accept))); code != codeNone {
					t.Fatal(code)
				}
			}
			began := time.Now()
			time.AfterFunc(time.Second, func() { c.do(w) })
			resp := w.parked.fetch(waiting(2 * time.Second))
			if took := time.Since(began); took != c.took {
				t.Errorf("%s: answered after %v, want %v", c.name, took, c.took)
			}
			if c.want == ([3]int64{}) {
				wantGot(t, c.name, resp)
			} else {
				wantGot(t, c.name, resp, c.want)
			}
		})
	}
}

// A release by a member whose full window blocks new records wakes as well.
func TestRoomInTheWindowWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, map[string]string{configLocks: "100"})
		r.add(100)
		r.add(50)
		busy, parked := r.user("a"), r.user("b")
		wantGot(t, "full", busy.fetch(), [3]int64{0, 99, 1})
		time.AfterFunc(time.Second, func() { busy.mustAck(batch(0, 9, acks.Accept)) })
		began := time.Now()
		wantGot(t, "room", parked.fetch(waiting(time.Minute)), [3]int64{100, 149, 1})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func TestMinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, nil)
		u := r.user("a")
		atLeast := func(n int32) func(*kmsg.ShareFetchRequest) {
			return func(req *kmsg.ShareFetchRequest) { waiting(2 * time.Second)(req); req.MinBytes = n }
		}
		r.add(3)
		began := time.Now()
		wantGot(t, "too few bytes: what there is, after the wait (measured)", u.fetch(atLeast(500)), [3]int64{0, 2, 1})
		if took := time.Since(began); took != 2*time.Second {
			t.Fatalf("took %v", took)
		}
		time.AfterFunc(time.Second, func() { r.add(100) })
		began = time.Now()
		wantGot(t, "enough comes", u.fetch(atLeast(500)), [3]int64{3, 102, 1})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func TestFetchEndsWithItsContextAndEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		r := newRig(ctx, t, nil)
		u := r.user("a")
		time.AfterFunc(time.Second, cancel)
		began := time.Now()
		u.fetch(waiting(time.Hour))
		if took := time.Since(began); took != time.Second {
			t.Fatalf("context: took %v", took)
		}
		r = newRig(t.Context(), t, nil)
		u = r.user("a")
		time.AfterFunc(time.Second, r.e.Close)
		began = time.Now()
		u.fetch(waiting(time.Hour))
		if took := time.Since(began); took != time.Second {
			t.Fatalf("close: took %v", took)
		}
		r.e.Close()
	})
}

// A session that ends while its fetch reads must not acquire: nobody would
// answer for the records until their locks end.
func TestSessionEndsWhileItsFetchReads(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	fired := false
	r.log.onRead = func() {
		r.log.onRead = nil
		fired = true
		r.e.ConnClosed(u.conn.Node, u.conn.ID)
	}
	wantGot(t, "session ended", u.fetch())
	if !fired {
		t.Fatal("the fetch did not read")
	}
	r.wantWindow("nothing acquired", 0, 0)
	wantGot(t, "another member", r.user("b").fetch(), [3]int64{0, 9, 1})
}

// A member that loses the race for what it read gets the next records, now.
func TestFetchThatLosesARaceReadsOn(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	for range 5 {
		r.add(10)
	}
	fast, slow := r.user("a"), r.user("b")
	slow.fetch(exactly(1))
	slow.mustAck(batch(0, 0, acks.Release))
	races := 0
	r.log.onRead = func() {
		hook := r.log.onRead
		r.log.onRead = nil
		if races++; races < 4 {
			fast.fetch(func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 10 })
			r.log.onRead = hook
		}
	}
	wantGot(t, "slow", slow.fetch(waiting(time.Hour), func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 10 }), [3]int64{10, 19, 1})
	if races == 0 {
		t.Fatal("there was no race")
	}
}

func TestFetchTurnsAndLimits(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	two := r.log.create("two", 4) // node 0 leads 0 and 2
	for _, p := range []int32{0, 2} {
		r.log.add("two", p, 10)
		r.log.add("two", p, 10)
	}
	u := r.user("a")
	ask := func(max int32) (parts []int32) {
		resp := u.fetch(func(req *kmsg.ShareFetchRequest) {
			req.MaxRecords = max
			if u.epoch > 0 {
				req.Topics = nil
				return
			}
			req.Topics[0].TopicID = two
			req.Topics[0].Partitions = append(req.Topics[0].Partitions, req.Topics[0].Partitions[0])
			req.Topics[0].Partitions[1].Partition = 2
		})
		for _, p := range resp.Topics[0].Partitions {
			if len(p.AcquiredRecords) > 0 {
				parts = append(parts, p.Partition)
			}
		}
		return parts
	}
	if first, second := ask(10), ask(10); !slices.Equal(first, []int32{0}) || !slices.Equal(second, []int32{2}) {
		t.Fatalf("served %v and then %v", first, second)
	}
	if both := ask(500); len(both) != 2 {
		t.Fatalf("served %v of two", both)
	}
	// MaxBytes ends an answer as MaxRecords does, but never before one batch.
	for _, p := range []int32{0, 2} {
		r.log.add("two", p, 10)
	}
	if got := u.fetch(func(req *kmsg.ShareFetchRequest) { req.Topics, req.MaxBytes = nil, 1 }); len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		t.Fatalf("one byte: %+v", got.Topics)
	}
}

func TestLocksEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, map[string]string{configLock: "1000", configLimit: "2"})
		r.add(10)
		a, b := r.user("a"), r.user("b")
		resp := a.fetch()
		wantGot(t, "first", resp, [3]int64{0, 9, 1})
		if resp.AcquisitionLockTimeoutMillis != 1000 {
			t.Fatalf("lock of %d ms", resp.AcquisitionLockTimeoutMillis)
		}
		time.Sleep(600 * time.Millisecond)
		renew := a.ackReq(batch(0, 3, acks.Renew))
		renew.IsRenewAck = true
		if got := a.sendAck(renew); got.Topics[0].Partitions[0].ErrorCode != codeNone {
			t.Fatalf("renewal: %+v", got)
		}
		began := time.Now()
		wantGot(t, "not renewed", b.fetch(waiting(time.Minute)), [3]int64{4, 9, 2})
		if took := time.Since(began); took != 400*time.Millisecond {
			t.Fatalf("locks ended after %v more, want 400ms", took)
		}
		if code := a.ack(batch(4, 4, acks.Accept)); code != codeInvalidRecordState {
			t.Fatalf("late acknowledgement: %d", code)
		}
		wantGot(t, "renewed", b.fetch(waiting(time.Minute)), [3]int64{0, 3, 2})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("renewed locks ended after %v more, want 1s", took)
		}
		b.mustAck(batch(0, 1, acks.Accept))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		// Second delivery was the last: what was not accepted is archived.
		r.wantWindow("all done", 10, 10)
		if n := r.e.PartitionStates("g")[0].ArchivedAtLimit; n != 8 {
			t.Fatalf("%d offsets archived at the limit, want 8", n)
		}
	})
}

// A lock that was made shorter between acquiring and renewing ends in time.
func TestShorterLockAfterRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, nil)
		r.add(1)
		a := r.user("a")
		a.fetch()
		short := "1000"
		if err := r.e.SetGroupConfig("g", map[string]*string{configLock: &short}); err != nil {
			t.Fatal(err)
		}
		renew := a.ackReq(batch(0, 0, acks.Renew))
		renew.IsRenewAck = true
		if got := a.sendAck(renew); got.AcquisitionLockTimeoutMillis != 1000 {
			t.Fatalf("lock of %d ms", got.AcquisitionLockTimeoutMillis)
		}
		began := time.Now()
		wantGot(t, "after the shorter lock", r.user("b").fetch(waiting(time.Minute)), [3]int64{0, 0, 2})
		if took := time.Since(began); took != time.Second {
			t.Fatalf("took %v", took)
		}
	})
}

func TestWhereAGroupBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(11 * time.Minute) // the fake's offset for a time is its minute, and the clock begins at a full hour
		for reset, want := range map[string]int64{"earliest": 3, "latest": 20, resetByDuration + "PT1M": 10} {
			r := newRig(t.Context(), t, map[string]string{configReset: reset})
			r.add(20)
			r.log.with("in", 0, func(p *fakePartition) { p.Start = 3 })
			r.user("a").fetch(func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 0 })
			states := r.e.PartitionStates("g")
			if len(states) != 0 {
				t.Fatalf("%s: loaded without a fetch: %+v", reset, states)
			}
			u := r.user("b")
			u.fetch(func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 1 })
			if got := r.e.PartitionStates("g")[0].Start; got != want {
				t.Errorf("%s: begins at %d, want %d", reset, got, want)
			}
		}
	})
}

func TestReadCommittedGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t.Context(), t, map[string]string{configIsolation: isolationCommit})
		u := r.user("a")
		r.add(2)
		r.log.addTxn("in", 0, 1, 3)
		r.add(2) // 5 and 6 are behind the open transaction
		wantGot(t, "up to the last stable offset", u.fetch(), [3]int64{0, 1, 1})
		time.AfterFunc(time.Second, func() {
			r.log.endTxn("in", 0, 1, false)
			r.e.Appended()
		})
		wantGot(t, "after the abort", u.fetch(waiting(time.Minute)), [3]int64{5, 7, 1})
		r.wantState("aborted", 3, Archived, 0)
		// Aborted records in front of others: one fetch looks behind them.
		r.log.addTxn("in", 0, 1, 3)
		r.log.endTxn("in", 0, 1, false)
		r.add(1)
		wantGot(t, "behind aborted ones", u.fetch(), [3]int64{11, 12, 1})
		// Where that is all it read or may take, it brings nothing; the next goes on.
		r.log.addTxn("in", 0, 1, 3)
		r.log.endTxn("in", 0, 1, false)
		wantGot(t, "aborted ones only", u.fetch(func(req *kmsg.ShareFetchRequest) { req.MaxBytes = 1 }))
		wantGot(t, "behind a read of aborted ones", u.fetch(), [3]int64{16, 16, 1})
		r.log.addTxn("in", 0, 1, 3)
		r.log.endTxn("in", 0, 1, false)
		wantGot(t, "as many aborted ones as asked for", u.fetch(func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 3 }))
		wantGot(t, "behind as many", u.fetch(), [3]int64{20, 20, 1})
	})
}

// Members on one partition, all at once: every offset goes to one of them.
func TestConcurrentMembers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	const total = 4000
	r := newRig(ctx, t, nil)
	for range total / 20 {
		r.add(20)
	}
	var mu sync.Mutex
	seen := make(map[int64]int)
	var wg sync.WaitGroup
	for _, id := range []string{"a", "bb", "ccc", "dddd"} {
		u := r.user(id)
		wg.Go(func() {
			for {
				resp := u.send(u.ask(func(req *kmsg.ShareFetchRequest) { req.MaxRecords = 50 }))
				var bs []acks.AcknowledgementBatch
				mu.Lock()
				for _, g := range got(resp) {
					for o := g[0]; o <= g[1]; o++ {
						seen[o]++
					}
					bs = append(bs, batch(g[0], g[1], acks.Accept))
				}
				done := len(seen) == total
				mu.Unlock()
				if len(bs) > 0 {
					if code := u.ack(bs...); code != codeNone {
						t.Errorf("%s: %d", u.id, code)
						return
					}
				}
				if done || ctx.Err() != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	for o, n := range seen {
		if n != 1 {
			t.Errorf("offset %d went out %d times", o, n)
		}
	}
	r.wantWindow("all", total, total)
}

// Where there are no records there are none, not null: Java's client takes the
// whole answer for broken, and asks no more on that connection.
func TestRecordsAreNeverNull(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, map[string]string{configReset: "earliest"})
	u := r.user("a")
	empty := u.fetch()
	if got := empty.Topics; len(got) > 0 && got[0].Partitions[0].Records == nil {
		t.Error("null in an empty answer")
	}
	wrong := u.send(u.ask(func(q *kmsg.ShareFetchRequest) { q.Topics[0].Partitions[0].Partition = 99 }))
	if len(wrong.Topics) != 1 {
		t.Fatalf("an unknown partition is not answered: %+v", wrong)
	}
	for _, p := range wrong.Topics[0].Partitions {
		if p.Records == nil {
			t.Errorf("null beside code %d", p.ErrorCode)
		}
	}
}

// What was forgotten in a session stays locked when the session ends; the end of
// the group's last connection forgets that it was ever handed out.
func TestForgottenPartitionsStayLocked(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		end   func(*user)
		alone bool // no other member has a session
		state State
	}{
		"final epoch":                 {(*user).closeSession, true, Acquired},
		"connection, another session": {func(u *user) { u.e.ConnClosed(u.conn.Node, u.conn.ID) }, false, Acquired},
		"the group's last connection": {func(u *user) { u.e.ConnClosed(u.conn.Node, u.conn.ID) }, true, Available},
	} {
		r := newRig(ctx, t, nil)
		r.add(4)
		u, other := r.user("a"), r.user("b")
		wantGot(t, name, u.fetch(), [3]int64{0, 3, 1})
		u.fetch(func(req *kmsg.ShareFetchRequest) {
			f := kmsg.NewShareFetchRequestForgottenTopicsData()
			f.TopicID, f.Partitions = r.log.topics["in"].ID, []int32{0}
			req.Topics, req.ForgottenTopicsData = nil, append(req.ForgottenTopicsData, f)
		})
		if !c.alone {
			other.fetch()
		}
		c.end(u)
		if c.state == Acquired {
			r.wantState(name, 0, Acquired, 1)
			wantGot(t, name, other.fetch())
			continue
		}
		wantGot(t, name, other.fetch(), [3]int64{0, 3, 1})
	}
}
