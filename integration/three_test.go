package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Three brokers, of which some die: what a test does to them no other test may
// see, so they have a cluster of their own.
func TestThreeBrokers(t *testing.T) {
	broker(t) // skips or fails where none can be had
	ctx := testkit.Deadline(t, 2*time.Minute)
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

// The outcome is told by whoever coordinates then.
func coordinatorDies(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t)
	commit(ctx, t, p, topic, "before")
	tx := began(ctx, t, p, topic, "hit")
	w.waitTxn(ctx, t, "Ongoing")
	d, err := w.adm.DescribeTransactions(ctx, w.name)
	if err != nil {
		t.Fatal(err)
	}
	died := d[w.name].Coordinator
	if err := k.Kill(died); err != nil {
		t.Fatal(err)
	}
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatalf("Commit: %v, %v", o, err)
	}
	commit(ctx, t, p, topic, "after")
	d, err = w.adm.DescribeTransactions(ctx, w.name)
	if err != nil {
		t.Fatal(err)
	}
	if now := d[w.name].Coordinator; now == died {
		t.Errorf("broker %d still coordinates: nothing was lost", now)
	}
	if err := k.Restart(died); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	wantVisible(ctx, t, w, topic, "before", "hit", "after")
}

// What was held of the dead leader comes again, from the next one; what was
// accepted before does not.
func leaderDies(ctx context.Context, t *testing.T, k *kafka.Cluster) {
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 3)
	const n = 30
	w.feed(ctx, t, topic, n, 3)
	c := w.consumer(t, w.group(ctx, t, nil), topic)
	held := make(map[int32][]int)
	accepted := make(map[int]bool)
	for got := 0; got < n; {
		b, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		got += b.Len()
		for _, r := range b.Records() {
			value, err := strconv.Atoi(string(r.Value))
			if err != nil {
				t.Fatal(err)
			}
			if r.Offset%2 == 0 {
				r.Accept()
				accepted[value] = true
			} else {
				held[r.Partition] = append(held[r.Partition], value)
			}
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
		if got < n {
			continue
		}
		if len(accepted) != n/2 || len(held) != 3 {
			t.Fatalf("%d accepted, of %d partitions held", len(accepted), len(held))
		}
	}
	topics, err := w.adm.ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	dead := topics[topic].Partitions[0].Leader
	if err := k.Kill(dead); err != nil {
		t.Fatal(err)
	}
	want := slices.Clone(held[0])
	for part, rs := range held {
		if part != 0 && topics[topic].Partitions[part].Leader == dead {
			want = append(want, rs...)
		}
	}
	var again []int
	for len(again) < len(want) {
		b, err := c.Poll(ctx)
		if err != nil {
			if sharetxn.IsFatal(err) || ctx.Err() != nil {
				t.Fatal(err)
			}
			continue // the leader moves
		}
		for _, r := range b.Records() {
			value, err := strconv.Atoi(string(r.Value))
			if err != nil {
				t.Fatal(err)
			}
			if accepted[value] {
				t.Errorf("record %d was accepted and came again", value)
			}
			again = append(again, value)
			r.Accept()
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Logf("CommitSync: %v", err)
		}
	}
	slices.Sort(again)
	slices.Sort(want)
	if !slices.Equal(again, want) {
		t.Errorf("came again: %v, want %v", again, want)
	}
	if err := k.Restart(dead); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	// and a neighbouring group of the same topic is whole
	other, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	seen := make(map[string]bool)
	for len(seen) < n {
		fs := other.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d records of %d are in the topic", len(seen), n)
		}
		fs.EachRecord(func(r *kgo.Record) { seen[string(r.Value)] = true })
	}
	_ = fmt.Sprint
}
