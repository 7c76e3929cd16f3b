package shareconsumer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

const keyShareAck = 79

// Release brings a record back, Reject and Accept end it.
func TestVerdicts(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 10*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t)
	released := ""
	for _, r := range gather(ctx, t, m, 3) {
		switch string(r.Value) {
		case "0":
			r.Accept()
		case "1":
			r.Reject()
		default:
			r.Accept()
			r.Release() // the last verdict counts
			released = string(r.Value)
		}
		if err := r.batch.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	again := gather(ctx, t, m, 1)[0]
	if string(again.Value) != released || again.DeliveryCount() != 2 {
		t.Fatalf("%s came back, delivery %d; released was %s", again.Value, again.DeliveryCount(), released)
	}
	again.Accept()
	if err := again.batch.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	c.waitDone(ctx, t, 3)
}

// One record whose lock has ended fails alone; its neighbours in the same
// request are taken.
func TestOneBadRangeFailsAlone(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 10*time.Second)
	const n = 30
	c.feed(ctx, t, n)
	m := c.consumer(t)
	rs := gather(ctx, t, m, n)
	if err := m.Drain(ctx); err != nil { // or it may fetch the victim ahead
		t.Fatal(err)
	}
	var victim *Record
	all := make(map[*Batch]bool)
	for _, r := range rs {
		all[r.batch] = true
		if string(r.Value) == "13" {
			victim = r
		}
		r.Accept()
	}
	// behind the batch's back: the record is released on the wire
	victim.Release()
	m.mu.Lock()
	m.plain([]*Record{victim}, false)
	m.mu.Unlock()
	testkit.Eventually(ctx, t, "the victim is available", func() bool {
		_, av, _, _ := c.totals()
		return av == 1
	})
	victim.Accept()
	var errs []error
	for b := range all {
		errs = append(errs, b.CommitSync(ctx))
	}
	err := errors.Join(errs...)
	var re *sharetxn.RecordsError
	if !errors.Is(err, kerr.InvalidRecordState) || !errors.As(err, &re) || len(re.Offsets) != 1 || re.Offsets[0] != victim.Offset || re.More != 0 {
		t.Fatalf("want INVALID_RECORD_STATE for offset %d alone, got %v", victim.Offset, err)
	}
	testkit.Eventually(ctx, t, "the neighbours are done", func() bool {
		done, av, ac, _ := c.totals()
		return done == n-1 && av+ac == 1
	})
}

