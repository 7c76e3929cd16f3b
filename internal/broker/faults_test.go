package broker

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initX asks for a producer id on a connection of its own.
func initX(name string) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = 4, &name, 1000, -1, -1
	return req
}

// Each Action does what it says, to the request it was for and to no other.
func TestIntercept(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{})
	epoch := func(name string) int16 {
		for _, v := range c.Transactions() {
			if v.ID == name {
				return v.ProducerEpoch
			}
		}
		return -1
	}
	// once gives the Action to the next InitProducerId.
	once := func(act func(Request) Action) *atomic.Int32 {
		var fired atomic.Int32
		c.SetIntercept(func(r Request) Action {
			if r.Key != keyInitProducerID || fired.Add(1) > 1 {
				return Action{}
			}
			return act(r)
		})
		return &fired
	}
	works := func(t *testing.T) {
		t.Helper()
		w := dial(ctx, t, c, 0)
		req := initX("neighbour")
		w.send(req)
		wantCode(t, "the neighbour", w.receive(req).(*kmsg.InitProducerIDResponse).ErrorCode, 0)
	}

	t.Run("lose the request", func(t *testing.T) {
		fired := once(func(Request) Action { return Action{LoseRequest: true} })
		w := dial(ctx, t, c, 0)
		w.send(initX("lost request"))
		w.wantCut()
		if fired.Load() != 1 || epoch("lost request") != -1 {
			t.Fatalf("fired %d times, epoch %d", fired.Load(), epoch("lost request"))
		}
		works(t)
	})
	t.Run("lose the answer", func(t *testing.T) {
		once(func(Request) Action { return Action{LoseAnswer: true} })
		w := dial(ctx, t, c, 0)
		w.send(initX("lost answer"))
		w.wantCut()
		if epoch("lost answer") != 0 {
			t.Fatal("the request was not handled")
		}
		works(t)
	})
	t.Run("answer", func(t *testing.T) {
		once(func(r Request) Action {
			resp := r.Message().ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode = 53
			return Action{Answer: resp}
		})
		w := dial(ctx, t, c, 0)
		req := initX("answered")
		w.send(req)
		wantCode(t, "answer", w.receive(req).(*kmsg.InitProducerIDResponse).ErrorCode, 53)
		if epoch("answered") != -1 {
			t.Fatal("the request was handled")
		}
		works(t)
	})
	t.Run("after", func(t *testing.T) {
		once(func(Request) Action {
			return Action{After: func(resp kmsg.Response) { resp.(*kmsg.InitProducerIDResponse).ProducerEpoch = 99 }}
		})
		w := dial(ctx, t, c, 0)
		req := initX("changed")
		w.send(req)
		if got := w.receive(req).(*kmsg.InitProducerIDResponse).ProducerEpoch; got != 99 || epoch("changed") != 0 {
			t.Fatalf("answered epoch %d, real %d", got, epoch("changed"))
		}
	})
	t.Run("wait", func(t *testing.T) {
		seen, release := make(chan Request, 1), make(chan struct{})
		once(func(r Request) Action { seen <- r; return Action{Wait: release} })
		w := dial(ctx, t, c, 0)
		req := initX("waited")
		w.send(req)
		r := <-seen
		works(t)
		if epoch("waited") != -1 {
			t.Fatal("handled before its time")
		}
		if m, ok := r.Message().(*kmsg.InitProducerIDRequest); !ok || *m.TransactionalID != "waited" || r.Key != keyInitProducerID || r.Version != 4 || r.Nth < 1 {
			t.Fatalf("request %+v", r)
		}
		close(release)
		wantCode(t, "answer", w.receive(req).(*kmsg.InitProducerIDResponse).ErrorCode, 0)
	})
	t.Run("wait, and the client goes", func(t *testing.T) {
		never := make(chan struct{})
		seen := make(chan struct{})
		once(func(Request) Action { close(seen); return Action{Wait: never} })
		w := dial(ctx, t, c, 0)
		w.send(initX("gone"))
		<-seen
		_ = w.Close()
		testkit.Eventually(ctx, t, "the connection is forgotten", func() bool { return c.brokers[0].Conns() == 0 })
		if epoch("gone") != -1 {
			t.Fatal("the request of a client that left was handled")
		}
	})
	t.Run("disconnect", func(t *testing.T) {
		once(func(Request) Action { return Action{Disconnect: true} })
		w := dial(ctx, t, c, 0)
		req := initX("disconnected")
		w.send(req)
		wantCode(t, "answer", w.receive(req).(*kmsg.InitProducerIDResponse).ErrorCode, 0)
		w.wantCut()
		works(t)
	})
	t.Run("twice", func(t *testing.T) {
		answers := 0
		once(func(Request) Action { return Action{Twice: true, After: func(kmsg.Response) { answers++ }} })
		w := dial(ctx, t, c, 0)
		req := initX("twice")
		w.send(req)
		if got := w.receive(req).(*kmsg.InitProducerIDResponse).ProducerEpoch; got != 0 || epoch("twice") != 1 {
			t.Fatalf("answered epoch %d, real %d", got, epoch("twice"))
		}
		if answers != 1 {
			t.Errorf("After saw %d answers: the second goes nowhere", answers)
		}
		w.send(req) // one answer was sent, not two
		if got := w.receive(req).(*kmsg.InitProducerIDResponse).ProducerEpoch; got != 2 {
			t.Fatalf("answered epoch %d", got)
		}
		works(t)
	})
	t.Run("before and then", func(t *testing.T) {
		var before, then int16
		once(func(Request) Action {
			return Action{Before: func() { before = epoch("observed") }, Then: func() { then = epoch("observed") }}
		})
		w := dial(ctx, t, c, 0)
		req := initX("observed")
		w.send(req)
		w.receive(req)
		if before != -1 || then != 0 {
			t.Fatalf("epoch %d before, %d then", before, then)
		}
	})
	t.Run("stop the node itself", func(t *testing.T) {
		for name, tc := range map[string]struct {
			act   Action
			epoch int16
		}{
			"stopped before": {Action{Before: func() { c.StopNode(0) }}, -1},
			"stopped then":   {Action{Then: func() { c.StopNode(0) }}, 0},
		} {
			once(func(Request) Action { return tc.act })
			w := dial(ctx, t, c, 0)
			w.send(initX(name))
			w.wantCut()
			testkit.Eventually(ctx, t, "the node can be started", func() bool { return c.StartNode(0) == nil })
			if got := epoch(name); got != tc.epoch {
				t.Errorf("%s: epoch %d, want %d", name, got, tc.epoch)
			}
			works(t)
		}
	})
	t.Run("staging is decoded", func(t *testing.T) {
		got := make(chan kmsg.Request, 1)
		c.SetIntercept(func(r Request) Action {
			if r.Key == wire.Draft95.Key() {
				got <- r.Message()
			}
			return Action{}
		})
		w := dial(ctx, t, c, 0)
		w.send(handshake(wire.Draft95))
		w.receive(handshake(wire.Draft95))
		if _, ok := (<-got).(*wire.Request); !ok {
			t.Fatal("not decoded")
		}
	})
	c.SetIntercept(nil)
	works(t)
}

