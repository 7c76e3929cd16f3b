package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

const shortLock = 2 * time.Second

func lockOf(d time.Duration) map[string]string {
	return map[string]string{"share.record.lock.duration.ms": fmt.Sprint(d.Milliseconds())}
}

func poll(ctx context.Context, t testing.TB, c *shareconsumer.Consumer) *shareconsumer.Batch {
	t.Helper()
	b, err := c.Poll(ctx)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return b
}

func values(b *shareconsumer.Batch) (vs []string) {
	for _, r := range b.Records() {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// acceptAll commits batches until n records came, each in its first delivery
// and once; it gives their values.
func acceptAll(ctx context.Context, t testing.TB, c *shareconsumer.Consumer, n int) map[string]bool {
	t.Helper()
	seen := make(map[string]bool)
	for len(seen) < n {
		b := poll(ctx, t, c)
		for _, r := range b.Records() {
			if r.DeliveryCount() != 1 || seen[string(r.Value)] {
				t.Fatalf("%s came again, delivery %d", r.Value, r.DeliveryCount())
			}
			seen[string(r.Value)] = true
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatalf("CommitSync: %v", err)
		}
	}
	return seen
}

// lag of the test's group as the broker tells it: records that are not done;
// -1 where it cannot tell yet.
func (w *world) lag(ctx context.Context, t testing.TB) int64 {
	t.Helper()
	d, err := w.adm.DescribeShareGroupOffsets(ctx, w.name)
	if err == nil {
		err = d.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, partitions := range d[w.name].Offsets {
		for _, o := range partitions {
			if o.Err != nil {
				t.Fatal(o.Err)
			}
			if o.Lag < 0 {
				return -1
			}
			n += o.Lag
		}
	}
	return n
}

func (w *world) waitDrained(ctx context.Context, t testing.TB) {
	t.Helper()
	testkit.Eventually(ctx, t, "the group has no lag", func() bool { return w.lag(ctx, t) == 0 })
}

func TestExplicitDrains(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	const n, partitions = 2000, 3
	topic := w.topic(ctx, t, "in", partitions)
	group := w.group(ctx, t, nil)
	w.feed(ctx, t, topic, n, partitions)
	c := w.consumer(t, group, topic, shareconsumer.MaxPollRecords(170))
	began := time.Now()
	b := poll(ctx, t, c)
	t.Logf("first records after %v", time.Since(began).Round(10*time.Millisecond))
	if m := c.ShareGroupMetadata(); m.GroupID() != group {
		t.Errorf("member of group %q", m.GroupID())
	}
	first := b.Len()
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	acceptAll(ctx, t, c, n-first)
	w.waitDrained(ctx, t)
}

// The next Poll accepts what has no verdict; a verdict stands.
func TestImplicitDrains(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	const n = 60
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, nil)
	w.feed(ctx, t, topic, n, 1)
	var mu sync.Mutex
	var acked int64
	c := w.consumer(t, group, topic, shareconsumer.AcknowledgementMode(shareconsumer.Implicit), shareconsumer.MaxPollRecords(7),
		shareconsumer.OnAcknowledged(func(a shareconsumer.AckResult) {
			mu.Lock()
			defer mu.Unlock()
			if a.Err != nil {
				t.Errorf("acknowledging: %v", a.Err)
			}
			for _, b := range a.Batches {
				acked += b.Offsets()
			}
		}))
	b := poll(ctx, t, c)
	b.Records()[0].Release()
	released := string(b.Records()[0].Value)
	times := make(map[string]int)
	for {
		for _, r := range b.Records() {
			times[string(r.Value)]++
		}
		if len(times) == n && times[released] == 2 {
			break
		}
		b = poll(ctx, t, c)
	}
	delete(times, released)
	for v, n := range times {
		if n != 1 {
			t.Errorf("%s came %d times", v, n)
		}
	}
	// One more Poll accepts the last batch; it finds nothing.
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if b, err := c.Poll(short); b != nil || err == nil {
		t.Fatalf("records left over: %v, %v", b, err)
	}
	w.waitDrained(ctx, t)
	testkit.Eventually(ctx, t, "OnAcknowledged told of every record and the release", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return acked == n+1
	})
}

// Two members share the work without sharing a record, and when one leaves, what
// it had not decided goes to the other at once.
func TestTwoMembers(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	const n, partitions = 400, 4
	topic := w.topic(ctx, t, "in", partitions)
	group := w.group(ctx, t, nil)
	members := []*shareconsumer.Consumer{
		w.consumer(t, group, topic, shareconsumer.MaxPollRecords(20)),
		w.consumer(t, group, topic, shareconsumer.MaxPollRecords(20)),
	}
	// Both join before there is anything to read.
	for _, m := range members {
		idle, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_, _ = m.Poll(idle)
		cancel()
	}
	testkit.Eventually(ctx, t, "two members with an assignment", func() bool {
		d, err := w.adm.DescribeShareGroups(ctx, group)
		if err != nil || len(d[group].Members) != 2 {
			return false
		}
		for _, m := range d[group].Members {
			if len(m.Assignment.Sorted()) == 0 {
				return false
			}
		}
		return true
	})
	w.feed(ctx, t, topic, n, partitions)

	var mu sync.Mutex
	seen := make(map[string]int)
	var work sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	defer stop()
	share := make([]int, len(members))
	for i, m := range members {
		work.Go(func() {
			for b, err := range m.Batches(working) {
				if err != nil {
					t.Errorf("member %d: %v", i, err)
					return
				}
				b.AcceptRest()
				vs := values(b)
				if err := b.CommitSync(ctx); err != nil {
					t.Errorf("member %d: %v", i, err)
				}
				mu.Lock()
				for _, v := range vs {
					seen[v]++
				}
				share[i] += len(vs)
				if len(seen) == n {
					stop()
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	for v, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", v, times)
		}
	}
	if len(seen) != n || share[0] == 0 || share[1] == 0 {
		t.Errorf("%d of %d records, shared %v", len(seen), n, share)
	}
	w.waitDrained(ctx, t)
}

// What is released comes again at once, counted; what is rejected never.
func TestRedelivery(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, nil)
	w.feed(ctx, t, topic, 3, 1)
	c := w.consumer(t, group, topic)
	b := poll(ctx, t, c)
	if got := values(b); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Fatalf("first delivery: %v", got)
	}
	b.Records()[0].Accept()
	b.Records()[1].Release()
	b.Records()[2].Reject()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	again := poll(ctx, t, c)
	if got := values(again); !slices.Equal(got, []string{"1"}) || again.Records()[0].DeliveryCount() != 2 {
		t.Fatalf("second delivery: %v, count %d", got, again.Records()[0].DeliveryCount())
	}
	again.AcceptRest()
	if err := again.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	w.waitDrained(ctx, t)
}

// When a lock ends the record goes to another member, and the first cannot
// accept it any more.
func TestLockExpiry(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, lockOf(shortLock))
	w.feed(ctx, t, topic, 2, 1)
	slow := w.consumer(t, group, topic)
	b := poll(ctx, t, slow)
	deadline := b.Deadline()
	if left := time.Until(deadline); left <= 0 || left > shortLock {
		t.Errorf("the lock has %v left of %v", left, shortLock)
	}
	other := w.consumer(t, group, topic)
	again := poll(ctx, t, other)
	if time.Now().Before(deadline) {
		t.Errorf("another member had the records %v before our deadline", time.Until(deadline))
	}
	if got := values(again); !slices.Equal(got, []string{"0", "1"}) || again.Records()[0].DeliveryCount() != 2 {
		t.Fatalf("after expiry: %v, delivery %d", got, again.Records()[0].DeliveryCount())
	}
	b.AcceptRest()
	if err := b.CommitSync(ctx); err == nil {
		t.Error("accepted after the lock had gone to another member")
	}
	again.AcceptRest()
	if err := again.CommitSync(ctx); err != nil {
		t.Errorf("who holds the records cannot accept them: %v", err)
	}
	w.waitDrained(ctx, t)
}

// KeepLocked holds records over several lock durations.
func TestRenewedLocksHold(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, lockOf(shortLock))
	w.feed(ctx, t, topic, 5, 1)
	keeper := w.consumer(t, group, topic)
	b := poll(ctx, t, keeper)
	first := b.Deadline()
	b.KeepLocked(time.Minute)
	// The other member would get the records if any lock ended.
	other := w.consumer(t, group, topic)
	over, cancel := context.WithDeadline(ctx, first.Add(2*shortLock))
	defer cancel()
	if got, err := other.Poll(over); got != nil || err == nil {
		t.Fatalf("a kept record came to another member: %v, %v", got, err)
	}
	if err := b.Renew(ctx); err != nil {
		t.Errorf("Renew: %v", err)
	}
	if d := b.Deadline(); d.Before(first.Add(2 * shortLock)) {
		t.Errorf("deadline moved from %v to %v only", first, d)
	}
	n := b.Len()
	b.AcceptRest()
	if err := b.CommitSync(ctx); err != nil || n != 5 {
		t.Errorf("accepting %d records after renewals: %v", n, err)
	}
	w.waitDrained(ctx, t)
}

// Close gives back at once what is undecided; what was committed stays so.
func TestCloseHandsBack(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, lockOf(time.Minute)) // far beyond the test
	w.feed(ctx, t, topic, 4, 1)
	c := w.consumer(t, group, topic)
	b := poll(ctx, t, c)
	b.Records()[0].Accept()
	if err := b.CommitSync(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	next := w.consumer(t, group, topic)
	got := make(map[string]int32)
	for len(got) < 3 {
		b := poll(ctx, t, next)
		for _, r := range b.Records() {
			got[string(r.Value)] = r.DeliveryCount()
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if want := map[string]int32{"1": 2, "2": 2, "3": 2}; !maps.Equal(got, want) {
		t.Errorf("the next member got %v, want %v", got, want)
	}
	w.waitDrained(ctx, t)
}
