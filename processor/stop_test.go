package processor_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A soft stop finishes what is in hand, and a restart goes on with the rest.
func TestSoftStop(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 300)
		first := make(chan struct{})
		var once sync.Once
		slow := w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			once.Do(func() { close(first) })
			time.Sleep(10 * time.Millisecond)
			return copyOf(in), nil
		})
		p := w.processor(t, processor.Config{Handler: slow, MaxRecords: 50, Members: 2})
		stop := run(t, p)
		<-first
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the soft stop took %v", took)
		}
		done := len(w.values(t, "out"))
		if done == 0 || done == 300 {
			t.Errorf("%d of 300 done in the middle: the test is not in the middle", done)
		}
		if n := w.seen.count(sharetxn.Aborted); n > 0 {
			t.Errorf("%d transactions aborted by a soft stop", n)
		}
		for _, m := range p.Status().Members {
			if m.State != "stopped" || m.Err != nil {
				t.Errorf("after the stop: %+v", m)
			}
		}
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		w.want(t, 300)
		w.seen.healthy(t, 2) // what was polled and not begun cost a delivery
	})
}

// A hard stop ends handlers' contexts, and gives back what was in hand at once:
// another instance need not wait for its locks.
func TestHardStop(t *testing.T) {
	ended := func(err error) bool { return errors.Is(err, context.Canceled) }
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 100)
		inHandler := make(chan struct{})
		var once sync.Once
		cause := make(chan error, 1)
		p := w.processor(t, processor.Config{Handler: w.seen.handler(func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
			once.Do(func() { close(inHandler) })
			<-ctx.Done()
			select {
			case cause <- context.Cause(ctx):
			default:
			}
			return nil, ctx.Err()
		})})
		done := make(chan error, 1)
		go func() { done <- p.Run(t.Context()) }()
		<-inHandler
		now, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		if err := p.Stop(now); !ended(err) {
			t.Errorf("Stop: %v", err)
		}
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the hard stop took %v", took)
		}
		if err := <-cause; err == nil || !strings.Contains(err.Error(), "stopped hard") {
			t.Errorf("the handler's context ended because of %v", err)
		}
		began = time.Now()
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("what was given back came again only after %v", took)
		}
		w.want(t, 100)
	})
}

// StopTimeout makes a hard stop of a soft one: also of a handler that never
// returns.
func TestStopTimeout(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		w.feed(t, 10)
		never, inHandler := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { close(never) })
		var once sync.Once
		p := w.processor(t, processor.Config{StopTimeout: 3 * time.Second, HandlerTimeout: time.Hour,
			Handler: w.seen.handler(func(context.Context, *processor.Record) ([]*kgo.Record, error) {
				once.Do(func() { close(inHandler) })
				<-never
				return nil, nil
			})})
		stop := run(t, p)
		<-inHandler
		began := time.Now()
		if err := stop(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		if took := time.Since(began); took < 3*time.Second || took > 6*time.Second {
			t.Errorf("stopped after %v, StopTimeout is 3 s", took)
		}
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		w.want(t, 10)
	})
}

// Stop and Run in every order.
func TestStopOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 1)
		p := w.processor(t, processor.Config{})
		if err := p.Stop(t.Context()); err != nil {
			t.Errorf("Stop before Run: %v", err)
		}
		if err := p.Run(t.Context()); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("Run after Stop: %v", err)
		}
		p = w.processor(t, processor.Config{})
		stop := run(t, p)
		eventually(t, "ready", func() bool { return p.Status().Ready })
		if err := p.Run(t.Context()); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("a second Run: %v", err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if err := p.Stop(t.Context()); err != nil {
					t.Errorf("Stop: %v", err)
				}
			})
		}
		wg.Wait()
		if err := stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
		if p.Status().Ready {
			t.Error("ready after the end")
		}
		// A context that has ended already stops it before it begins.
		p = w.processor(t, processor.Config{})
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Run(ended); err != nil {
			t.Errorf("Run with an ended context: %v", err)
		}
	})
}