// Close waits for what an Action runs, also when its client has gone.
func TestCloseWaitsForDeeds(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{})
	began, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	c.SetIntercept(func(Request) Action {
		return Action{Before: func() { close(began); <-release; ended.Store(true) }}
	})
	dial(ctx, t, c, 0).send(initX("x"))
	<-began
	time.AfterFunc(20*time.Millisecond, func() { close(release) })
	c.Close()
	if !ended.Load() {
		t.Error("closed before it ended")
	}
}

// A stopped node cuts its connections and refuses new ones; started again it
// is at the same address with the same data.
func TestStopAndStartNode(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 3}})
	const n = 30
	feed(ctx, t, c, "in", n)
	seeds := c.Seeds()
	w, other := dial(ctx, t, c, 1), dial(ctx, t, c, 2)
	if err := c.StartNode(1); err == nil {
		t.Fatal("a node that runs was started")
	}
	c.StopNode(1)
	w.wantCut()
	c.StopNode(1) // again: nothing
	if conn, err := new(net.Dialer).DialContext(ctx, "tcp", seeds[1]); err == nil {
		_ = conn.Close()
		t.Fatal("a stopped node takes connections")
	}
	req := kmsg.NewPtrApiVersionsRequest()
	other.send(req)
	other.receive(req)
	if err := c.StartNode(1); err != nil {
		t.Fatal(err)
	}
	if got := c.Seeds(); !slices.Equal(got, seeds) {
		t.Fatalf("seeds %v, before %v", got, seeds)
	}
	r := client(t, c, kgo.ConsumeTopics("in"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for got := 0; got < n; {
		got += r.PollFetches(ctx).NumRecords()
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records", got, n)
		}
	}
}

