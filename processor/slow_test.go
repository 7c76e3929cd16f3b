package processor_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// told is what a hook was told of handler calls, by the place of their record.
type told struct {
	mu    sync.Mutex
	times map[string]int
	took  time.Duration // the longest
}

// OnHandled implements sharetxn.HookHandled.
func (h *told) OnHandled(_ context.Context, e sharetxn.Handled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times == nil {
		h.times = make(map[string]int)
	}
	h.times[fmt.Sprintf("%d@%d", e.Partition, e.Offset)]++
	h.took = max(h.took, e.Took)
}

// Records are handled in a row by one goroutine while the handler is quick. One that
// then takes its time holds up none of the row: those before it are committed, and
// those behind it are handled by others where there are any.
func TestSlowRecordAmongQuickOnes(t *testing.T) {
	const records, slow = 120, "80"
	for name, concurrency := range map[string]int{"alone": 1, "beside another": 2} {
		t.Run(name, func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on)
				w.feed(t, records)
				hook := &told{}
				var steps atomic.Int32
				held, free := make(chan struct{}), make(chan struct{})
				cl := w.Connect(t, sharetxn.WithHooks(w.seen, hook))
				core.Of(cl).OnStep(func(s string) {
					if s == "handled" {
						steps.Add(1)
					}
				})
				p, err := processor.New(cl, processor.Config{
					Group: "g", Topics: []string{"in"}, Guarantee: on.guarantee, DeadLetter: processor.DeadLetter{Topic: "dead"}, Instance: "here",
					Concurrency: concurrency, HandlerTimeout: time.Hour,
					Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
						if string(in.Value) == slow {
							close(held)
							<-free
						}
						return copyOf(in), nil
					}),
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := run(t, p)
				<-held
				eventually(t, "those before it are committed", func() bool {
					n := len(w.values(t, "out"))
					if concurrency > 1 {
						return n == records-1
					}
					return n > 0
				})
				if n := w.values(t, "out")[slow]; n != 0 {
					t.Error("the slow one is committed")
				}
				time.Sleep(10 * time.Second) // of virtual time
				close(free)
				w.WaitDrained(t, "g")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				w.want(t, records)
				w.seen.healthy(t, 1)
				for place, n := range hook.times {
					if n != 1 {
						t.Errorf("told %d times of %s", n, place)
					}
				}
				if len(hook.times) != records || hook.took < 10*time.Second {
					t.Errorf("told of %d records, of which one took %v", len(hook.times), hook.took)
				}
				if n := steps.Load(); n > records/2 {
					t.Errorf("%d calls for %d records: they were not handled in rows", n, records)
				}
			})
		})
	}
}
