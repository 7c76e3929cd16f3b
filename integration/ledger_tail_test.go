package integration

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ledgerWorld is the ledger of a test's group, in generation 1, beside a source
// topic of as many partitions.
type ledgerWorld struct {
	*world
	k          *kafka.Cluster
	group      string
	in         string
	inID       [16]byte
	partitions int32
}

func openLedger(ctx context.Context, t testing.TB, k *kafka.Cluster, partitions int32) *ledgerWorld {
	t.Helper()
	w := &ledgerWorld{world: open(t, k), k: k, partitions: partitions}
	w.in = w.topic(ctx, t, "in", partitions)
	w.group = strings.ReplaceAll(w.name, "/", ".")
	if err := topic.Make(ctx, w.plain, w.group, int(partitions), 0); err != nil {
		t.Fatal(err)
	}
	var all []int32
	for p := range partitions {
		all = append(all, p)
	}
	generation := entry.Generation{Number: 1, Guarantee: "ledger", Phase: entry.Active, Group: w.group}
	if err := topic.WriteGeneration(ctx, core.Of(w.cl), w.group, generation, all); err != nil {
		t.Fatal(err)
	}
	found, err := w.adm.ListTopics(ctx, w.in)
	if err != nil {
		t.Fatal(err)
	}
	w.inID = found[w.in].ID
	return w
}

