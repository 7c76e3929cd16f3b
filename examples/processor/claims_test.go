package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// These tests hold what docs/processor.md claims and package processor's own
// tests do not.

// numbered gives topic in the records 0 to n-1.
func numbered(t *testing.T, k *sharetxntest.Cluster, n int) {
	t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}
	}
	k.Feed(t, rs...)
}

func copyTo(topic string, in *processor.Record) []*kgo.Record {
	return []*kgo.Record{{Topic: topic, Value: in.Value}}
}

func service(t *testing.T, k *sharetxntest.Cluster, cfg processor.Config) *processor.Processor {
	t.Helper()
	cfg.Group, cfg.Topics, cfg.DeadLetter.Topic = "g", []string{"in"}, "dead"
	p, err := processor.New(k.Connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A record that always fails: three attempts in each of four deliveries, and
// then a dead letter; the fifth is kept for records that nobody decided.
func TestAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1))
		numbered(t, k, 20)
		var mu sync.Mutex
		calls := make(map[int32]int) // by delivery
		k.RunUntilDrained(t, "g", service(t, k, processor.Config{Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) != "7" {
				return copyTo("out", in), nil
			}
			mu.Lock()
			defer mu.Unlock()
			calls[in.DeliveryCount]++
			return nil, errors.New("always")
		}}))
		if got := fmt.Sprint(calls); got != "map[1:3 2:3 3:3 4:3]" {
			t.Errorf("calls by delivery: %s", got)
		}
		if out, dead := len(k.Committed(t, "out")), len(k.Committed(t, "dead")); out != 19 || dead != 1 {
			t.Errorf("%d outputs, %d dead letters", out, dead)
		}
	})
}

// Where the delivery limit cannot be read it is taken for two: a record that
// fails is a dead letter early, and none is lost.
func TestUnreadableLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1))
		numbered(t, k, 20)
		const describeConfigs = 32
		k.Inject(t, sharetxntest.Fault{Key: describeConfigs, Times: sharetxntest.Always, Action: sharetxntest.Answer(kerr.ClusterAuthorizationFailed.Code)})
		var last atomic.Int32
		k.RunUntilDrained(t, "g", service(t, k, processor.Config{Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) != "7" {
				return copyTo("out", in), nil
			}
			last.Store(in.DeliveryCount)
			return nil, errors.New("always")
		}}))
		if last.Load() != 2 || len(k.Committed(t, "dead")) != 1 || len(k.Committed(t, "out")) != 19 {
			t.Errorf("dead letter on delivery %d", last.Load())
		}
	})
}

// A member holds at most twice MaxRecords: one that is stuck leaves the rest to
// others.
func TestRecordsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1), sharetxntest.Topic("out", 1))
		free, inHand := make(chan struct{}), make(chan struct{})
		var once sync.Once
		stuck := service(t, k, processor.Config{Instance: "stuck", MaxRecords: 10, HandlerTimeout: time.Hour, Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			once.Do(func() { close(inHand) })
			<-free
			return copyTo("out", in), nil
		}})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- stuck.Run(ctx) }()
		numbered(t, k, 10)
		<-inHand
		numbered(t, k, 190)
		time.Sleep(time.Minute) // it takes all it can
		other, stopOther := context.WithCancel(t.Context())
		otherEnded := make(chan error, 1)
		go func() {
			otherEnded <- service(t, k, processor.Config{Instance: "other", Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
				return copyTo("out", in), nil
			}}).Run(other)
		}()
		time.Sleep(time.Minute)
		if n := len(k.Committed(t, "out")); n < 180 || n > 190 {
			t.Errorf("%d of 200 are done beside one that is stuck with MaxRecords 10", n)
		}
		close(free)
		k.WaitDrained(t, "g")
		stop()
		stopOther()
		if err := errors.Join(<-ended, <-otherEnded); err != nil {
			t.Error(err)
		}
		k.AssertExactlyOnce(t, "g", "out")
	})
}

// While more than MaxRecords wait for the time of their release nothing new is
// polled.
func TestReleasesStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1), sharetxntest.Topic("out", 1))
		numbered(t, k, 40)
		began := time.Now()
		var first atomic.Int64 // when record 39 was first handled
		k.RunUntilDrained(t, "g", service(t, k, processor.Config{MaxRecords: 10, Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "39" {
				first.CompareAndSwap(0, int64(time.Since(began)))
			} else if in.DeliveryCount == 1 {
				return nil, processor.Release(5 * time.Minute)
			}
			return copyTo("out", in), nil
		}}))
		if at := time.Duration(first.Load()); at < 5*time.Minute || at > 20*time.Minute {
			t.Errorf("the last record was first handled after %v", at)
		}
		k.AssertExactlyOnce(t, "g", "out")
	})
}

// Concurrency calls at a time, and no more.
func TestConcurrency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1))
		numbered(t, k, 100)
		var now, most atomic.Int32
		k.RunUntilDrained(t, "g", service(t, k, processor.Config{Concurrency: 4, Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			return copyTo("out", in), nil
		}}))
		if most.Load() != 4 {
			t.Errorf("%d calls at a time, want 4", most.Load())
		}
	})
}

// One member, one call at a time, one partition in and out, nothing that fails:
// the order stays. Nothing more is promised.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1), sharetxntest.Topic("out", 1))
		numbered(t, k, 300)
		k.RunUntilDrained(t, "g", service(t, k, processor.Config{MaxRecords: 50, Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return append(copyTo("out", in), copyTo("out", in)...), nil
		}}))
		out := k.Committed(t, "out")
		for i, r := range out {
			if string(r.Value) != fmt.Sprint(i/2) {
				t.Fatalf("output %d is of record %s", i, r.Value)
			}
		}
		if len(out) != 600 {
			t.Errorf("%d outputs", len(out))
		}
	})
}

// Handlers that never return are leaked memory: after a hundred of a member the
// Processor stops and says so.
func TestAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("in", 1))
		numbered(t, k, 110)
		never := make(chan struct{})
		t.Cleanup(func() { close(never) }) // a bubble ends when all in it do
		err := service(t, k, processor.Config{Concurrency: 110, HandlerTimeout: time.Second, Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) {
			<-never
			return nil, nil
		}}).Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "more than 100 handler calls did not return") {
			t.Errorf("Run: %v", err)
		}
	})
}
