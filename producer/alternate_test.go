package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watcher keeps, in order, the transactional ids that requests of some keys
// named; a request that repeats the one before it counts once.
type watcher struct {
	mu   sync.Mutex
	seen []string
}

// watch sees EndTxn and InitProducerId; act, if there is one, decides on them.
func (w *world) watch(act func(broker.Request) broker.Action) *watcher {
	s := &watcher{}
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyEndTxn && r.Key != keyInit {
			return broker.Action{}
		}
		var what string
		switch m := r.Message().(type) {
		case *kmsg.EndTxnRequest:
			what = fmt.Sprintf("end %s commit=%v", m.TransactionalID, m.Commit)
		case *kmsg.InitProducerIDRequest:
			what = "init " + *m.TransactionalID
		}
		s.mu.Lock()
		if n := len(s.seen); n == 0 || s.seen[n-1] != what {
			s.seen = append(s.seen, what)
		}
		s.mu.Unlock()
		if act == nil {
			return broker.Action{}
		}
		return act(r)
	})
	return s
}

func (s *watcher) take() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.seen
	s.seen = nil
	return out
}

var errOnPurpose = errors.New("on purpose")

// The ids take turns with the commits. An abort stays with its id, and so does a
// transaction in which nothing was sent.
func TestAlternation(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		hook := &recorder{}
		w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
		w.feed(ctx, t, 30)
		c, p := w.consumer(t, "g", shareconsumer.MaxPollRecords(4)), w.producer(t, "tx", AlternateIDs(3))
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		var used, want []string
		steps := []struct {
			kind string // commit, abort, or empty
			id   string
		}{
			{"commit", "tx"}, {"commit", "tx-alt1"}, {"abort", "tx-alt2"}, {"abort", "tx-alt2"}, {"empty", "tx-alt2"}, {"commit", "tx-alt2"},
			{"empty", "tx"}, {"commit", "tx"}, {"abort", "tx-alt1"}, {"commit", "tx-alt1"}, {"commit", "tx-alt2"}, {"commit", "tx"},
		}
		rest := gather(ctx, t, c, 30)
		for i, s := range steps {
			value := fmt.Sprint(s.kind, i)
			out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if ctx.Value(spanKey{}) != s.id {
					t.Errorf("step %d, %s: began as %v, want %s", i, s.kind, ctx.Value(spanKey{}), s.id)
				}
				if s.kind == "empty" {
					return nil
				}
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(value)}); err != nil {
					return err
				}
				if err := tx.lane.out.Flush(ctx); err != nil {
					return err
				}
				for _, v := range w.Transactions() {
					if v.Status == txn.Ongoing {
						used = append(used, v.ID)
					}
				}
				if s.kind == "abort" {
					return errOnPurpose
				}
				return nil
			})
			if s.kind == "abort" != (out == sharetxn.Aborted) {
				t.Fatalf("step %d, %s: %v, %v", i, s.kind, out, err)
			}
			if s.kind == "commit" {
				want = append(want, value)
			}
		}
		var atBroker []string
		for _, s := range steps {
			if s.kind != "empty" {
				atBroker = append(atBroker, s.id)
			}
		}
		if !slices.Equal(used, atBroker) {
			t.Errorf("the broker saw transactions of\n\t%v, want\n\t%v", used, atBroker)
		}
		// And with acknowledgements, whose locks are one member's whatever the id.
		for i, b := range rest {
			id := nthID("tx", (i+1)%3)
			out, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *Txn) error {
				if ctx.Value(spanKey{}) != id {
					t.Errorf("batch %d: began as %v, want %s", i, ctx.Value(spanKey{}), id)
				}
				b.AcceptRest()
				return nil
			})
			if out != sharetxn.Committed {
				t.Fatalf("batch %d: %v, %v", i, out, err)
			}
		}
		w.waitDone(ctx, t, "g", 30)
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		ends, stages, _ := hook.seen()
		for _, s := range stages {
			if !slices.ContainsFunc(ends, func(e sharetxn.TxnEnd) bool { return e.TransactionalID == s.TransactionalID }) {
				t.Errorf("a hook saw %q stage and not end", s.TransactionalID)
			}
		}
	})
}