// tail opens the ledger; it does not truncate by itself.
func (w *ledgerWorld) tail(ctx context.Context, t testing.TB, cl *sharetxn.Cluster) *tail.Ledger {
	t.Helper()
	l, err := tail.Open(ctx, core.Of(cl), w.group, tail.Options{Guarantee: "ledger", Starts: time.Second, Truncations: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (w *ledgerWorld) positions(partition int32, offsets ...int64) (out []tail.Position) {
	for _, o := range offsets {
		out = append(out, tail.Position{Topic: w.in, TopicID: w.inID, Partition: partition, Offset: o})
	}
	return out
}

// txn writes entries in a transaction of the client.
func (w *ledgerWorld) txn(ctx context.Context, l *tail.Ledger, cl *kgo.Client, id string, positions ...tail.Position) ([]*kgo.Record, error) {
	if err := cl.BeginTransaction(); err != nil {
		return nil, err
	}
	entries, err := l.Entries(id, positions)
	if err != nil {
		return nil, err
	}
	return entries, cl.ProduceSync(ctx, entries...).FirstErr()
}

func (w *ledgerWorld) transactional(t testing.TB, id string) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.k.Seeds()...), kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// until waits for verdicts, one letter for each offset, by the tail's signal.
func (w *ledgerWorld) until(ctx context.Context, t testing.TB, l *tail.Ledger, want string, partition int32, offsets ...int64) {
	t.Helper()
	for {
		changed := l.Changed()
		got := w.verdicts(l, partition, offsets...)
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("partition %d: %s, want %s", partition, got, want)
		}
	}
}

func (w *ledgerWorld) verdicts(l *tail.Ledger, partition int32, offsets ...int64) string {
	var out strings.Builder
	for _, v := range l.Look(w.positions(partition, offsets...)) {
		out.WriteByte(strings.ToUpper(v.String())[0])
	}
	return out.String()
}

// setStart sets where share partitions of the source topic begin.
func (w *ledgerWorld) setStart(ctx context.Context, t testing.TB, offset int64, partitions ...int32) {
	t.Helper()
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = w.group
	rt := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	rt.Topic = w.in
	for _, p := range partitions {
		rp := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
		rp.Partition, rp.StartOffset = p, offset
		rt.Partitions = append(rt.Partitions, rp)
	}
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, w.plain)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil {
		for _, p := range resp.Topics[0].Partitions {
			err = errors.Join(err, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Members decide by the ledger's tail while the broker that leads a part of it
// is killed and comes back: every commit is seen, no abort is, nothing is missed,
// and each offset is committed once though two members want it.
func TestLedgerTailThroughBrokerRestart(t *testing.T) {
	ctx := testkit.Deadline(t, 4*time.Minute)
	k := three(ctx, t)
	const partitions, members, enough = 3, 4, 40
	w := openLedger(ctx, t, k, partitions)
	l := w.tail(ctx, t, w.cl)

	var (
		mu        sync.Mutex
		committed = make(map[int64]int) // by offset; the partition is the offset's rest
		took      []time.Duration
		conflicts atomic.Int64
		commits   atomic.Int64
		wg        sync.WaitGroup
		stop      = make(chan struct{})
	)
	// Two and two want the same offsets, in the same order.
	member := func(n int) error {
		id := fmt.Sprint(w.group, "-", n)
		cl := w.transactional(t, id)
		for o := int64(0); ; o++ {
			select {
			case <-stop:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			default:
			}
			at := w.positions(int32(o%partitions), o)
			for l.Look(at)[0] == index.Fresh {
				entries, err := w.txn(ctx, l, cl, id, at...)
				began := time.Now()
				if err == nil {
					err = l.Decide(ctx, entries)
				}
				mayCommit := err == nil
				if mayCommit {
					mu.Lock()
					took = append(took, time.Since(began))
					mu.Unlock()
				}
				if _, conflict := errors.AsType[*tail.ConflictError](err); conflict {
					conflicts.Add(1)
				}
				end := cl.EndTransaction(ctx, kgo.TransactionEndTry(mayCommit))
				if mayCommit && end == nil {
					mu.Lock()
					committed[o]++
					mu.Unlock()
					commits.Add(1)
				}
				if end != nil {
					// What kgo cannot end is ended by whoever takes the id next.
					cl.Close()
					cl = w.transactional(t, id)
				}
			}
			for v := l.Look(at)[0]; v != index.Done; v = l.Look(at)[0] { // the other's
				changed := l.Changed()
				if v = l.Look(at)[0]; v == index.Done || v == index.Fresh {
					break
				}
				select {
				case <-changed:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			if l.Look(at)[0] == index.Fresh {
				o-- // it was aborted: again
			}
		}
	}
	errs := make(chan error, members)
	for n := range members {
		wg.Go(func() { errs <- member(n) })
	}
	reach := func(n int64) {
		t.Helper()
		testkit.Eventually(ctx, t, "members commit", func() bool { return commits.Load() >= n })
	}
	reach(enough)
	victim := w.leader(ctx, t, topic.Name(w.group), 0)
	if err := k.Kill(victim); err != nil {
		t.Fatal(err)
	}
	reach(commits.Load() + enough)
	if err := k.Restart(victim); err != nil {
		t.Fatal(err)
	}
	if err := k.Ready(ctx); err != nil {
		t.Fatal(err)
	}
	reach(commits.Load() + enough)
	close(stop)
	wg.Wait()
	for range members {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	// A commit whose answer was lost is one too: the log says which there are.
	visible := w.decided(ctx, t)
	for o, n := range committed {
		if n != 1 || visible[o] != 1 {
			t.Errorf("offset %d: %d commits reported, %d in the log", o, n, visible[o])
		}
	}
	anew := w.tail(ctx, t, w.cl)
	for o, n := range visible {
		if n != 1 {
			t.Errorf("offset %d is committed %d times", o, n)
		}
		for _, x := range []*tail.Ledger{l, anew} {
			w.until(ctx, t, x, "D", int32(o%partitions), o)
		}
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	if conflicts.Load() == 0 {
		t.Error("no two members met")
	}
	slices.Sort(took)
	t.Logf("%d commits, %d conflicts; Decide took %v in the middle, %v at the 99th percent", commits.Load(), conflicts.Load(), took[len(took)/2], took[len(took)*99/100])
}

// decided reads the ledger as read_committed readers do: how often each source
// offset is committed.
func (w *ledgerWorld) decided(ctx context.Context, t testing.TB) map[int64]int {
	t.Helper()
	name := topic.Name(w.group)
	ends, err := w.adm.ListEndOffsets(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[int32]kgo.Offset)
	ends.Each(func(o kadm.ListedOffset) { at[o.Partition] = kgo.NewOffset().At(0) })
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.k.Seeds()...), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: at}), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	out, next := make(map[int64]int), make(map[int32]int64)
	for {
		behind := false
		ends.Each(func(o kadm.ListedOffset) { behind = behind || next[o.Partition] < o.Offset })
		if !behind {
			return out
		}
		fetched := cl.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			t.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			next[r.Partition] = r.Offset + 1
			if v, err := entry.Parse(r.Value); err == nil && v.Entry != nil && !r.Attrs.IsControl() {
				for _, x := range v.Entry.Ranges {
					for o := x.First; o <= x.Last; o++ {
						out[o]++
					}
				}
			}
		})
	}
}

// Truncation overtakes a tail that cannot read: it finds the gap, discards what
// was open, and knows nothing for fresh before it has read the starts.
func TestLedgerTailGap(t *testing.T) {
	ctx := testkit.Deadline(t, 2*time.Minute)
	w := openLedger(ctx, t, broker(t), 1)
	for range 20 {
		if err := w.plain.ProduceSync(ctx, &kgo.Record{Topic: w.in, Value: []byte("x")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	slow := w.tail(ctx, t, w.cl)
	other := open(t, w.k)
	quick := w.tail(ctx, t, other.cl)
	a := w.transactional(t, w.group+"-a")
	if _, err := w.txn(ctx, quick, a, "a", w.positions(0, 0, 1)...); err != nil {
		t.Fatal(err)
	}
	w.until(ctx, t, slow, "OOF", 0, 0, 1, 2)

	const keyFetch = 1
	w.tap.Decide(func(key int16) kafka.Fate {
		if key == keyFetch {
			return kafka.LoseRequest
		}
		return kafka.Pass
	})
	// The fetch that is parked ends before anything is written.
	testkit.Eventually(ctx, t, "the tail cannot read", func() bool { return w.tap.Lost(kafka.LoseRequest) > 0 })
	if err := a.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	w.until(ctx, t, quick, "DDF", 0, 0, 1, 2)
	w.setStart(ctx, t, 2, 0)
	deleted, err := quick.Truncate(ctx)
	if err != nil || deleted != 3 {
		t.Fatalf("%d deleted, %v", deleted, err)
	}
	if got := w.verdicts(slow, 0, 2); got != "F" {
		t.Fatalf("the slow one reads on: %s", got)
	}
	b := w.transactional(t, w.group+"-b")
	entries, err := w.txn(ctx, quick, b, "b", w.positions(0, 1, 2, 3)...)
	if err != nil {
		t.Fatal(err)
	}
	w.tap.Decide(nil)
	var conflict *tail.ConflictError
	if err := slow.Decide(ctx, entries); !errors.As(err, &conflict) || conflict.Below+conflict.Unsure == 0 {
		t.Fatalf("behind the gap: %v", err)
	}
	w.until(ctx, t, slow, "BBOOF", 0, 0, 1, 2, 3, 4)
	if err := slow.Decide(ctx, entries); !errors.As(err, &conflict) || *conflict != (tail.ConflictError{Below: 1}) {
		t.Fatalf("with the starts: %v", err)
	}
	if err := b.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*tail.Ledger{slow, quick, w.tail(ctx, t, w.cl)} {
		w.until(ctx, t, l, "BBFFF", 0, 0, 1, 2, 3, 4)
	}
}

// A ledger of many entries is loaded from a real broker. The log is that of
// members that work on all partitions: each entry has a batch and a marker of its
// own.
func BenchmarkLedgerOpen(b *testing.B) {
	const entries, partitions = 1_000_000, 20
	ctx := testkit.Deadline(b, 40*time.Minute)
	w := openLedger(ctx, b, broker(b), partitions)
	var (
		next atomic.Int64
		wg   sync.WaitGroup
		errs = make(chan error, 16)
	)
	seed := w.tail(ctx, b, w.cl)
	for n := range cap(errs) {
		id := fmt.Sprint(w.group, "-", n)
		cl := w.transactional(b, id)
		wg.Go(func() {
			errs <- func() error {
				for o := next.Add(1) - 1; o < entries/partitions; o = next.Add(1) - 1 {
					var at []tail.Position
					for p := range int32(partitions) {
						at = append(at, w.positions(p, o)...)
					}
					if _, err := w.txn(ctx, seed, cl, id, at...); err != nil {
						return err
					}
					if err := cl.EndTransaction(ctx, kgo.TryCommit); err != nil {
						return err
					}
				}
				return nil
			}()
		})
	}
	wg.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			b.Fatal(err)
		}
	}
	for _, below := range []bool{false, true} {
		b.Run(map[bool]string{false: "above", true: "below"}[below], func(b *testing.B) {
			if below {
				var all []int32
				for p := range int32(partitions) {
					all = append(all, p)
				}
				w.setStart(ctx, b, entries/partitions, all...)
			}
			b.ReportAllocs()
			for b.Loop() {
				var high uint64
				stop, done := make(chan struct{}), make(chan struct{})
				runtime.GC()
				go func() {
					defer close(done)
					tick := time.NewTicker(5 * time.Millisecond)
					defer tick.Stop()
					for {
						var m runtime.MemStats
						runtime.ReadMemStats(&m)
						high = max(high, m.HeapAlloc)
						select {
						case <-tick.C:
						case <-stop:
							return
						}
					}
				}()
				l := w.tail(ctx, b, w.cl)
				close(stop)
				<-done
				b.ReportMetric(float64(high)/(1<<20), "peak-MB")
				if got := l.Status().Entries; (got == 0) != below {
					b.Fatalf("%d entries", got)
				}
				_ = l.Close()
			}
		})
	}
}
