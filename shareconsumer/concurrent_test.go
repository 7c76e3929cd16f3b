package shareconsumer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// All at once, in every mode: polls, verdicts, renewals, pauses and changes of
// the subscription, until Drain and Close come in between. Nobody hangs, no
// record is acknowledged twice, and what nobody decided is there again.
func TestConcurrentUse(t *testing.T) {
	for _, mode := range []Mode{Explicit, Transactional, Implicit} {
		for _, acquire := range []Acquire{BatchOptimized, RecordLimit} {
			t.Run(fmt.Sprint(mode, " ", acquire), func(t *testing.T) {
				t.Parallel()
				ctx := testkit.Deadline(t, 60*time.Second)
				c := startCluster(t, 20*time.Second)
				const n = 600
				c.feed(ctx, t, n)
				var mu sync.Mutex
				accepted := make(map[string]int)
				m := c.consumer(t, AcknowledgementMode(mode), AcquireMode(acquire), MaxPollRecords(7), MaxWait(10*time.Millisecond), CloseTimeout(30*time.Second), OnAcknowledged(func(a AckResult) {
					mu.Lock()
					defer mu.Unlock()
					for _, b := range a.Batches {
						for run := range b.Runs() {
							for o := run.First; o <= run.Last && a.Err == nil && run.Type == acks.Accept; o++ {
								accepted[fmt.Sprint(a.Partition.Partition, "/", o)]++
							}
						}
					}
				}))
				total := func() int {
					mu.Lock()
					defer mu.Unlock()
					return len(accepted)
				}
				polls := 0
				var users, others sync.WaitGroup
				use := func(b *Batch, i int) {
					switch {
					case mode == Implicit:
						return
					case mode == Transactional || i%5 == 0:
						b.KeepLocked(time.Minute)
						_ = b.Renew(ctx)
						b.Close()
						return
					}
					rs := b.Records()
					if i%3 == 0 && len(rs) > 1 {
						if part, err := b.Split(rs[0]); err == nil {
							part.AcceptRest()
							_ = part.CommitAsync()
						}
					}
					b.AcceptRest()
					if i%2 == 0 {
						_ = b.CommitAsync()
					} else {
						_ = b.CommitSync(ctx)
					}
					b.Close()
				}
				pollers := 4
				if mode == Implicit {
					pollers = 1
				}
				for range pollers {
					users.Go(func() {
						for i := 0; ; i++ {
							pctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
							b, err := m.Poll(pctx)
							cancel()
							if sharetxn.IsFatal(err) {
								return // closed
							}
							mu.Lock()
							polls++
							mu.Unlock()
							if b != nil {
								use(b, i)
							}
						}
					})
				}
				stop := make(chan struct{})
				for _, fn := range []func(i int){
					func(i int) { m.Pause("in", int32(i%3)); m.Resume("in") },
					func(i int) { _ = m.SetTopics("in", fmt.Sprint("other", i%2)) },
					func(int) { _ = m.Paused(); _ = m.ShareGroupMetadata() },
				} {
					others.Go(func() {
						tick := time.NewTicker(3 * time.Millisecond)
						defer tick.Stop()
						for i := 0; ; i++ {
							fn(i)
							select {
							case <-tick.C:
							case <-stop:
								return
							}
						}
					})
				}
				testkit.Eventually(ctx, t, "work was done", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return polls > 60 && (mode == Transactional || len(accepted) > n/4)
				})
				for range 2 {
					others.Go(func() { _ = m.Drain(ctx) })
					others.Go(func() {
						if err := m.Close(); err != nil {
							t.Errorf("Close: %v", err)
						}
					})
				}
				close(stop)
				others.Wait()
				users.Wait()
				testkit.Eventually(ctx, t, "nothing is held", func() bool { _, _, ac, pe := c.totals(); return ac+pe == 0 })
				mu.Lock()
				for which, times := range accepted {
					if times != 1 {
						t.Errorf("%s was accepted %d times", which, times)
					}
				}
				mu.Unlock()
				if done, _, _, _ := c.totals(); mode != Transactional && done < int64(total()) {
					t.Errorf("done %d, told %d", done, total())
				}
			})
		}
	}
}
