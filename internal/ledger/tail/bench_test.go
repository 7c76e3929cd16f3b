package tail

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fill writes so many entries, in committed transactions that hold one for each
// partition, each with a batch and a marker of its own: the log of members that
// work on all partitions. Source offset i of a partition is in its i-th entry.
func (w *world) fill(ctx context.Context, t testing.TB, entries int) {
	t.Helper()
	const producers = 8
	partitions := int(w.Partitions(ledgerOfG))
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, producers)
	for n := range producers {
		cl := w.client(t, kgo.TransactionalID(fmt.Sprint("filler-", n)), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
		wg.Go(func() {
			errs <- func() error {
				for {
					i := next.Add(1) - 1
					if i >= int64(entries/partitions) {
						return nil
					}
					e := entry.Entry{Generation: 1, TransactionalID: fmt.Sprint("orders-host-", n, "-0"), TopicID: w.TopicID("in"), Ranges: []entry.Range{{First: i, Last: i}}}
					var records []*kgo.Record
					for p := range int32(partitions) {
						e.Partition = p
						value, err := e.Append(nil)
						if err != nil {
							return err
						}
						records = append(records, &kgo.Record{Topic: ledgerOfG, Partition: p, Value: value})
					}
					if err := cl.BeginTransaction(); err != nil {
						return err
					}
					if err := cl.ProduceSync(ctx, records...).FirstErr(); err != nil {
						return err
					}
					if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
						return err
					}
				}
			}()
		})
	}
	wg.Wait()
	for range producers {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// peak runs f and gives how much more heap was in use at the most than before.
func peak(f func()) uint64 {
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	runtime.GC()
	before, high := inUse(), uint64(0)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			high = max(high, inUse())
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	f()
	close(stop)
	<-done
	return max(high, before) - before
}

// A ledger of many entries is loaded: all of it above the starts, or nearly all
// of it below. What a broker in the same process takes to answer is counted too.
func BenchmarkOpen(b *testing.B) {
	for _, entries := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			ctx := testkit.Deadline(b, 20*time.Minute)
			w := startWith(b, 20)
			w.fill(ctx, b, entries)
			for _, below := range []bool{false, true} {
				b.Run(map[bool]string{false: "above", true: "below"}[below], func(b *testing.B) {
					if below {
						w.allBelow(ctx, b, int64(entries/20))
					}
					b.ReportAllocs()
					for b.Loop() {
						high := peak(func() {
							l, err := Open(ctx, w.connect(b), group, quick)
							if err != nil {
								b.Fatal(err)
							}
							if got := l.Status().Entries; (got == 0) != below || !below && got != int64(entries) {
								b.Fatalf("%d entries", got)
							}
							_ = l.Close()
						})
						b.ReportMetric(float64(high)/(1<<20), "peak-MB")
					}
				})
			}
		})
	}
}

// allBelow makes all share partitions begin behind everything that was filled in.
func (w *world) allBelow(ctx context.Context, t testing.TB, end int64) {
	t.Helper()
	for p := range w.Partitions("in") {
		w.setStart(ctx, t, p, end)
	}
}
