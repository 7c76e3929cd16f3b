package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	soakFor  = flag.Duration("soak", 20*time.Second, "how long TestSoak feeds its service and does harm")
	soakSeed = flag.Uint64("soak-seed", 1, "of the harm that TestSoak does")
)

// A service works on while its broker is killed, stands still and comes back, and
// while its members are stopped and started, beside a reader of what is
// committed. Each input's output, or its dead letter, is read once, and is there once
// in the end; memory and goroutines of this process stay where they were.
func TestSoak(t *testing.T) { // alone: it measures the process
	ctx := testkit.Deadline(t, *soakFor+6*time.Minute)
	t.Logf("seed %d", *soakSeed)
	addr := free(ctx, t)
	b := &killable{t: t, args: []string{"broker", "--listen", addr, "--data", t.TempDir(), "--topic", "in:3", "--topic", "out:3", "--topic", "dead"}}
	b.start(ctx)
	defer func() { b.kill() }()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(addr), kgo.DisableClientMetrics()), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()

	var all sync.WaitGroup
	defer all.Wait()
	outer := ctx
	ctx, stop := context.WithTimeout(ctx, *soakFor+4*time.Minute)
	defer stop()
	feeding, fedUp := context.WithTimeout(ctx, *soakFor)
	defer fedUp()
	var fed, read atomic.Int64
	var drained atomic.Bool // all is fed, fed is final
	all.Go(func() {
		defer drained.Store(true)
		feed, err := cl.Client(kgo.DefaultProduceTopic("in"))
		if err != nil {
			t.Error(err)
			return
		}
		defer feed.Close()
		pace := time.NewTicker(10 * time.Millisecond)
		defer pace.Stop()
		for feeding.Err() == nil {
			if err := feed.ProduceSync(ctx, kgo.StringRecord(strconv.FormatInt(fed.Load(), 10))).FirstErr(); err != nil {
				t.Errorf("input %d: %v", fed.Load(), err)
				return
			}
			fed.Add(1)
			<-pace.C
		}
	})
	replace := make(chan struct{}) // the Processor by another
	all.Go(func() {
		for ctx.Err() == nil {
			soakLife(ctx, t, cl, replace)
		}
	})
	seen := make(chan []uint8, 1)
	all.Go(func() { seen <- soakRead(ctx, t, cl, &read) })

	random := rand.New(rand.NewPCG(*soakSeed, 0))
	harm := []struct {
		name string
		do   func()
	}{
		{"broker killed", func() { b.kill(); b.start(outer) }},
		{"broker stood still", func() {
			b.signal(syscall.SIGSTOP)
			lapse.For(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
			b.signal(syscall.SIGCONT)
		}},
		{"service replaced", func() {
			select {
			case replace <- struct{}{}:
			case <-ctx.Done():
			}
		}},
	}
	done := make(map[string]int)
	var heap, goroutines []int64
	for i := 0; ; i++ {
		if feeding.Err() == nil || i < 2*len(harm) {
			h := harm[(i+random.IntN(2))%len(harm)] // each comes, in no order
			h.do()
			done[h.name]++
		}
		lapse.For(ctx, time.Second)
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		heap, goroutines = append(heap, int64(m.HeapAlloc)), append(goroutines, int64(runtime.NumGoroutine()))
		if drained.Load() && read.Load() >= fed.Load() || ctx.Err() != nil {
			break
		}
	}
	late := ctx.Err()
	stop()
	all.Wait()
	t.Logf("%d inputs, harm %v; heap %v KiB, goroutines %v", fed.Load(), done, thirds(heap, 1<<10), thirds(goroutines, 1))
	for _, h := range harm {
		if done[h.name] == 0 {
			t.Errorf("never done: %s", h.name)
		}
	}
	times := <-seen
	again := visible(outer, t, cl, "out", "dead")
	for i := range int(fed.Load()) {
		once := i < len(times) && times[i] == 1
		if n := again[strconv.Itoa(i)]; !once || n != 1 {
			t.Errorf("input %d: read once: %v, there %d times", i, once, n)
		}
	}
	if late != nil {
		t.Errorf("%d of %d were read in time", read.Load(), fed.Load())
	}
	// Both vary with what is under way, so thirds are told by their medians.
	if h := thirds(heap, 1); h[2] > h[0]+h[0]/2+8<<20 {
		t.Errorf("the heap grew: %v bytes", h)
	}
	if g := thirds(goroutines, 1); g[2] > g[0]+g[0]/2+20 {
		t.Errorf("goroutines grew: %v", g)
	}
}

// soakLife runs a Processor until another is to take its place.
func soakLife(ctx context.Context, t *testing.T, cl *sharetxn.Cluster, replace <-chan struct{}) {
	p, err := processor.New(cl, processor.Config{
		Group: "g", TransactionalID: "copy", Instance: "one", Topics: []string{"in"}, Members: 2, MaxRecords: 20, DeadLetter: processor.DeadLetter{Topic: "dead"}, StopTimeout: 5 * time.Second,
		Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return []*kgo.Record{{Topic: "out", Value: in.Value}}, nil
		},
	})
	if err != nil {
		t.Error(err)
		<-ctx.Done()
		return
	}
	life, end := context.WithCancel(ctx)
	defer end()
	over := make(chan error, 1)
	go func() { over <- p.Run(life) }()
	select {
	case <-replace:
		end()
		<-over // a stop in the midst of harm may well be a hard one
	case err := <-over:
		if ctx.Err() == nil {
			t.Errorf("the service ended: %v", err)
			<-ctx.Done()
		}
	}
}

// soakRead counts how often each input's output, or dead letter, is read.
func soakRead(ctx context.Context, t *testing.T, cl *sharetxn.Cluster, read *atomic.Int64) (times []uint8) {
	reader, err := cl.Client(kgo.ConsumeTopics("out", "dead"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Error(err)
		return nil
	}
	defer reader.Close()
	for ctx.Err() == nil {
		reader.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
			var i int
			if _, err := fmt.Sscan(string(r.Value), &i); err != nil {
				t.Errorf("read %q", r.Value)
				return
			}
			for len(times) <= i {
				times = append(times, 0)
			}
			times[i]++
			read.Add(1)
		})
	}
	return times
}

// signal stops the process from running, or lets it go on.
func (k *killable) signal(s syscall.Signal) {
	k.t.Helper()
	if err := k.cmd.Process.Signal(s); err != nil {
		k.t.Fatal(err)
	}
}

// thirds are the medians of the first, the second and the last third.
func thirds(samples []int64, unit int64) (out [3]int64) {
	if len(samples) < 3 {
		return out
	}
	for i := range out {
		s := slices.Sorted(slices.Values(samples[i*len(samples)/3 : (i+1)*len(samples)/3]))
		out[i] = s[len(s)/2] / unit
	}
	return out
}
