package producer

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A newer producer of the id takes over at different moments: the older one
// commits nothing and says that it is fenced; the newer one works.
func TestFenced(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name    string
			produce bool
			at      string
		}{
			{"before the first output", true, "begin"},
			{"after an output", true, "produce"},
			{"before staging", true, "stage"},
			{"before staging, acks only", false, "stage"},
			{"after staging", true, "end"},
			{"after staging, acks only", false, "end"},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile})
				w.feed(ctx, t, 3)
				cons, p := w.consumer(t, "g"), w.producer(t, "tx")
				newer, err := New(w.connect(t), "tx")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = newer.Close() })
				takeOver := func() {
					if err := newer.InitTransactions(ctx); err != nil {
						t.Errorf("the newer producer: %v", err)
					}
				}
				w.works(ctx, t, p, "before")
				bs := gather(ctx, t, cons, 3)
				tx, err := p.Begin(ctx, join(bs))
				if err != nil {
					t.Fatal(err)
				}
				if c.at == "begin" {
					takeOver()
				}
				if c.produce {
					err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("zombie")})
					if err != nil {
						t.Fatalf("Produce: %v", err)
					}
				}
				for _, b := range bs {
					b.AcceptRest()
				}
				var f *fault
				switch c.at {
				case "produce":
					testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx").Status == txn.Ongoing })
					takeOver()
				case "stage", "end":
					// The request waits until the newer producer has taken over.
					key := map[string]int16{"stage": profile.Key(), "end": keyEndTxn}[c.at]
					over := make(chan struct{})
					f = w.inject(key, 1, func(broker.Request) broker.Action {
						go func() { takeOver(); close(over) }()
						return broker.Action{Wait: over}
					})
				}
				out, err := tx.Commit(ctx)
				if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || !errors.Is(err, sharetxn.ErrFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) || !sharetxn.IsFatal(err) {
					t.Fatalf("%v, %v", out, err)
				}
				if f != nil {
					f.mustHaveFired(t, 1)
				}
				w.SetIntercept(nil)
				if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
					t.Errorf("Begin of the older: %v", err)
				}
				if err := p.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrFenced) {
					t.Errorf("InitTransactions of the older: %v", err)
				}
				if done, _, _, pending := w.totals("g"); done != 0 || pending != 0 {
					t.Errorf("%d records done, %d pending", done, pending)
				}
				w.works(ctx, t, newer, "after")
				same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
			})
		}
	})
}

// A fenced producer whose kgo client must be replaced does not take the id back.
func TestFencedProducerStaysFenced(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	newer := w.producer(t, "tx")
	w.works(ctx, t, newer, "newer")
	// p has never produced: its kgo client would ask for an epoch of its own.
	if out, err := w.one(ctx, p, nil, "older"); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) {
		t.Fatalf("%v, %v", out, err)
	}
	w.works(ctx, t, newer, "newer again")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "newer", "newer again")
}