// Leaders are placed in turn, and moved; producers and share consumers follow.
func TestMoveLeader(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 7}, GroupConfigs: earliest, HeartbeatInterval: 100 * time.Millisecond})
	for p := range int32(7) {
		if got := c.Leader("in", p); got != p%3 {
			t.Errorf("partition %d is led by %d", p, got)
		}
	}
	if err := c.MoveLeader("in", 0, 9); err == nil {
		t.Error("moved to a node that is not there")
	}
	const n = 500
	feed(ctx, t, c, "in", n)
	member := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"), kgo.ShareMaxRecords(20))
	seen := make(map[string]bool)
	for moves := 0; len(seen) < n; {
		fs := member.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records", len(seen), n)
		}
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true; r.Ack(kgo.AckAccept) })
		if moves < 5 {
			if err := c.MoveLeader("in", int32(moves), (c.Leader("in", int32(moves))+1)%3); err != nil {
				t.Fatal(err)
			}
			moves++
		}
	}
	if got := c.Leader("in", 0); got != 1 {
		t.Errorf("partition 0 is led by %d after the move", got)
	}
	// What a member held when the leader moved comes again, so the rest is drained.
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			fs := member.PollFetches(ctx)
			if fs.IsClientClosed() || ctx.Err() != nil {
				return
			}
			fs.EachRecord(func(r *kgo.Record) { r.Ack(kgo.AckAccept) })
		}
	}()
	waitDrained(ctx, t, c, "g", "in", n)
	member.Close()
	<-done
}

// A node asked about another node's partition or transactional id says so, and
// FindCoordinator names the right one.
func TestWrongNode(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3})
	cl := client(t, c)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKeys = 1, []string{"x"}
	found := ask[*kmsg.FindCoordinatorResponse](ctx, t, cl, find).Coordinators[0].NodeID
	for node := range 3 {
		resp, err := cl.Broker(node).Request(ctx, initX("x"))
		if err != nil {
			t.Fatal(err)
		}
		want := error(kerr.NotCoordinator)
		if int32(node) == found {
			want = nil
		}
		if err := kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode); !errors.Is(err, want) {
			t.Errorf("node %d: %v, want %v", node, err, want)
		}
	}
}

// A produce that a node does not lead begins no transaction.
func TestProduceAtWrongNode(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"out": 3}})
	p := producer(t, c)
	write(ctx, t, p, "a")
	led := view(c).Partitions[0].Partition
	other := (led + 1) % 3
	k := key(ctx, t, p)
	x := "x"
	records := make([]byte, batchMin)
	binary.BigEndian.PutUint64(records[batchProducerID:], uint64(k.ProducerID))
	binary.BigEndian.PutUint16(records[batchProducerEpoch:], uint16(k.ProducerEpoch))
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = 12, &x, -1, 1000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "out", Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: other, Records: records}}}}
	for _, tc := range []struct {
		node  int32
		code  int16
		parts int // of the transaction, afterwards
	}{{led, codeNotLeader, 1}, {(led + 2) % 3, codeNotLeader, 1}, {other, 2, 2}} { // the leader finds the records corrupt
		w := dial(ctx, t, c, int(tc.node))
		w.send(req)
		wantCode(t, "produce", w.receive(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, tc.code)
		if got := view(c).Partitions; len(got) != tc.parts {
			t.Fatalf("after node %d: partitions %v", tc.node, got)
		}
	}
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	wantSettled(t, c, "out")
}
