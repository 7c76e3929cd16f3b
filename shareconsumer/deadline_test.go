package shareconsumer

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A lock begins when the broker handles a fetch, or a renewal, not when its answer
// is there: however late that comes, a deadline is never after the lock's end.
func TestDeadlinesBeginBeforeTheAnswer(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	const lock = 20 * time.Second
	c := startCluster(t, lock)
	c.feedTo(ctx, t, 1, 1)
	var mu sync.Mutex
	var acquired, renewed time.Time // when the broker was through with it, so after the lock began
	c.SetIntercept(func(r broker.Request) broker.Action {
		note := func(at *time.Time) { mu.Lock(); defer mu.Unlock(); *at = time.Now() }
		switch r.Key {
		case keyShareFetch:
			return broker.Action{Late: 300 * time.Millisecond, After: func(resp kmsg.Response) {
				for _, topic := range resp.(*kmsg.ShareFetchResponse).Topics {
					for _, p := range topic.Partitions {
						if len(p.AcquiredRecords) > 0 {
							note(&acquired)
						}
					}
				}
			}}
		case keyShareAck:
			return broker.Action{Late: 300 * time.Millisecond, After: func(kmsg.Response) { note(&renewed) }}
		}
		return broker.Action{}
	})
	b := poll(ctx, t, c.consumer(t))
	first := b.Deadline()
	if err := b.Renew(ctx); err != nil {
		t.Fatal(err)
	}
	second := b.Deadline()
	mu.Lock()
	defer mu.Unlock()
	if acquired.IsZero() || renewed.IsZero() {
		t.Fatal("the broker was not seen at work")
	}
	if over := first.Sub(acquired.Add(lock)); over > 0 {
		t.Errorf("the deadline is %v after the lock's end", over)
	}
	if over := second.Sub(renewed.Add(lock)); over > 0 || !second.After(first) {
		t.Errorf("renewed, the deadline is %v after the lock's end, and %v after the one before", over, second.Sub(first))
	}
}

// Lost records are neither bound nor, after a commit, acknowledged: who has their
// next delivery decides.
func TestLostRecordsStayOutOfTransactions(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := startCluster(t, 30*time.Second)
	c.feedTo(ctx, t, 2, 2)
	m := c.consumer(t, AcknowledgementMode(Transactional))
	ours := make(map[int32]*Batch) // by partition
	for len(ours) < 2 {
		b := poll(ctx, t, m)
		for _, r := range b.Records() {
			part, err := b.Split(r)
			if err != nil {
				t.Fatal(err)
			}
			ours[r.Partition] = part
		}
	}
	lost := errors.New("lost")
	lose := func(b *Batch) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.lose(lost, func(l *lease) bool { return l == b.records[0].lease })
	}

	for _, b := range ours {
		if err := b.Bind().Hold(); err != nil {
			t.Fatal(err)
		}
		b.AcceptRest()
		if _, err := b.Bind().Freeze(ctx); err != nil {
			t.Fatal(err)
		}
	}
	lose(ours[0])
	for _, b := range ours {
		s := settlement(sharetxn.Committed, false)
		s.Plain = true
		b.Bind().Settle(s)
	}
	if err := m.Close(); err != nil { // sends what is queued
		t.Fatal(err)
	}
	if done, _, _, _ := c.totals(); done != 1 {
		t.Errorf("%d records are done, want the one that is ours", done)
	}

	_, m, b := transactional(t, 30*time.Second, 1)
	m.mu.Lock()
	m.lose(lost, func(*lease) bool { return true })
	m.mu.Unlock()
	if err := b.Bind().Hold(); !errors.Is(err, sharetxn.ErrStale) || !errors.Is(err, lost) {
		t.Errorf("a batch with a lost record was bound: %v", err)
	}
}
