package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// began opens a transaction with one output.
func began(ctx context.Context, t testing.TB, p *producer.Producer, topic, value string) *producer.Txn {
	t.Helper()
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatalf("Begin before %q: %v", value, err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}); err != nil {
		t.Fatalf("Produce %q: %v", value, err)
	}
	return tx
}

func commit(ctx context.Context, t testing.TB, p *producer.Producer, topic, value string) {
	t.Helper()
	if o, err := began(ctx, t, p, topic, value).Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatalf("Commit of %q: %v, %v", value, o, err)
	}
}

func wantVisible(ctx context.Context, t testing.TB, w *world, topic string, want ...string) {
	t.Helper()
	if got := w.visible(ctx, t, topic); !slices.Equal(got, want) {
		t.Errorf("read_committed sees %v, want %v", got, want)
	}
}

// Commits and aborts in turn on one id: exactly the committed outputs show, in
// order. The kgo client follows our EndTxn each time, or the next would fail.
func TestCommitsAndAbortsInTurn(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 90*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t)
	var want []string
	const n = 300
	for i := range n {
		value := fmt.Sprint(i)
		tx := began(ctx, t, p, topic, value)
		if i%3 == 1 {
			if err := tx.Abort(ctx); err != nil {
				t.Fatalf("Abort of %s: %v", value, err)
			}
			continue
		}
		if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
			t.Fatalf("Commit of %s: %v, %v", value, o, err)
		}
		want = append(want, value)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	wantVisible(ctx, t, w, topic, want...)
}

// Whoever begins last with an id has it; the other is told, and what it had
// open is never seen.
func TestFencing(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	old, young := w.producer(t), w.producer(t)
	commit(ctx, t, old, topic, "before")
	tx := began(ctx, t, old, topic, "zombie")
	w.waitTxn(ctx, t, "Ongoing")
	commit(ctx, t, young, topic, "young")

	o, err := tx.Commit(ctx)
	if o != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
		t.Errorf("the fenced commit: %v, %v", o, err)
	}
	if _, err := old.Begin(ctx); !errors.Is(err, sharetxn.ErrFenced) {
		t.Errorf("Begin of the fenced: %v", err)
	}
	commit(ctx, t, young, topic, "after")
	wantVisible(ctx, t, w, topic, "before", "young", "after")
}

// A request or an answer that is lost is asked for again, and only the
// coordinator's word makes the outcome.
func TestLostEndTxn(t *testing.T) {
	k := broker(t)
	for _, c := range []struct {
		name   string
		fate   kafka.Fate
		times  int32
		commit bool
	}{
		{"the answer to a commit", kafka.LoseAnswer, 1, true},
		{"three answers to a commit", kafka.LoseAnswer, 3, true},
		{"the commit", kafka.LoseRequest, 1, true},
		{"the answer to an abort", kafka.LoseAnswer, 1, false},
		{"the abort", kafka.LoseRequest, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 40*time.Second)
			w := open(t, k)
			topic := w.topic(ctx, t, "out", 1)
			p := w.producer(t)
			want := []string{"before"}
			commit(ctx, t, p, topic, "before")
			tx := began(ctx, t, p, topic, "hit")
			w.waitTxn(ctx, t, "Ongoing")
			var left atomic.Int32
			left.Store(c.times)
			w.tap.Decide(func(key int16) kafka.Fate {
				if key == keyEndTxn && left.Add(-1) >= 0 {
					return c.fate
				}
				return kafka.Pass
			})
			if c.commit {
				if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
					t.Fatalf("Commit: %v, %v", o, err)
				}
				want = append(want, "hit")
			} else if err := tx.Abort(ctx); err != nil {
				t.Fatalf("Abort: %v", err)
			}
			if n := w.tap.Lost(c.fate); n != int(c.times) {
				t.Fatalf("%d were lost, want %d", n, c.times)
			}
			commit(ctx, t, p, topic, "after")
			wantVisible(ctx, t, w, topic, append(want, "after")...)
		})
	}
}