func TestImplicitAcceptsWithTheNextPoll(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 10*time.Second)
	const n = 60
	c.feed(ctx, t, n)
	var mu sync.Mutex
	acked := 0
	m := c.consumer(t, AcknowledgementMode(Implicit), MaxPollRecords(7), OnAcknowledged(func(a AckResult) {
		mu.Lock()
		defer mu.Unlock()
		for _, b := range a.Batches {
			acked += int(b.Offsets())
		}
		if a.Err != nil {
			t.Errorf("%v: %v", a.Partition, a.Err)
		}
	}))
	b := poll(ctx, t, m)
	if done, _, _, _ := c.totals(); done != 0 {
		t.Fatal("acknowledged before the next poll")
	}
	rejected := b.Records()[0]
	rejected.Reject()
	for seen := b.Len(); seen < n; {
		seen += poll(ctx, t, m).Len()
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	// the last batches were never polled past: they are released, not accepted
	done, av, ac, _ := c.totals()
	if done == n || av == 0 || ac != 0 || done+av != n {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
	mu.Lock()
	defer mu.Unlock()
	if int64(acked) != done {
		t.Fatalf("told of %d acknowledged, the brokers have %d", acked, done)
	}
}

func TestCloseHandsBack(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	const n = 12
	c.feed(ctx, t, n)
	m := c.consumer(t)
	rs := gather(ctx, t, m, n)
	rs[0].Accept()
	if err := rs[0].batch.CommitAsync(); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	done, av, ac, _ := c.totals()
	if done != 1 || av != n-1 || ac != 0 {
		t.Fatalf("done %d, available %d, acquired %d", done, av, ac)
	}
	for name, err := range map[string]error{"Poll": func() error { _, err := m.Poll(ctx); return err }(), "CommitSync": rs[1].batch.CommitSync(ctx)} {
		if !errors.Is(err, sharetxn.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	}
	// the neighbouring case: another member gets them at once
	gather(ctx, t, c.consumer(t), n-1)
}

func TestPollEndsWithItsContext(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 10*time.Second)
	m := c.consumer(t)
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if b, err := m.Poll(short); b != nil || !errors.Is(err, short.Err()) {
		t.Fatalf("%v, %v", b, err)
	}
	c.feed(ctx, t, 3)
	gather(ctx, t, m, 3)
}

// Two members share the partitions and nothing is delivered twice; when one
// leaves the other goes on.
func TestTwoMembers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := startCluster(t, 20*time.Second)
	const n = 300
	c.feed(ctx, t, n)
	a, b := c.consumer(t, MaxPollRecords(10)), c.consumer(t, MaxPollRecords(10))
	var wg sync.WaitGroup
	all := make(chan struct{})
	for _, m := range []*Consumer{a, b} {
		wg.Go(func() {
			for batch, err := range m.Batches(ctx) {
				if err != nil {
					t.Error(err)
					return
				}
				batch.AcceptRest()
				if err := batch.CommitSync(ctx); err != nil {
					t.Error(err)
				}
				for _, r := range batch.Records() {
					t.Errorf("%s is left in a committed batch", where(r))
				}
			}
		})
	}
	go func() { c.waitDone(ctx, t, n); close(all) }()
	select {
	case <-all:
	case <-ctx.Done():
		t.Fatal("not drained")
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	c.feed(ctx, t, 30)
	c.waitDone(ctx, t, n+30)
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
}

// A connection that is cut between poll and commit: the acknowledgement fails
// visibly, and the records come back.
func TestCutConnection(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t)
	rs := gather(ctx, t, m, 3)
	var cut atomic.Int32
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == keyShareAck && cut.CompareAndSwap(0, 1) {
			return broker.Action{LoseRequest: true}
		}
		return broker.Action{}
	})
	rs[0].Accept()
	err := rs[0].batch.CommitSync(ctx)
	if cut.Load() != 1 || sharetxn.ClassOf(err) != sharetxn.ClassUnknown {
		t.Fatalf("cut %d times, %v", cut.Load(), err)
	}
	again := gather(ctx, t, m, 1)[0]
	if string(again.Value) != string(rs[0].Value) || again.DeliveryCount() != 2 {
		t.Fatalf("%s delivery %d", again.Value, again.DeliveryCount())
	}
	again.Accept()
	if err := again.batch.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	for _, r := range rs[1:] { // other brokers' sessions were not touched
		r.Accept()
		if err := r.batch.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, 3)
}

// The coordinator forgets the member: it rejoins, what it held is refused, and
// comes back.
func TestFencedMemberRejoins(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t)
	rs := gather(ctx, t, m, 3)
	before := m.ShareGroupMetadata()
	if before.IsZero() || before.GroupID() != "g" {
		t.Fatalf("member %v", before)
	}
	if code := rawLeave(ctx, t, c, before.MemberID()); code != 0 {
		t.Fatalf("leave answered %d", code)
	}
	testkit.Eventually(ctx, t, "the member noticed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return rs[0].lease.lost != nil
	})
	rs[0].Accept()
	if err := rs[0].batch.CommitSync(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("committed what it does not hold: %v", err)
	}
	for _, r := range gather(ctx, t, m, 3) {
		if r.DeliveryCount() != 2 {
			t.Fatalf("%s delivery %d", where(r), r.DeliveryCount())
		}
		r.Accept()
		if err := r.batch.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if after := m.ShareGroupMetadata(); after.MemberID() != before.MemberID() {
		t.Fatal("the member id changed")
	}
	c.waitDone(ctx, t, 3)
}

// A partition's leader moves: what was acquired there is refused and comes
// back from the new leader.
func TestLeaderMove(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feed(ctx, t, 3)
	m := c.consumer(t)
	rs := gather(ctx, t, m, 3)
	r := rs[0]
	from := c.Leader("in", r.Partition)
	if err := c.MoveLeader("in", r.Partition, (from+1)%3); err != nil {
		t.Fatal(err)
	}
	r.Accept()
	if err := r.batch.CommitSync(ctx); err == nil {
		t.Fatal("an acknowledgement at the old leader was taken")
	}
	again := gather(ctx, t, m, 1)[0]
	if again.Partition != r.Partition || again.Offset != r.Offset || c.Leader("in", r.Partition) == from {
		t.Fatalf("got %s", where(again))
	}
	again.Accept()
	if err := again.batch.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
}
