package integration

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// The broker that matters most at that moment dies.
func TestFailover(t *testing.T) {
	ctx := testkit.Deadline(t, 3*time.Minute)
	k := three(ctx, t)
	var died int32
	t.Run("the coordinator between produce and commit", func(t *testing.T) { died = coordinatorDies(ctx, t, k) })
	if t.Failed() {
		return // with another one dead there would be no majority
	}
	if err := k.Restart(died); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	t.Run("the leader of records that are held", func(t *testing.T) { leaderDies(ctx, t, k) })
}

// coordinatorDies: the outcome is told by whoever coordinates then.
func coordinatorDies(ctx context.Context, t *testing.T, k *kafka.Cluster) (died int32) {
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t)
	coordinator := func() (id int32) {
		testkit.Eventually(ctx, t, "the coordinator is told", func() bool {
			c := w.adm.FindTxnCoordinators(ctx, w.name)[w.name]
			id = c.NodeID
			return c.Err == nil
		})
		return id
	}
	commit(ctx, t, p, topic, "before")
	tx := began(ctx, t, p, topic, "hit")
	w.waitTxn(ctx, t, "Ongoing")
	died = coordinator()
	if err := k.Kill(died); err != nil {
		t.Fatal(err)
	}
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatalf("Commit: %v, %v", o, err)
	}
	commit(ctx, t, p, topic, "after")
	if now := coordinator(); now == died {
		t.Errorf("broker %d still coordinates: nothing was lost", now)
	}
	wantVisible(ctx, t, w, topic, "before", "hit", "after")
	return died
}

// leaderDies: what was held comes again from the next leader; what was accepted
// before does not.
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
	died := w.leader(ctx, t, topic, 0)
	if err := k.Kill(died); err != nil {
		t.Fatal(err)
	}
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
	if now := w.leader(ctx, t, topic, 0); now == died {
		t.Errorf("broker %d still leads: nothing was lost", now)
	}
}
