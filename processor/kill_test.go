package processor_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// killedAt runs a processor that dies at the nth such step; it tells whether it
// came to that.
func (w *world) killedAt(t *testing.T, cfg processor.Config, step string, nth int64) (died bool) {
	t.Helper()
	return w.killed(t, cfg, func(cl *sharetxn.Cluster, die func()) {
		var met atomic.Int64
		core.Of(cl).OnStep(func(s string) {
			if s == step && met.Add(1) == nth {
				die()
			}
		})
	})
}

// killed runs a processor that dies when what arm sets up says so; it tells
// whether it came to that.
func (w *world) killed(t *testing.T, cfg processor.Config, arm func(cl *sharetxn.Cluster, die func())) (died bool) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	l := &life{dialer: w.dialer(t), ended: ended, end: end}
	defer end()
	cl, err := sharetxn.Connect(sharetxn.Kafka(append(w.Kafka(), kgo.Dialer(l.dial))...), sharetxn.WithProfile(w.profile), sharetxn.WithHooks(w.seen),
		sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	arm(cl, l.die)
	cfg.Group, cfg.Topics, cfg.Instance, cfg.DeadLetter.Topic, cfg.Guarantee = "g", []string{"in"}, "here", "dead", w.guarantee
	cfg.Handler = w.seen.handler(nil)
	p, err := processor.New(cl, cfg)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- p.Run(context.WithoutCancel(t.Context())) }()
	select {
	case <-l.ended.Done():
		died = true
	case <-time.After(time.Minute):
	}
	hard, cancel := context.WithCancel(context.Background())
	cancel()
	_ = p.Stop(hard)
	<-done
	return died
}

// A process may die between any two steps: with guarantees Staged and Ledger each
// record is published once all the same; with AckAfterCommit twice, if it dies
// between the commit and the acknowledgement.
func TestKilledAtEachStep(t *testing.T) {
	for _, step := range []string{"polled", "looked", "handled", "begun", "produced", "checked", "frozen", "ended", "settled"} {
		for _, nth := range []int64{1, 3} {
			t.Run(fmt.Sprint(step, " ", nth), func(t *testing.T) {
				inAll(t, func(t *testing.T, on setting) {
					if step == "checked" && on.guarantee != processor.Ledger {
						return // only the ledger is asked
					}
					w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 10 * time.Second}))
					w.feed(t, 60)
					if !w.killedAt(t, processor.Config{MaxRecords: 5}, step, nth) {
						t.Fatalf("there was no step %s number %d", step, nth)
					}
					w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
					// A death at any step may take acknowledgements of earlier commits along.
					// With the step behind its end their sending is a race with the death.
					if done := w.seen.told(sharetxn.LedgerDone, ""); step == "ended" && on.guarantee == processor.Ledger && done == 0 {
						t.Error("nothing was found to be done")
					}
					doubled := 0
					for _, n := range w.values(t, "out") {
						doubled += n - 1
					}
					if step == "ended" && on.concedes() && doubled == 0 {
						t.Error("nothing was published twice: the death came too late")
					}
					w.harmed = true
					w.want(t, 60)
					w.seen.healthy(t, 2)
				})
			})
		}
	}
}