// An outcome that is unknown of one id is settled by the Begin of another, before
// anything is sent for that one.
func TestUnknownOfAnotherID(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name string
			lose broker.Action
			want sharetxn.Outcome
			next string
		}{
			{"was committed", broker.Action{LoseAnswer: true}, sharetxn.Committed, "tx-alt1"},
			{"timed out", broker.Action{LoseRequest: true}, sharetxn.Aborted, "tx"},
		} {
			for _, by := range []string{"Begin", "InitTransactions"} {
				t.Run(c.name+", by "+by, func(t *testing.T) {
					t.Parallel()
					ctx := testkit.Deadline(t, 30*time.Second)
					hook := &recorder{}
					w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
					w.feed(ctx, t, 3)
					timeout := 15 * time.Second
					if c.want == sharetxn.Aborted {
						timeout = 400 * time.Millisecond
					}
					cons := w.consumer(t, "g")
					p := w.producer(t, "tx", AlternateIDs(2), ResolveTimeout(unresolved), TransactionTimeout(timeout), LockMargin(10*time.Millisecond))
					if err := p.InitTransactions(ctx); err != nil {
						t.Fatal(err)
					}
					bs := gather(ctx, t, cons, 3)
					f := w.inject(keyEndTxn, 1<<30, always(c.lose))
					out, err := w.one(ctx, p, bs, "first")
					if out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
						t.Fatalf("%v, %v", out, err)
					}
					if f.fired.Load() == 0 {
						t.Fatal("the fault did not fire")
					}
					begin := func() error {
						if by == "InitTransactions" {
							return p.InitTransactions(ctx)
						}
						tx, err := p.Begin(ctx)
						if err != nil {
							return err
						}
						return tx.Abort(ctx)
					}
					s := w.watch(always(c.lose))
					if err := begin(); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
						t.Fatalf("while the outcome is unknown: %v", err)
					}
					if got := s.take(); !slices.Equal(got, []string{"end tx commit=true"}) {
						t.Fatalf("while the outcome is unknown: %v", got)
					}
					if c.want == sharetxn.Aborted {
						testkit.Eventually(ctx, t, "the broker gives the transaction up", func() bool { return w.txn("tx").Status == txn.CompleteAbort })
					}
					s = w.watch(nil)
					if err := begin(); err != nil {
						t.Fatal(err)
					}
					if got := s.take(); len(got) == 0 || got[0] != "end tx commit=true" {
						t.Errorf("first of all the outcome is to be settled; seen: %v", got)
					}
					ends, _, _ := hook.seen()
					if len(ends) < 2 || ends[0].Outcome != sharetxn.Unknown || ends[1].Outcome != c.want || ends[1].TransactionalID != "tx" {
						t.Errorf("hooks saw %+v", ends)
					}
					tx, err := p.Begin(ctx)
					if err != nil {
						t.Fatal(err)
					}
					if tx.lane.id != c.next {
						t.Errorf("the next transaction has id %s, want %s", tx.lane.id, c.next)
					}
					if err := tx.Abort(ctx); err != nil {
						t.Fatal(err)
					}
					w.SetIntercept(nil)
					want := []string{"second"}
					if c.want == sharetxn.Committed {
						want = append(want, "first")
					} else if out, err := w.one(ctx, p, w.again(ctx, t, cons, bs, 3, 0), "third"); err != nil {
						t.Fatalf("%v, %v", out, err)
					} else {
						want = append(want, "third")
					}
					w.works(ctx, t, p, "second")
					w.waitDone(ctx, t, "g", 3)
					same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
				})
			}
		}
	})
}

// A producer that is fenced on one of its ids is done with, and says on which
// and what to do.
func TestFencedOnOneID(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", AlternateIDs(2))
	w.works(ctx, t, p, "before") // as tx; tx-alt1 is next
	thief := w.producer(t, "tx-alt1")
	if err := thief.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	out, err := w.one(ctx, p, nil, "zombie")
	var e *sharetxn.Error
	if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) || !errors.As(err, &e) || e.TransactionalID != "tx-alt1" {
		t.Fatalf("%v, %v", out, err)
	}
	for range 2 {
		for name, f := range map[string]func() error{
			"Begin":            func() error { _, err := p.Begin(ctx); return err },
			"InitTransactions": func() error { return p.InitTransactions(ctx) },
		} {
			err := f()
			if !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
				t.Fatalf("%s: %v", name, err)
			}
			for _, part := range []string{`"tx-alt1"`, "another process", "Instance", "stop this one"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error does not say %s: %v", name, part, err)
				}
			}
		}
	}
	w.works(ctx, t, thief, "after")
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
}