// A delivery that failed makes the commit an abort that names the partition;
// good records of the transaction are not visible, and the producer goes on.
func TestFailedDelivery(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			code  int16
			class sharetxn.Class
		}{
			{kerr.MessageTooLarge.Code, sharetxn.ClassAbortable},
			{kerr.TopicAuthorizationFailed.Code, sharetxn.ClassAbortable},
			{kerr.InvalidTxnState.Code, sharetxn.ClassAbortable},
			{kerr.TransactionAbortable.Code, sharetxn.ClassAbortable},
			{kerr.InvalidProducerEpoch.Code, sharetxn.ClassAbortable},
			{kerr.UnknownProducerID.Code, sharetxn.ClassAbortable},
			{kerr.TransactionalIDAuthorizationFailed.Code, sharetxn.ClassFatal},
		} {
			for _, alone := range []bool{true, false} {
				t.Run(fmt.Sprintf("%v, alone %v", kerr.ErrorForCode(c.code), alone), func(t *testing.T) {
					ctx := testkit.Deadline(t, 30*time.Second)
					w := start(t, setup{profile: profile})
					w.feed(ctx, t, 3)
					cons, p := w.consumer(t, "g"), w.producer(t, "tx", KafkaOptions(kgo.RecordPartitioner(kgo.ManualPartitioner())))
					w.works(ctx, t, p, "before")
					bs := gather(ctx, t, cons, 3)
					var f *fault
					out, err := p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
						for _, b := range bs {
							b.AcceptRest()
						}
						if !alone {
							produces := w.Traffic(keyProduce).Requests
							if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Partition: 0, Value: []byte("good")}); err != nil {
								return err
							}
							testkit.Eventually(ctx, t, "the good record is sent", func() bool { return w.Traffic(keyProduce).Requests > produces })
						}
						f = &fault{key: keyProduce, node: 1, act: func(r broker.Request) broker.Action { return broker.Action{Answer: produceAnswer(r, c.code)} }}
						f.times.Store(1)
						w.SetIntercept(f.intercept)
						return tx.Produce(ctx, &kgo.Record{Topic: "out", Partition: 1, Value: []byte("bad")})
					})
					w.SetIntercept(nil)
					f.mustHaveFired(t, 1)
					var e *sharetxn.Error
					if out != sharetxn.Aborted || !errors.Is(err, kerr.ErrorForCode(c.code)) || sharetxn.ClassOf(err) != c.class {
						t.Fatalf("%v, %v (class %v)", out, err, sharetxn.ClassOf(err))
					}
					if !errors.As(errors.Unwrap(err), &e) || e.Topic != "out" || e.Partition != 1 {
						t.Errorf("does not name the partition: %v", err)
					}
					if out, err := w.one(ctx, p, bs, "again"); out != sharetxn.Committed || err != nil {
						t.Fatalf("second run: %v, %v", out, err)
					}
					w.waitDone(ctx, t, "g", 3)
					same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "again")
				})
			}
		}
	})
}

// A kgo client that took a new epoch in the middle of a transaction has aborted
// it: nothing is committed, and the next transaction has a client of its own. Where
// brokers lose that abort's marker, it is written again before anything else.
func TestStrayedClient(t *testing.T) {
	for _, markers := range []int64{0, 1} {
		t.Run(fmt.Sprintf("%d markers lost", markers), func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{})
			p := w.manual(t, "tx")
			w.works(ctx, t, p, "before")
			if err := p.Land(ctx); err != nil {
				t.Fatal(err)
			}
			lost := w.loseMarkers("tx", markers)
			moved := false
			out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("lost")}); err != nil {
					return err
				}
				if err := p.lanes[0].out.Flush(ctx); err != nil {
					return err
				}
				// What kgo does when it loses a partition's state: InitProducerId at the
				// transaction's own epoch.
				moved = w.initAgain(ctx, t, "tx")
				p.lanes[0].out.asks.OnBrokerWrite(kgo.BrokerMetadata{}, keyInit, 0, 0, 0, nil)
				return nil
			})
			if !moved || lost.Load() != markers {
				t.Fatalf("the epoch moved: %v; %d markers were lost", moved, lost.Load())
			}
			if out != sharetxn.Aborted || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
				t.Fatalf("%v, %v", out, err)
			}
			w.works(ctx, t, p, "after")
			same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
		})
	}
}

// The context ends at different moments: before EndTxn is sent the commit
// becomes an abort, after that it does not matter any more.
func TestContextEnds(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name string
			key  int16 // of the request at which it ends; -1: before Commit
			want sharetxn.Outcome
		}{
			{"before Commit", -1, sharetxn.Aborted},
			{"while outputs are delivered", keyProduce, sharetxn.Aborted},
			{"while acknowledgements are staged", profile.Key(), sharetxn.Aborted},
			{"after EndTxn is sent", keyEndTxn, sharetxn.Committed},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile})
				w.feed(ctx, t, 3)
				cons, p := w.consumer(t, "g"), w.producer(t, "tx")
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, cons, 3)
				tx, err := p.Begin(ctx, join(bs))
				if err != nil {
					t.Fatal(err)
				}
				for _, b := range bs {
					b.AcceptRest()
				}
				short, cancel := context.WithCancel(ctx)
				over := make(chan struct{})
				var f *fault
				if c.key >= 0 {
					f = w.inject(c.key, 1, func(broker.Request) broker.Action {
						cancel()
						// Free again when the library has had the time to see it.
						time.AfterFunc(100*time.Millisecond, func() { close(over) })
						return broker.Action{Wait: over}
					})
				}
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")}); err != nil {
					t.Fatal(err)
				}
				if c.key < 0 {
					cancel()
				}
				out, err := tx.Commit(short)
				cancel()
				if out != c.want || c.want == sharetxn.Aborted && !errors.Is(err, context.Canceled) || c.want == sharetxn.Committed && err != nil {
					t.Fatalf("%v, %v", out, err)
				}
				if f != nil {
					f.mustHaveFired(t, 1)
					<-over
				}
				w.SetIntercept(nil)
				want := []string{"it"}
				if c.want == sharetxn.Aborted {
					rest := remaining(bs)
					rest = append(rest, gather(ctx, t, cons, 3-count(rest))...)
					if out, err := w.one(ctx, p, rest, "again"); out != sharetxn.Committed || err != nil {
						t.Fatalf("second run: %v, %v", out, err)
					}
					want = []string{"again"}
				}
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
			})
		}
	})
}

