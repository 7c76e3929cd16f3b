package processor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A rejected record is in the dead letter once, whole, with where it came from.
func TestReject(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 20)
		w.Feed(t, &kgo.Record{Topic: "in", Key: []byte("k"), Value: []byte("20"), Headers: []kgo.RecordHeader{{Key: "mine", Value: []byte("h")}}})
		p := w.processor(t, processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			switch string(in.Value) {
			case "3":
				return copyOf(in), processor.Reject(errors.New(strings.Repeat("long ", 1000))) // outputs beside an error do not count
			case "20":
				return nil, fmt.Errorf("wrapped: %w", processor.Reject(errors.New("no customer")))
			}
			return copyOf(in), nil
		})})
		w.RunUntilDrained(t, "g", p)
		w.want(t, 21, "3", "20")
		for _, r := range w.Committed(t, "dead") {
			if string(r.Value) != "20" {
				if n := len(header(r, processor.HeaderReason)); n != 1000 {
					t.Errorf("reason of %d bytes", n)
				}
				continue
			}
			for key, want := range map[string]string{
				"mine": "h", processor.HeaderTopic: "in", processor.HeaderDelivery: "1", processor.HeaderReason: "no customer",
			} {
				if got := header(r, key); got != want {
					t.Errorf("header %s is %q, want %q", key, got, want)
				}
			}
			if string(r.Key) != "k" || header(r, processor.HeaderOffset) == "" || header(r, processor.HeaderPartition) == "" {
				t.Errorf("dead letter %+v", r)
			}
		}
		if n := w.seen.verdicts["reject"]; n != 2 {
			t.Errorf("hooks saw %d rejects", n)
		}
	})
}

// DeadLetter.Build makes the record; where it cannot, the default is used.
func TestDeadLetterBuild(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95, sharetxntest.Topic("elsewhere", 1))
		w.feed(t, 4)
		cfg := processor.Config{Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, processor.Reject(nil) }}
		cfg.DeadLetter.Build = func(in *processor.Record, reason error) *kgo.Record {
			switch string(in.Value) {
			case "0":
				return &kgo.Record{Topic: "elsewhere", Value: []byte(reason.Error())}
			case "1":
				panic("no")
			case "2":
				return &kgo.Record{Topic: "__sharetxn_ledger.g", Value: in.Value}
			}
			return nil
		}
		w.RunUntilDrained(t, "g", w.processor(t, cfg))
		if got := w.values(t, "elsewhere"); len(got) != 1 || got["no reason given"] != 1 {
			t.Errorf("elsewhere: %v", got)
		}
		if got := w.values(t, "dead"); len(got) != 3 || got["1"] != 1 || got["2"] != 1 || got["3"] != 1 {
			t.Errorf("dead: %v", got)
		}
	})
}

// Discard removes what is rejected without a copy.
func TestDiscard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 3)
		cfg := processor.Config{Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "1" {
				return nil, processor.Reject(errBad)
			}
			return copyOf(in), nil
		}}
		cfg.DeadLetter.Discard = true
		w.RunUntilDrained(t, "g", w.processor(t, cfg))
		if got := w.values(t, "out"); len(got) != 2 || len(w.values(t, "dead")) != 0 {
			t.Errorf("out %v, dead %v", got, w.values(t, "dead"))
		}
	})
}

// A released record is held until its time and then delivered again; its
// neighbours do not wait for it, also when the wait is longer than its lock.
func TestRelease(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 10 * time.Second}))
		w.feed(t, 50)
		var first, second atomic.Int64
		p := w.processor(t, processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "7" {
				switch in.DeliveryCount {
				case 1:
					first.Store(time.Now().UnixMilli())
					return nil, processor.Release(time.Minute)
				case 2:
					second.Store(time.Now().UnixMilli())
				}
			}
			return copyOf(in), nil
		})})
		stop := run(t, p)
		eventually(t, "the neighbours are done", func() bool { return len(w.values(t, "out")) == 49 })
		if second.Load() != 0 {
			t.Error("delivered again at once")
		}
		w.WaitDrained(t, "g")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		if waited := second.Load() - first.Load(); waited < 60_000 || waited > 70_000 {
			t.Errorf("delivered again after %d ms, want a minute", waited)
		}
		w.want(t, 50)
		w.seen.healthy(t, 1, "7")
	})
}

// A release on the last delivery would be the record's end: it is rejected.
func TestReleaseOnLastDelivery(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: 3}))
		w.feed(t, 5)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "4" {
				return nil, processor.Release(0)
			}
			return copyOf(in), nil
		})}))
		w.want(t, 5, "4")
		if n := w.seen.calls["4"]; n != 2 {
			t.Errorf("handled %d times: of 3 deliveries the last is not for handling", n)
		}
	})
}

// GiveUp rejects in the first delivery.
func TestGiveUp(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 5)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Failure: processor.Failure{Attempts: 2, GiveUp: true}, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "0" {
				return nil, errBad
			}
			return copyOf(in), nil
		})}))
		w.want(t, 5, "0")
		if calls, n := w.seen.calls["0"], w.seen.deliveries["0"]; calls != 2 || n != 1 {
			t.Errorf("%d calls in %d deliveries", calls, n)
		}
	})
}

