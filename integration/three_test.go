package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Three brokers, one of which is killed between transactions: each broker's row
// is told, and what is committed, acknowledged and read stays exact.
func TestThreeBrokersOneKilled(t *testing.T) {
	ctx := testkit.Deadline(t, 3*time.Minute)
	k := three(ctx, t)
	w := open(t, k)
	const partitions = 3
	in, out := w.topic(ctx, t, "in", partitions), w.topic(ctx, t, "out", partitions)
	group := w.group(ctx, t, nil)
	w.configsEverywhere(ctx, t)
	w.ledgersEverywhere(ctx, t)
	p := w.producer(t)

	u, ok := errors.AsType[*sharetxn.UnsupportedError](p.InitTransactions(ctx))
	if !ok || len(u.Found.Brokers) != 3 {
		t.Fatalf("InitTransactions: %v", u)
	}
	for i, b := range u.Found.Brokers {
		if id := int32(i + 1); b.NodeID != id || b.MaxVer != -1 || !strings.Contains(u.Error(), fmt.Sprintf("broker %d: ", id)) {
			t.Errorf("row %d: %+v in %v", i, b, u)
		}
	}

	const half = 60
	var want []string
	transactions := func(from int) {
		t.Helper()
		for i := from; i < from+half; i++ {
			value := fmt.Sprint(i)
			tx := began(ctx, t, p, out, value)
			if i%4 == 0 {
				if err := tx.Abort(ctx); err != nil {
					t.Fatalf("Abort of %s: %v", value, err)
				}
				continue
			}
			o, err := tx.Commit(ctx)
			if o == sharetxn.Unknown {
				t.Fatalf("Commit of %s: %v", value, err)
			}
			if o == sharetxn.Committed {
				want = append(want, value)
			}
		}
	}
	w.feed(ctx, t, in, half, partitions)
	c := w.consumer(t, group, in)
	acceptAll(ctx, t, c, half)
	transactions(0)

	// The leader of a partition of each topic, that also leads a third of all else.
	victim := w.leader(ctx, t, in, 0)
	if err := k.Kill(victim); err != nil {
		t.Fatal(err)
	}
	transactions(half)
	testkit.Eventually(ctx, t, "every partition has a living leader", func() bool {
		for part := range int32(partitions) {
			if l := w.leader(ctx, t, in, part); l == victim || l < 0 {
				return false
			}
		}
		return true
	})
	w.feed(ctx, t, in, half, partitions)
	// An acknowledgement whose broker died may have to be given again, so
	// records are told by what is new.
	again := make(map[string]bool)
	for len(again) < half {
		b, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records() {
			if r.Offset >= half/partitions {
				again[string(r.Value)] = true
			}
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil && sharetxn.IsFatal(err) {
			t.Fatal(err)
		}
	}
	if err := k.Restart(victim); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	w.waitDrained(ctx, t)

	got := make(map[string]int)
	for _, v := range w.visible(ctx, t, out) {
		got[v]++
	}
	for _, v := range want {
		if got[v] != 1 {
			t.Errorf("committed %s is seen %d times", v, got[v])
		}
		delete(got, v)
	}
	for v := range got {
		t.Errorf("%s is seen and was not committed", v)
	}
	if len(want) < half {
		t.Errorf("only %d of %d transactions were committed", len(want), 2*half*3/4)
	}
	for _, key := range []int16{93, 95} {
		if n := w.tap.Seen(key); n != 0 {
			t.Errorf("%d requests with key %d", n, key)
		}
	}
}

// leader of a partition as the cluster tells it now.
func (w *world) leader(ctx context.Context, t testing.TB, topic string, partition int32) int32 {
	t.Helper()
	d, err := w.adm.ListTopics(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return d[topic].Partitions[partition].Leader
}
