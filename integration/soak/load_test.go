package soak

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var entries = flag.Int("entries", 20_000, "`entries` in the ledger that TestLoad reads")

// A member that starts on a ledger with many entries, all of them above the starts,
// reads it in a stream: what it needs meanwhile is not much more than what it holds
// then. How long it takes is told, and not judged.
func TestLoad(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Minute)
	k, err := target.Start(ctx, t.TempDir(), 1)
	target.Require(t, err)
	t.Cleanup(func() { must(t, k.Stop()) })
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(k.Seeds()...)))
	must(t, err)
	t.Cleanup(cl.Close)
	admin, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...))
	must(t, err)
	t.Cleanup(admin.Close)
	made, err := kadm.NewClient(admin).CreateTopic(ctx, partitions, 1, nil, source)
	must(t, err)
	must(t, groupconfig.Set(ctx, cl, group, groupconfig.IsolationLevel(groupconfig.ReadCommitted)))
	ensure(ctx, t, cl)
	write(ctx, t, k.Seeds(), made.ID, *entries)

	idle := inUse()
	most, stop := watchHeap()
	began := time.Now()
	l, err := tail.Open(ctx, core.Of(cl), group, tail.Options{Guarantee: ledger.Ledger})
	took := time.Since(began)
	stop()
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	held := inUse()
	if s := l.Status(); s.Entries != int64(*entries) {
		t.Errorf("%d entries of %d", s.Entries, *entries)
	}
	each := int64(*entries / partitions)
	for offset, want := range map[int64]index.Verdict{0: index.Done, each - 1: index.Done, each: index.Fresh} {
		if v := l.Look([]tail.Position{{Topic: source, TopicID: made.ID, Partition: partitions - 1, Offset: offset}}); v[0] != want {
			t.Errorf("offset %d is %v, want %v", offset, v[0], want)
		}
	}
	const mib = 1 << 20
	t.Logf("%d entries in %v; heap before %.1f MiB, at most %.1f MiB meanwhile, %.1f MiB held then", *entries, took, float64(idle)/mib, float64(*most)/mib, float64(held)/mib)
	// Answers of 8 MiB are read while one before is taken, and a collector lets as
	// much again lie about.
	if peak, bound := *most-idle, 3*(held-idle)+64*mib; peak > bound {
		t.Errorf("%d MiB more meanwhile, want at most %d", peak/mib, bound/mib)
	}
}

// write writes so many entries, of one offset each, in transactions of several.
func write(ctx context.Context, t *testing.T, seeds []string, topic [16]byte, entries int) {
	t.Helper()
	const each, writers = 10 * partitions, 8
	var next atomic.Int64
	errs := make(chan error, writers)
	for nth := range writers {
		id := fmt.Sprint("before-", nth)
		cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))
		must(t, err)
		defer cl.Close()
		go func() {
			for {
				first := int(next.Add(each)) - each
				if first >= entries {
					errs <- nil
					return
				}
				if err := transact(ctx, cl, id, topic, first, min(first+each, entries)); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	for range writers {
		must(t, <-errs)
	}
}

// transact writes the entries from first to below end, in one transaction.
func transact(ctx context.Context, cl *kgo.Client, id string, topic [16]byte, first, end int) error {
	if err := cl.BeginTransaction(); err != nil {
		return err
	}
	var rs []*kgo.Record
	for n := first; n < end; n++ {
		p, offset := int32(n%partitions), int64(n/partitions)
		e := entry.Entry{Generation: 1, TransactionalID: id, TopicID: topic, Partition: p, Ranges: []entry.Range{{First: offset, Last: offset}}}
		_, _ = rand.Read(e.Nonce[:]) // never fails
		value, err := e.Append(nil)
		if err != nil {
			return err
		}
		rs = append(rs, &kgo.Record{Topic: ledger.TopicName(group), Partition: p, Value: value})
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		return err
	}
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

// inUse is the heap that is reachable, in bytes.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// watchHeap looks at the heap until stop returns; most is right then.
func watchHeap() (most *int64, stop func()) {
	most = new(int64)
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			*most = max(*most, int64(m.HeapInuse))
			select {
			case <-tick.C:
			case <-over:
				return
			}
		}
	})
	return most, func() {
		close(over)
		wg.Wait()
	}
}