// A dead letter that cannot be written is never given up.
func TestDeadLetterRefused(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 5)
		var big atomic.Bool
		big.Store(true)
		cfg := processor.Config{Failure: processor.Failure{GiveUp: true}, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "2" {
				return nil, processor.Reject(errBad)
			}
			return copyOf(in), nil
		})}
		cfg.DeadLetter.Build = func(in *processor.Record, _ error) *kgo.Record {
			if big.Load() {
				return &kgo.Record{Value: make([]byte, 3<<20)}
			}
			return nil
		}
		stop := run(t, w.processor(t, cfg))
		eventually(t, "the others are done", func() bool { return len(w.values(t, "out")) == 4 })
		time.Sleep(5 * time.Minute) // of virtual time: many tries
		if n := len(w.values(t, "dead")); n != 0 {
			t.Fatalf("%d dead letters", n)
		}
		big.Store(false)
		w.WaitDrained(t, "g")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 5, "2")
		if n := w.seen.deliveries["2"]; n != 1 {
			t.Errorf("delivered %d times", n)
		}
	})
}

// A handler longer than the lock keeps it: its record is renewed.
func TestLongHandler(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 15 * time.Second}))
		w.feed(t, 3)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{HandlerTimeout: 10 * time.Minute, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			time.Sleep(2 * time.Minute)
			return copyOf(in), nil
		})}))
		w.want(t, 3)
		w.seen.healthy(t, 1)
	})
}

// A handler whose record's lock is lost is told by its context.
func TestLockLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95, sharetxntest.Brokers(3))
		w.feed(t, 1)
		causes := make(chan error, 1)
		var once atomic.Bool
		stop := run(t, w.processor(t, processor.Config{HandlerTimeout: time.Hour, Handler: w.seen.handler(func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if !once.CompareAndSwap(false, true) {
				return copyOf(in), nil
			}
			w.MoveLeader(t, "in", in.Partition, (in.Partition+1)%3) // acquisitions are the leader's memory
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return copyOf(in), nil // too late to count
		})}))
		if err := <-causes; !errors.Is(err, sharetxn.ErrLockExpired) {
			t.Errorf("the handler's context ended because of %v", err)
		}
		w.WaitDrained(t, "g")
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 1)
	})
}

// Small polls that come during a commit share the next transaction, and MaxWait
// fills one.
func TestFilling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		p := w.processor(t, processor.Config{MaxWait: 2 * time.Second, MaxRecords: 100})
		stop := run(t, p)
		eventually(t, "ready", func() bool { return p.Status().Ready })
		for i := range 10 {
			w.Feed(t, &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)})
			time.Sleep(50 * time.Millisecond)
		}
		w.WaitDrained(t, "g")
		if n := w.seen.count(sharetxn.Committed); n != 1 {
			t.Errorf("%d transactions within MaxWait, want 1", n)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 10)
	})
}

// Where the brokers cannot stage, Run fails at once and sends nothing there.
func TestUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, setting{guarantee: processor.Staged})
		err := w.processor(t, processor.Config{}).Run(t.Context())
		if !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
			t.Errorf("Run: %v", err)
		}
		for _, key := range []int16{93, 95} {
			if n := w.Requests(sharetxntest.Key(key)); n != 0 {
				t.Errorf("%d requests on key %d", n, key)
			}
		}
	})
}

// Where a group allows no renewal, what is done is committed before its locks
// end, and the rest comes again.
func TestNoRenewal(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: 10 * time.Second}))
		w.groupConfig(t, groupconfig.RenewAcknowledge(false))
		if on.guarantee == processor.Ledger { // who waits for another's transaction must renew
			err := w.processor(t, processor.Config{}).Run(t.Context())
			if unfit, ok := errors.AsType[*processor.UnfitError](err); !ok || len(unfit.Problems) != 1 || unfit.Problems[0].Setting != "share.renew.acknowledge.enable of group g" {
				t.Errorf("Run: %v", err)
			}
			return
		}
		w.feed(t, 24)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			time.Sleep(700 * time.Millisecond)
			return copyOf(in), nil
		})}))
		w.want(t, 24)
		w.seen.healthy(t, 4)
	})
}

// Memory is bounded by bytes too: no poll and no transaction is larger than
// MaxBytes for more than one record.
func TestMaxBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 40)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{MaxBytes: 100 << 10, Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return append(copyOf(in), &kgo.Record{Topic: "side", Value: make([]byte, 30<<10)}), nil
		})}))
		if n := len(w.values(t, "out")); n != 40 {
			t.Errorf("%d outputs", n)
		}
		w.AssertExactlyOnce(t, "g", "out", "side")
		w.seen.mu.Lock()
		defer w.seen.mu.Unlock()
		for _, e := range w.seen.ends {
			if e.Records > 4 { // the fourth makes it full
				t.Errorf("a transaction of %d records with 30 KiB of output each", e.Records)
			}
		}
	})
}

// A user's own mistake with outputs, an aborted transaction of many, is undone
// without a delivery: the records are run again under their locks.
func TestAbortCostsNoDelivery(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 100)
		var failed atomic.Bool
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			if string(in.Value) == "50" && failed.CompareAndSwap(false, true) {
				return []*kgo.Record{{Topic: "out", Value: make([]byte, 3<<20)}}, nil
			}
			return copyOf(in), nil
		})}))
		if !failed.Load() || w.seen.count(sharetxn.Aborted) == 0 {
			t.Fatal("nothing aborted")
		}
		w.want(t, 100)
		w.seen.healthy(t, 1)
	})
}

// Topics that do not exist are told.
func TestMissingTopics(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, err := broker.Start(broker.Config{Topics: map[string]int32{"in": 1}}) // the kit would create them
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	p, err := processor.New(cl, processor.Config{
		Group: "g", Topics: []string{"in", "nope"}, Instance: "here", DeadLetter: processor.DeadLetter{Topic: "nowhere"},
		Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, p)
	testkit.Eventually(ctx, t, "both are missed", func() bool { return slices.Equal(p.Status().MissingTopics, []string{"nope", "nowhere"}) })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
}
