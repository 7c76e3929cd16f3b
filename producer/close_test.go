package producer

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Close aborts what is open, gives its batch back and says that it was left.
func TestCloseAbortsOpenTransaction(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		hook := &recorder{}
		w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 3)
		tx, err := p.Begin(ctx, join(bs))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range bs {
			b.AcceptRest()
		}
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("lost")}); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx").Status == txn.Ongoing })
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				if err := p.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
			})
		}
		wg.Wait()
		if got := w.txn("tx").Status; got != txn.CompleteAbort {
			t.Errorf("the transaction is %v", got)
		}
		if out, err := tx.Commit(ctx); out == sharetxn.Committed || !errors.Is(err, sharetxn.ErrTxnEnded) {
			t.Errorf("Commit after Close: %v, %v", out, err)
		}
		if _, _, misuse := hook.seen(); len(misuse) != 1 || misuse[0].Where != "tx" {
			t.Errorf("misuse %+v", misuse)
		}
		next := w.producer(t, "next")
		if out, err := w.one(ctx, next, bs, "it"); out != sharetxn.Committed || err != nil {
			t.Fatalf("the batch in another transaction: %v, %v", out, err)
		}
		same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
	})
}

// Close while a commit is under way waits for it, within its bound; past that
// the commit does not claim what it cannot prove.
func TestCloseDuringCommit(t *testing.T) {
	for name, c := range map[string]struct {
		hold time.Duration
		want sharetxn.Outcome
	}{
		"short": {50 * time.Millisecond, sharetxn.Committed},
		"long":  {3 * time.Second, sharetxn.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{})
			p := w.producer(t, "tx", CloseTimeout(500*time.Millisecond))
			w.works(ctx, t, p, "before")
			tx, err := p.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")}); err != nil {
				t.Fatal(err)
			}
			sent, free := make(chan struct{}), make(chan struct{})
			f := w.inject(keyEndTxn, 1, func(broker.Request) broker.Action {
				close(sent)
				time.AfterFunc(c.hold, func() { close(free) })
				return broker.Action{Wait: free}
			})
			type result struct {
				out sharetxn.Outcome
				err error
			}
			ended := make(chan result, 1)
			go func() {
				out, err := tx.Commit(ctx)
				ended <- result{out, err}
			}()
			<-sent
			began := time.Now()
			err = p.Close()
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("Close took %v", took)
			}
			r := <-ended
			f.mustHaveFired(t, 1)
			if r.out != c.want || (r.err == nil) != (c.want == sharetxn.Committed) {
				t.Fatalf("Commit: %v, %v", r.out, r.err)
			}
			if errors.Is(err, sharetxn.ErrOutcomeUnknown) != (c.want == sharetxn.Unknown) {
				t.Errorf("Close: %v", err)
			}
			<-free
			w.SetIntercept(nil)
			next := w.producer(t, "tx")
			w.works(ctx, t, next, "after")
			want := []string{"before", "after"}
			if c.want == sharetxn.Committed {
				want = append(want, "it")
			} // else the broker closed the request with its connection, and aborted for the next producer
			same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		})
	}
}

// Close is bounded when no broker answers.
func TestCloseWithoutBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", CloseTimeout(300*time.Millisecond))
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("lost")}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx").Status == txn.Ongoing })
	for node := range int32(3) {
		w.StopNode(node)
	}
	began := time.Now()
	err = p.Close()
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	if !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
		t.Errorf("Close: %v", err)
	}
	if _, err := tx.Commit(ctx); err == nil {
		t.Error("Commit after Close gave nil")
	}
	for node := range int32(3) {
		if err := w.StartNode(node); err != nil {
			t.Fatal(err)
		}
	}
	next := w.producer(t, "tx")
	w.works(ctx, t, next, "it")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
}

// Begin and Commit do not hang when no broker answers.
func TestNoBroker(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", ResolveTimeout(300*time.Millisecond), TransactionTimeout(500*time.Millisecond), LockMargin(0))
	w.works(ctx, t, p, "before")
	for node := range int32(3) {
		w.StopNode(node)
	}
	began := time.Now()
	out, err := w.one(ctx, p, nil, "lost")
	if out == sharetxn.Committed || err == nil {
		t.Fatalf("%v, %v", out, err)
	}
	fresh := w.producer(t, "fresh", ResolveTimeout(300*time.Millisecond))
	if _, err := fresh.Begin(ctx); err == nil {
		t.Error("Begin gave nil")
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := fresh.lanes[0].m.Init(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Init: %v", err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("took %v", took)
	}
	for node := range int32(3) {
		if err := w.StartNode(node); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(ctx, t, "the producer works again", func() bool {
		out, err := w.one(ctx, p, nil, "after")
		if sharetxn.IsFatal(err) {
			t.Fatal(err)
		}
		return out == sharetxn.Committed
	})
	w.works(ctx, t, fresh, "fresh")
}
