package chaos

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestCalm(t *testing.T) {
	ctx := testkit.Deadline(t, 3*time.Minute)
	k := three(ctx, t)
	w := newWorld(ctx, t, k, setup{
		name: "chaos", guarantee: *guarantee, lock: time.Second, seed: *seed, members: 2,
		poison: task.Poison{Reject: 5_000, Fail: 10_000},
	})
	t.Cleanup(func() { t.Logf("seed %d, %s, %d processes%s", *seed, *guarantee, w.lives.Load(), w.figures()) })
	over := make(chan struct{})
	close(over) // nothing is kept back
	must(t, w.load.Produce(ctx, *records, 0, over))
	began := time.Now()
	must(t, w.calm(ctx, processes))
	took := time.Since(began)
	v, err := w.verify(ctx)
	must(t, err)
	t.Logf("%.0f records/s", float64(*records)/took.Seconds())
	t.Log(v)
}