// The context of a Produce call is not that of the delivery.
func TestProduceContext(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", KafkaOptions(kgo.ProducerLinger(200*time.Millisecond)))
	out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		short, cancel := context.WithCancel(ctx)
		defer cancel()
		return tx.Produce(short, &kgo.Record{Topic: "out", Value: []byte("it")})
	})
	if out != sharetxn.Committed || err != nil {
		t.Fatalf("cancelled after the call: %v, %v", out, err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	out, err = p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		_ = tx.Produce(ended, &kgo.Record{Topic: "out", Value: []byte("never")})
		return nil
	})
	if out != sharetxn.Aborted || !errors.Is(err, context.Canceled) {
		t.Fatalf("cancelled before the call: %v, %v", out, err)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
}

// A closure that does not return aborts, and the panic goes on after it.
func TestClosureDoesNotReturn(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	for name, leave := range map[string]func(){"panic": func() { panic("on purpose") }, "Goexit": runtime.Goexit} {
		var (
			saw      any
			returned bool
			state    txn.Status
			wg       sync.WaitGroup
		)
		wg.Go(func() {
			defer func() {
				saw = recover()
				state = w.txn("tx").Status
			}()
			_, _ = p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("lost")}); err != nil {
					t.Error(err)
				}
				leave()
				return nil
			})
			returned = true
		})
		wg.Wait()
		if returned || (saw != nil) != (name == "panic") || saw != nil && saw != "on purpose" {
			t.Errorf("%s: returned %v, recovered %v", name, returned, saw)
		}
		if state != txn.CompleteAbort {
			t.Errorf("%s: the transaction was %v when it went on", name, state)
		}
		w.works(ctx, t, p, name)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), "panic", "Goexit")
}

// A closure that ends the transaction itself is believed.
func TestClosureEndsItself(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	produce := func(ctx context.Context, tx *Txn, v string) {
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(v)}); err != nil {
			t.Error(err)
		}
	}
	out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		produce(ctx, tx, "kept")
		_, err := tx.Commit(ctx)
		if again, err := tx.Commit(ctx); again != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrTxnEnded) {
			t.Errorf("second Commit: %v, %v", again, err)
		}
		return err
	})
	if out != sharetxn.Committed || err != nil {
		t.Errorf("committed itself: %v, %v", out, err)
	}
	out, err = p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
		produce(ctx, tx, "dropped")
		return tx.Abort(ctx)
	})
	if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) {
		t.Errorf("aborted itself: %v, %v", out, err)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), "kept")
}