// A newer life with fewer ids fences all that the older one had, and aborts what
// it left open; ids that were never used stay unknown to the brokers.
func TestLeftOverIDs(t *testing.T) {
	for _, by := range []string{"InitTransactions", "Begin"} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprintf("%d ids, by %s", n, by), func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{})
				older := w.producer(t, "tx", AlternateIDs(4))
				for i := range 3 {
					w.works(ctx, t, older, fmt.Sprint(i))
				}
				tx, err := older.Begin(ctx) // as tx-alt3
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("left")}); err != nil {
					t.Fatal(err)
				}
				testkit.Eventually(ctx, t, "the transaction begins", func() bool { return w.txn("tx-alt3").Status == txn.Ongoing })
				before := make(map[string]int16)
				for _, v := range w.Transactions() {
					before[v.ID] = v.ProducerEpoch
				}
				newer, err := New(w.connect(t), "tx", AlternateIDs(n))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = newer.Close() })
				if by == "InitTransactions" {
					if err := newer.InitTransactions(ctx); err != nil {
						t.Fatal(err)
					}
				} else {
					w.works(ctx, t, newer, "newer")
				}
				if got := w.txn("tx-alt3").Status; got == txn.Ongoing || got == txn.PrepareAbort {
					t.Errorf("what was left open is %v", got)
				}
				for _, v := range w.Transactions() {
					if epoch, ok := before[v.ID]; !ok || v.ProducerEpoch <= epoch {
						t.Errorf("%s: epoch %d, was %d (known before: %v)", v.ID, v.ProducerEpoch, epoch, ok)
					}
				}
				if len(before) != 4 {
					t.Errorf("%d ids, want 4", len(before))
				}
				if out, err := tx.Commit(ctx); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) && !errors.Is(err, kerr.InvalidProducerEpoch) {
					t.Errorf("Commit of the older: %v, %v", out, err)
				}
				if _, err := older.Begin(ctx); !errors.Is(err, sharetxn.ErrFenced) {
					t.Errorf("Begin of the older: %v", err)
				}
				w.works(ctx, t, newer, "newer")
				want := []string{"0", "1", "2", "newer"}
				if by == "Begin" {
					want = append(want, "newer")
				}
				same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
			})
		}
	}
}

// Ids beyond one's own that access control denies are somebody else's, if
// anybody's; anything else that keeps them from being told is an error, and the
// next try goes on.
func TestLeftOverIDsRefused(t *testing.T) {
	for _, c := range []struct {
		code int16
		key  int16
		err  error
	}{
		{kerr.TransactionalIDAuthorizationFailed.Code, keyFindCoordinator, nil},
		{kerr.TransactionalIDAuthorizationFailed.Code, 65, nil},
		{kerr.TransactionalIDAuthorizationFailed.Code, keyInit, nil},
		{kerr.InvalidRequest.Code, 65, kerr.InvalidRequest},
		{kerr.InvalidRequest.Code, keyInit, kerr.InvalidRequest},
	} {
		t.Run(fmt.Sprint(kerr.ErrorForCode(c.code), " to ", c.key), func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := start(t, setup{})
			older := w.producer(t, "tx", AlternateIDs(2))
			if err := older.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			f := &fault{key: c.key, node: -1, except: func(r broker.Request) bool {
				switch m := r.Message().(type) {
				case *kmsg.InitProducerIDRequest:
					return *m.TransactionalID == "tx"
				case *kmsg.FindCoordinatorRequest:
					return slices.Contains(m.CoordinatorKeys, "tx")
				case *kmsg.DescribeTransactionsRequest:
					return slices.Contains(m.TransactionalIDs, "tx")
				}
				return false
			}, act: func(r broker.Request) broker.Action { return broker.Action{Answer: refusal(r, c.code)} }}
			f.times.Store(1 << 30)
			w.SetIntercept(f.intercept)
			p := w.producer(t, "tx")
			err := p.InitTransactions(ctx)
			if f.fired.Load() == 0 {
				t.Fatal("the fault did not fire")
			}
			if c.err == nil && err != nil || c.err != nil && !errors.Is(err, c.err) {
				t.Fatalf("%v", err)
			}
			w.SetIntercept(nil)
			w.works(ctx, t, p, "it")
			same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
		})
	}
}

