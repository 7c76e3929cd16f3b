package integration

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Three brokers, of which some die: what a test does to them no other test may
// see, so they have a cluster of their own.
func TestThreeBrokers(t *testing.T) {
	broker(t) // skips or fails where none can be had
	ctx := testkit.Deadline(t, 90*time.Second)
	k, err := kafka.Start(ctx, t.TempDir(), 3)
	require(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Logs())
		}
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	t.Run("each is named that cannot stage", func(t *testing.T) { eachIsNamed(ctx, t, k) })
	t.Run("the coordinator dies before the commit", func(t *testing.T) { coordinatorDies(ctx, t, k) })
	t.Run("the leader dies that records are held of", func(t *testing.T) { leaderDies(ctx, t, k) })
}

func eachIsNamed(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	w := open(t, k)
	err := w.producer(t).InitTransactions(ctx)
	u, ok := errors.AsType[*sharetxn.UnsupportedError](err)
	if !ok || !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Fatalf("InitTransactions: %v", err)
	}
	for i, row := range u.Found.Brokers {
		if row.NodeID != int32(i+1) || row.Proven || row.MaxVer != -1 || row.Reason == "" {
			t.Errorf("row %d: %+v", i, row)
		}
	}
	if n := len(u.Found.Brokers); n != 3 {
		t.Errorf("%d brokers were asked", n)
	}
	for _, key := range []int16{93, 95, keyInitProducerID} {
		if n := w.tap.Seen(key); n != 0 {
			t.Errorf("%d requests with key %d", n, key)
		}
	}
}

// kill ends a broker; it is back when the test has ended, so that the next one
// never has two of three dead.
func kill(ctx context.Context, t *testing.T, k *kafka.Cluster, id int32) {
	t.Helper()
	if err := k.Kill(id); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := k.Restart(id)
		if err == nil {
			err = k.Ready(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// The outcome is told by whoever coordinates then.
func coordinatorDies(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t)
	commit(ctx, t, p, topic, "before")
	tx := began(ctx, t, p, topic, "hit")
	w.waitTxn(ctx, t, "Ongoing")
	coordinator := func() (id int32) {
		testkit.Eventually(ctx, t, "the coordinator is told", func() bool {
			c := w.adm.FindTxnCoordinators(ctx, w.name)[w.name]
			id = c.NodeID
			return c.Err == nil
		})
		return id
	}
	died := coordinator()
	kill(ctx, t, k, died)
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatalf("Commit: %v, %v", o, err)
	}
	commit(ctx, t, p, topic, "after")
	if now := coordinator(); now == died {
		t.Errorf("broker %d still coordinates: nothing was lost", now)
	}
	wantVisible(ctx, t, w, topic, "before", "hit", "after")
}

// What was held of the dead leader comes again from the next one; what was
// accepted before does not.
func leaderDies(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 1)
	const n = 10
	w.feed(ctx, t, topic, n, 1)
	c := w.consumer(t, w.group(ctx, t, nil), topic)
	var held []int64
	for got := 0; got < n; {
		b, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records() {
			if r.Offset%2 == 0 {
				r.Accept()
			} else {
				held = append(held, r.Offset)
			}
		}
		got += b.Len()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	leader := func() int32 {
		topics, err := w.adm.ListTopics(ctx, topic)
		if err != nil {
			t.Fatal(err)
		}
		return topics[topic].Partitions[0].Leader
	}
	died := leader()
	kill(ctx, t, k, died)
	var again []int64
	for len(again) < len(held) {
		b, err := c.Poll(ctx)
		if err != nil {
			t.Fatalf("%d of %d came again: %v", len(again), len(held), err)
		}
		for _, r := range b.Records() {
			again = append(again, r.Offset)
			r.Accept()
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(again, held) {
		t.Errorf("offsets %v came again, want %v", again, held)
	}
	if now := leader(); now == died {
		t.Errorf("broker %d still leads: nothing was lost", now)
	}
}