// Many goroutines produce while one ends the transaction: each output is either
// in it, or was refused.
func TestProduceConcurrently(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	for round := range 6 {
		before := len(w.visible(ctx, t, "out"))
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var taken, refused atomic.Int64
		var wg sync.WaitGroup
		busy := make(chan struct{}, 64)
		for range 8 {
			wg.Go(func() {
				for {
					err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")})
					if errors.Is(err, sharetxn.ErrTxnEnded) {
						refused.Add(1)
						return
					} else if err != nil {
						t.Errorf("Produce: %v", err)
						return
					}
					taken.Add(1)
					select {
					case busy <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 20 {
			<-busy
		}
		commit := round%2 == 0
		if commit {
			if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
		} else if err := tx.Abort(ctx); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		got := len(w.visible(ctx, t, "out")) - before
		if commit && int64(got) != taken.Load() || !commit && got != 0 {
			t.Errorf("commit %v: %d outputs visible, %d taken", commit, got, taken.Load())
		}
		if refused.Load() != 8 {
			t.Errorf("%d of 8 goroutines were refused", refused.Load())
		}
	}
}

// Records that are still under way when the transaction is aborted never reach
// a later one: their kgo client is dropped.
func TestAbortWithRecordsUnderWay(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", CloseTimeout(100*time.Millisecond), KafkaOptions(kgo.MaxBufferedRecords(10)))
	w.works(ctx, t, p, "before")
	free := make(chan struct{})
	var lost sync.Once
	stuck := make(chan struct{})
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := w.inject(keyProduce, 1<<30, func(broker.Request) broker.Action {
		lost.Do(func() { close(stuck) })
		return broker.Action{Wait: free}
	})
	for range 10 {
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("stuck")}); err != nil {
			t.Fatal(err)
		}
	}
	<-stuck
	inits, left := w.Traffic(keyInit).Requests, p.lanes[0].out.present()
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if f.fired.Load() == 0 {
		t.Fatal("no record was under way")
	}
	if err := left.Ping(ctx); !errors.Is(err, kgo.ErrClientClosed) {
		t.Errorf("the kgo client that holds them lives on: %v", err)
	}
	w.SetIntercept(nil)
	close(free)
	w.works(ctx, t, p, "after")
	if w.Traffic(keyInit).Requests == inits {
		t.Error("the kgo client was not replaced")
	}
	w.works(ctx, t, p, "after that")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after", "after that")
}

// A producer that was fenced while it had no kgo client does not take the id
// back with a new one.
func TestFencedWithoutClient(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p, newer := w.producer(t, "tx", CloseTimeout(100*time.Millisecond)), w.producer(t, "tx")
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	free := make(chan struct{})
	f := w.inject(keyProduce, 1<<30, always(broker.Action{Wait: free}))
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("stuck")}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the record is under way", func() bool { return f.fired.Load() > 0 })
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	w.SetIntercept(nil)
	close(free)
	w.works(ctx, t, newer, "newer")
	if out, err := w.one(ctx, p, nil, "older"); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) {
		t.Fatalf("%v, %v", out, err)
	}
	w.works(ctx, t, newer, "newer again")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "newer", "newer again")
}

// Abort does not wait for a Produce that waits for room in kgo's buffer.
func TestAbortUnblocksProduce(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", CloseTimeout(100*time.Millisecond), KafkaOptions(kgo.MaxBufferedRecords(1)))
	free := make(chan struct{})
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := w.inject(keyProduce, 1<<30, always(broker.Action{Wait: free}))
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	blocked := make(chan error, 1)
	go func() { blocked <- tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("second")}) }()
	testkit.Eventually(ctx, t, "the second is let in", func() bool {
		tx.mu.Lock()
		defer tx.mu.Unlock()
		return len(tx.calls) == 1 && f.fired.Load() > 0
	})
	select {
	case err := <-blocked:
		t.Fatalf("the second Produce did not wait: %v", err)
	default:
	}
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-blocked; !errors.Is(err, sharetxn.ErrTxnEnded) {
		t.Errorf("the blocked Produce: %v", err)
	}
	w.SetIntercept(nil)
	close(free)
	w.works(ctx, t, p, "after")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "after")
}

// A kgo client that gets no producer id makes the transaction an abort; where
// its request may have moved the epoch, a new one is asked for before the next
// transaction, whatever that consists of.
func TestOpenFails(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.producer(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	var nth atomic.Int64
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyInit || nth.Add(1) != 2 { // the first is the manager's own
			return broker.Action{}
		}
		resp := r.Message().ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return broker.Action{Answer: resp}
	})
	out, err := w.one(ctx, p, nil, "never")
	if out != sharetxn.Aborted || !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || !sharetxn.IsFatal(err) {
		t.Fatalf("%v, %v", out, err)
	}
	if nth.Load() != 2 {
		t.Fatalf("%d InitProducerId", nth.Load())
	}
	bs := gather(ctx, t, c, 3)
	out, err = p.InTransaction(ctx, join(bs), func(context.Context, *Txn) error {
		for _, b := range bs {
			b.AcceptRest()
		}
		return nil
	})
	if out != sharetxn.Committed || err != nil {
		t.Fatalf("acks only after it: %v, %v", out, err)
	}
	w.works(ctx, t, p, "after")
	w.waitDone(ctx, t, "g", 3)
	same(t, "visible outputs", w.visible(ctx, t, "out"), "after")
}