// refusal answers FindCoordinator, DescribeTransactions or InitProducerId with a
// code.
func refusal(r broker.Request, code int16) kmsg.Response {
	switch m := r.Message().(type) {
	case *kmsg.FindCoordinatorRequest:
		resp := m.ResponseKind().(*kmsg.FindCoordinatorResponse)
		for _, id := range m.CoordinatorKeys {
			s := kmsg.NewFindCoordinatorResponseCoordinator()
			s.Key, s.ErrorCode, s.NodeID = id, code, -1
			resp.Coordinators = append(resp.Coordinators, s)
		}
		return resp
	case *kmsg.DescribeTransactionsRequest:
		resp := m.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range m.TransactionalIDs {
			s := kmsg.NewDescribeTransactionsResponseTransactionState()
			s.TransactionalID, s.ErrorCode = id, code
			resp.TransactionStates = append(resp.TransactionStates, s)
		}
		return resp
	default:
		resp := m.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
		return resp
	}
}

// Close frees every id, within its bound, also if one's outcome stays unknown.
func TestCloseWithUnknownOfOneID(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", AlternateIDs(3), ResolveTimeout(unresolved), CloseTimeout(300*time.Millisecond))
	w.works(ctx, t, p, "before") // as tx
	f := w.inject(keyEndTxn, 1<<30, func(r broker.Request) broker.Action {
		if m := r.Message().(*kmsg.EndTxnRequest); m.TransactionalID != "tx-alt1" {
			return broker.Action{}
		}
		return broker.Action{LoseRequest: true}
	})
	if out, err := w.one(ctx, p, nil, "unknown"); out != sharetxn.Unknown {
		t.Fatalf("%v, %v", out, err)
	}
	if f.fired.Load() == 0 {
		t.Fatal("the fault did not fire")
	}
	began := time.Now()
	err := p.Close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("took %v", took)
	}
	if !errors.Is(err, sharetxn.ErrOutcomeUnknown) || !strings.Contains(err.Error(), "tx-alt1") || strings.Contains(err.Error(), "tx-alt2") {
		t.Errorf("Close: %v", err)
	}
	if again := p.Close(); fmt.Sprint(again) != fmt.Sprint(err) {
		t.Errorf("second Close: %v", again)
	}
	if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("Begin after Close: %v", err)
	}
	w.SetIntercept(nil)
	next := w.producer(t, "tx", AlternateIDs(3))
	w.works(ctx, t, next, "after")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
}

// However many begin at once, one transaction is open at a time.
func TestOneAtATimeOfSeveralIDs(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", AlternateIDs(3))
	var (
		wg             sync.WaitGroup
		mu             sync.Mutex
		want           []string
		refused, ended int
	)
	for g := range 4 {
		wg.Go(func() {
			for i := range 15 {
				value := fmt.Sprint(g, "-", i)
				out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
					ongoing := 0
					err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte(value)})
					for _, v := range w.Transactions() {
						if v.Status == txn.Ongoing {
							ongoing++
						}
					}
					if ongoing > 1 {
						t.Errorf("%d transactions at once", ongoing)
					}
					return err
				})
				mu.Lock()
				switch {
				case out == sharetxn.Committed:
					want = append(want, value)
					ended++
				case errors.Is(err, sharetxn.ErrTxnOpen):
					refused++
				default:
					t.Errorf("%v, %v", out, err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if refused == 0 || ended == 0 {
		t.Errorf("%d refused, %d committed: nothing happened at once", refused, ended)
	}
	same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
}

func TestAlternateIDsIsChecked(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers("127.0.0.1:1")))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for n, ok := range map[int]bool{-1: false, 0: false, 1: true, 16: true, 17: false} {
		p, err := New(cl, "tx", AlternateIDs(n))
		if ok != (err == nil) || !ok && (!errors.Is(err, sharetxn.ErrUsage) || !strings.Contains(err.Error(), "AlternateIDs")) {
			t.Errorf("%d: %v", n, err)
		}
		if p != nil {
			if err := p.Close(); err != nil {
				t.Errorf("%d: Close: %v", n, err)
			}
		}
	}
	// An id that is just short enough alone is too long with a number.
	long := strings.Repeat("x", 16382)
	for n, ok := range map[int]bool{1: true, 2: false} {
		p, err := New(cl, long, AlternateIDs(n))
		if ok != (err == nil) {
			t.Errorf("%d ids of a long name: %v", n, err)
		}
		if p != nil {
			_ = p.Close()
		}
	}
}

// Producers that their users number are not each other's: one that starts takes
// nothing from "its" number 1.
func TestNumberedProducersAreStrangers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	other := w.producer(t, "tx-1", AlternateIDs(2))
	w.works(ctx, t, other, "1")
	if err := w.producer(t, "tx", AlternateIDs(4)).InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	w.works(ctx, t, other, "2")
	w.works(ctx, t, other, "3")
	same(t, "visible", w.visible(ctx, t, "out"), "1", "2", "3")
}