// A handler that a hard stop interrupts has not failed, whatever it returns: the
// dead letter of a record on its last delivery says that the processor stopped.
func TestHardStopIsNoFailure(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: on.least()}))
		const runs, records = 6, 8
		for i := range runs { // whether the stop or what handlers return is seen first is chance
			w.feedMore(t, i*records, records)
			w.useDelivery(t, records)
			in := make(chan struct{})
			p := w.processor(t, processor.Config{Concurrency: records, Handler: w.told(in, untilEnded)})
			done := make(chan error, 1)
			go func() { done <- p.Run(t.Context()) }()
			<-in
			eventually(t, "all brokers' records are there", func() bool { return p.Status().Members[0].Held == records })
			hard, end := context.WithCancel(t.Context())
			end()
			if err := p.Stop(hard); err == nil {
				t.Error("Stop: no error, and it was a hard one")
			}
			if err := <-done; err != nil {
				t.Errorf("Run: %v", err)
			}
		}
		dead := w.Committed(t, "dead")
		if len(dead) != runs*records {
			t.Errorf("%d dead letters, want %d", len(dead), runs*records)
		}
		for _, r := range dead {
			if reason := header(r, processor.HeaderReason); !strings.Contains(reason, "the processor stopped on the last delivery") {
				t.Errorf("dead letter of %s says %q", r.Value, reason)
			}
		}
	})
}

// What is on its last delivery is not given back at a stop, since the broker
// would archive it.
func TestStopOnLastDelivery(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: on.least()}))
		w.feed(t, 3)
		last := make(chan struct{})
		var once sync.Once
		p := w.processor(t, processor.Config{StopTimeout: time.Second, Handler: w.seen.handler(func(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
			switch {
			case string(in.Value) != "1":
				return copyOf(in), nil
			case in.DeliveryCount == 2:
				once.Do(func() { close(last) })
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, processor.Release(0)
		})})
		stop := run(t, p)
		<-last
		if err := stop(); err != nil {
			t.Fatalf("Run: %v", err)
		}
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		w.want(t, 3, "1")
		reason := header(w.Committed(t, "dead")[0], processor.HeaderReason)
		if !strings.Contains(reason, "last delivery") {
			t.Errorf("dead letter says %q", reason)
		}
	})
}

// Two replicas with the same Instance: the older one stops and says why; with
// different ones both work.
func TestFenced(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on)
		older := w.processor(t, processor.Config{Instance: "pod-0", Members: 2})
		end := make(chan error, 1)
		go func() { end <- older.Run(t.Context()) }()
		eventually(t, "the older one is ready", func() bool { return older.Status().Ready })
		stopNeighbour := run(t, w.processor(t, processor.Config{Instance: "pod-1"}))
		w.feed(t, 30)
		w.WaitDrained(t, "g")

		newer := w.processor(t, processor.Config{Instance: "pod-0", Members: 2})
		stop := run(t, newer)
		eventually(t, "the newer one is ready", func() bool { return newer.Status().Ready })
		for i := 0; len(end) == 0; i++ { // the older learns of it when it next commits
			if i == 100 {
				t.Fatal("the older one goes on")
			}
			w.Feed(t, &kgo.Record{Topic: "in", Value: fmt.Append(nil, 30+i)})
			w.WaitDrained(t, "g")
		}
		err := <-end
		if !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
			t.Errorf("the older one ended with %v", err)
		}
		for _, part := range []string{"Instance", "pod-0", "another process"} {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
		n := 0
		for _, c := range w.values(t, "in") {
			n += c
		}
		w.WaitDrained(t, "g")
		if err := errors.Join(stop(), stopNeighbour()); err != nil {
			t.Errorf("the others: %v", err)
		}
		w.want(t, n)
	})
}

// Brokers that come late are waited for; those that never come end Run.
func TestBrokersComeLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, draft95)
		w.feed(t, 3)
		w.Inject(t, sharetxntest.Fault{Key: sharetxntest.InitProducerIDKey, Action: sharetxntest.BrokerRestarts(0)})
		w.Inject(t, sharetxntest.Fault{Key: sharetxntest.FindCoordinatorKey, Nth: 2, Action: sharetxntest.LoseRequest()})
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		w.want(t, 3)

		cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers("nowhere:9092"), kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			return nil, errors.New("connection refused")
		})), sharetxn.Logger(slog.New(slog.DiscardHandler)))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		p, err := processor.New(cl, processor.Config{Group: "g", Topics: []string{"in"}, Handler: w.seen.handler(nil), DeadLetter: processor.DeadLetter{Discard: true}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := p.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("Run without brokers: %v", err)
		}
		if took := time.Since(began); took < 30*time.Second || took > 3*time.Minute {
			t.Errorf("it gave up after %v", took)
		}
		if p.Status().Members[0].State != "failed" {
			t.Errorf("status %+v", p.Status())
		}
	})
}