// Where the broker aborted a transaction whose commit never reached it, its
// refusal is the proof.
func TestCommitsLostUntilTheBrokerAborted(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t, producer.TransactionTimeout(2500*time.Millisecond))
	tx := began(ctx, t, p, topic, "late")
	w.waitTxn(ctx, t, "Ongoing")
	w.tap.Decide(func(key int16) kafka.Fate {
		if key == keyEndTxn {
			return kafka.LoseRequest
		}
		return kafka.Pass
	})
	type result struct {
		o   sharetxn.Outcome
		err error
	}
	done := make(chan result, 1)
	go func() {
		o, err := tx.Commit(ctx)
		done <- result{o, err}
	}()
	w.waitTxn(ctx, t, "CompleteAbort")
	if w.tap.Lost(kafka.LoseRequest) == 0 {
		t.Fatal("no commit was lost")
	}
	w.tap.Decide(nil)
	if r := <-done; r.o != sharetxn.Aborted || !errors.Is(r.err, sharetxn.ErrAborted) || !errors.Is(r.err, kerr.InvalidTxnState) || sharetxn.IsFatal(r.err) {
		t.Fatalf("Commit: %v, %v", r.o, r.err)
	}
	commit(ctx, t, p, topic, "next")
	wantVisible(ctx, t, w, topic, "next")
}

// Without an answer within the bound the outcome is unknown, whatever the
// broker did, and stays so until the next Begin has asked.
func TestUnknownUntilAnswered(t *testing.T) {
	k := broker(t)
	for name, fate := range map[string]kafka.Fate{"the broker committed": kafka.LoseAnswer, "the broker heard nothing": kafka.LoseRequest} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 40*time.Second)
			w := open(t, k)
			topic := w.topic(ctx, t, "out", 1)
			p := w.producer(t, producer.ResolveTimeout(time.Second))
			commit(ctx, t, p, topic, "before")
			tx := began(ctx, t, p, topic, "hit")
			w.waitTxn(ctx, t, "Ongoing")
			w.tap.Decide(func(key int16) kafka.Fate {
				if key == keyEndTxn {
					return fate
				}
				return kafka.Pass
			})
			if o, err := tx.Commit(ctx); o != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) || sharetxn.ClassOf(err) != sharetxn.ClassUnknown {
				t.Fatalf("Commit: %v, %v", o, err)
			}
			inits, lost := w.tap.Seen(keyInitProducerID), w.tap.Lost(fate)
			if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
				t.Fatalf("Begin without an answer: %v", err)
			}
			if n := w.tap.Lost(fate); lost == 0 || n == lost {
				t.Fatalf("lost %d, then %d: nothing was asked", lost, n)
			}
			if n := w.tap.Seen(keyInitProducerID); n != inits {
				t.Fatalf("%d InitProducerId while the outcome was open: that decides it unseen", n-inits)
			}
			w.tap.Decide(nil)
			commit(ctx, t, p, topic, "after")
			wantVisible(ctx, t, w, topic, "before", "hit", "after")
		})
	}
}

// A transaction that the broker ended for its age is aborted, and the producer
// goes on.
func TestTransactionTimeout(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t, producer.TransactionTimeout(2500*time.Millisecond))
	tx := began(ctx, t, p, topic, "late")
	w.waitTxn(ctx, t, "Ongoing")
	w.waitTxn(ctx, t, "CompleteAbort")
	if o, err := tx.Commit(ctx); o != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || sharetxn.IsFatal(err) {
		t.Fatalf("Commit: %v, %v", o, err)
	}
	commit(ctx, t, p, topic, "next")
	wantVisible(ctx, t, w, topic, "next")
}

// A transaction timeout above what brokers allow, 15 minutes by default, is refused
// for good; at the limit it is not.
func TestTransactionTimeoutAboveTheBrokers(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, time.Minute)
	w := open(t, k)
	const limit = 15 * time.Minute
	topic := w.topic(ctx, t, "out", 1)
	_, err := w.producer(t, producer.TransactionTimeout(limit+time.Millisecond)).Begin(ctx)
	e, ok := errors.AsType[*sharetxn.Error](err)
	if !ok || e.Class != sharetxn.ClassFatal || !e.FromBroker || !errors.Is(err, kerr.InvalidTransactionTimeout) {
		t.Errorf("above: %v", err)
	}
	commit(ctx, t, w.producer(t, producer.TransactionTimeout(limit)), topic, "within")
	wantVisible(ctx, t, w, topic, "within")
}

// What a producer left open when it closed is aborted at once, not when it
// times out.
func TestCloseAborts(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "out", 1)
	p := w.producer(t, producer.TransactionTimeout(time.Minute))
	_ = began(ctx, t, p, topic, "left")
	w.waitTxn(ctx, t, "Ongoing")
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w.waitTxn(ctx, t, "CompleteAbort")
	wantVisible(ctx, t, w, topic)
}
