package shareconsumer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A broker that never answers the close of its session does not keep the member
// in the group, and releases the records when the connection ends.
func TestCloseWithASilentBroker(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t, CloseTimeout(2*time.Second))
	gather(ctx, t, m, 3)
	silent := c.Leader("in", 1)
	never := make(chan struct{})
	defer close(never)
	asked := make(chan struct{}, 10)
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == keyShareAck && r.Node == silent {
			asked <- struct{}{}
			return broker.Action{Wait: never}
		}
		return broker.Action{}
	})
	began := time.Now()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 2*time.Second+500*time.Millisecond {
		t.Fatalf("Close took %v", took)
	}
	if len(asked) == 0 {
		t.Fatal("the silent broker was never asked")
	}
	if code := rawLeave(ctx, t, c, m.id); code == 0 {
		t.Fatal("the member is in the group still")
	}
	testkit.Eventually(ctx, t, "all are released", func() bool {
		done, av, ac, _ := c.totals()
		return done == 0 && av == 3 && ac == 0
	})
}

// Where nobody answers at all Close says so, in its bound, and leaves nothing
// running.
func TestCloseWithoutACluster(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t, CloseTimeout(time.Second))
	rs := gather(ctx, t, m, 3)
	never := make(chan struct{})
	defer close(never)
	c.SetIntercept(func(broker.Request) broker.Action { return broker.Action{Wait: never} })
	rs[0].Accept()
	if err := rs[0].batch.CommitAsync(); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	err := m.Close()
	if took := time.Since(began); took > 2*time.Second {
		t.Fatalf("Close took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Close: %v", err)
	}
}

// Close while polls wait, while nothing was ever polled, and while the join is
// under way.
func TestCloseAtAnyMoment(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	idle := c.consumer(t)
	if err := idle.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := idle.Poll(ctx); !errors.Is(err, sharetxn.ErrClosed) {
		t.Fatalf("Poll: %v", err)
	}

	waiting := c.consumer(t)
	polls := make(chan error, 3)
	for range cap(polls) {
		go func() { _, err := waiting.Poll(ctx); polls <- err }()
	}
	testkit.Eventually(ctx, t, "the polls wait", func() bool {
		waiting.mu.Lock()
		defer waiting.mu.Unlock()
		return waiting.polling == cap(polls)
	})
	if err := waiting.Close(); err != nil {
		t.Fatal(err)
	}
	for range cap(polls) {
		if err := <-polls; !errors.Is(err, sharetxn.ErrClosed) {
			t.Fatalf("Poll: %v", err)
		}
	}

	joining := c.consumer(t)
	held := make(chan string, 1)
	free := make(chan struct{})
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareGroupHeartbeatRequest); ok && req.MemberEpoch == 0 {
			held <- req.MemberID
			return broker.Action{Wait: free}
		}
		return broker.Action{}
	})
	go func() { _, err := joining.Poll(ctx); polls <- err }()
	member := <-held
	closed := make(chan error)
	go func() { closed <- joining.Close() }()
	if err := <-polls; !errors.Is(err, sharetxn.ErrClosed) {
		t.Fatalf("Poll: %v", err)
	}
	close(free) // the join arrives after all; leaving comes behind it
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if code := rawLeave(ctx, t, c, member); code == 0 {
		t.Fatal("the member is in the group still")
	}
}

// Leaving the loop in Implicit mode gives the last batch back; going on accepts
// it.
func TestImplicitBatches(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 9, 1)
	m := c.consumer(t, AcknowledgementMode(Implicit), MaxPollRecords(3))
	n := 0
	for b, err := range m.Batches(ctx) {
		if err != nil || b.Len() != 3 {
			t.Fatalf("%v", err)
		}
		if n++; n == 3 {
			break
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if done, av, ac, _ := c.totals(); done != 6 || av != 3 || ac != 0 {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
}

// A coordinator that never answers the leave: Close says so in its bound, and
// all that was held is back nevertheless, since the sessions are closed before.
func TestCloseWithASilentCoordinator(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t, CloseTimeout(time.Second))
	gather(ctx, t, m, 3)
	never := make(chan struct{})
	defer close(never)
	silent := c.onKey(keyShareBeat, 1, func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareGroupHeartbeatRequest); !ok || req.MemberEpoch != leaveEpoch {
			return broker.Action{}
		}
		return broker.Action{Wait: never}
	})
	began := time.Now()
	err := m.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("Close took %v", took)
	}
	if !errors.Is(err, context.DeadlineExceeded) || silent.Load() != 1 {
		t.Errorf("Close: %v; %d leaves held up", err, silent.Load())
	}
	if done, av, ac, _ := c.totals(); done != 0 || av != 3 || ac != 0 {
		t.Errorf("done %d, available %d, acquired %d", done, av, ac)
	}
}

// Close twice, and from many goroutines at once while polls wait and others
// settle batches: one does the work, all return when it is done, and nothing is
// acknowledged that nobody decided.
func TestCloseTwiceAndAtOnce(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 25*time.Second, &w)
	c.feed(ctx, t, 9)
	m := c.consumer(t, MaxPollRecords(3))
	first := poll(ctx, t, m)
	first.AcceptRest()
	n := int64(first.Len())
	if err := first.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, err := range m.Batches(ctx) { // closes what it gave
				if err != nil {
					t.Errorf("Batches: %v", err)
				}
			}
		})
		wg.Go(func() {
			if err := m.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
			if left := kept(&w, &w.members); left[len(left)-1].Event != sharetxn.MemberLeft {
				t.Errorf("Close returned before the member had left: %+v", left)
			}
		})
	}
	wg.Wait()
	if err := m.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
	if code := rawLeave(ctx, t, c, m.id); code == 0 {
		t.Error("the member is in the group still")
	}
	if done, _, ac, _ := c.totals(); done != n || ac != 0 {
		t.Errorf("done %d of %d, acquired %d", done, n, ac)
	}
	leaves := 0
	for _, e := range w.events() {
		if e == sharetxn.MemberLeft {
			leaves++
		}
	}
	if leaves != 1 {
		t.Errorf("left %d times", leaves)
	}
	// A batch of a closed consumer refuses what it must, and Close of it is harmless.
	if err := first.CommitSync(ctx); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("CommitSync: %v", err)
	}
	first.Close()
}
