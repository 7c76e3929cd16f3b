package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Transactions of acknowledgements alone, of outputs alone, of both, and
// aborted ones of each kind, in turn: each follows its outcome, and the kgo
// client is replaced only where it could not follow.
func TestManyKindsInTurn(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{profile: profile})
		const n = 120
		w.feed(ctx, t, n)
		c, p := w.consumer(t, "g", shareconsumer.MaxPollRecords(2)), w.producer(t, "tx")
		var want []string
		done, kinds, round := 0, make(map[string]int), 0
		var b *shareconsumer.Batch
		for done < n {
			if b == nil {
				b = poll(ctx, t, c)
			}
			round++
			produce, acknowledge, abort := round%3 != 0, round%3 != 1, round%4 == 0
			kind := fmt.Sprintf("produce %v, acknowledge %v, abort %v", produce, acknowledge, abort)
			kinds[kind]++
			var in Acknowledgements
			if acknowledge {
				in = b
			}
			var outputs []string
			for _, v := range values(b) {
				outputs = append(outputs, fmt.Sprint(v, "@", round))
			}
			records := len(outputs)
			broken := errors.New("on purpose")
			out, err := p.InTransaction(ctx, in, func(ctx context.Context, tx *Txn) error {
				for _, r := range b.Records() {
					if produce {
						if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Append(r.Value, "@", round)}); err != nil {
							return err
						}
					}
					if acknowledge {
						r.Accept()
					}
				}
				if abort {
					return broken
				}
				return nil
			})
			if abort {
				if out != sharetxn.Aborted || !errors.Is(err, broken) || !errors.Is(err, sharetxn.ErrAborted) {
					t.Fatalf("%s: %v, %v", kind, out, err)
				}
				continue // the batch is open again and runs again
			}
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("%s: %v, %v", kind, out, err)
			}
			if produce {
				want = append(want, outputs...)
			}
			if acknowledge {
				done += records
				b = nil
			}
		}
		w.waitDone(ctx, t, "g", n)
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
		if len(kinds) != 6 {
			t.Errorf("kinds of transactions: %v", kinds)
		}
		if st := w.txn("tx"); len(st.Partitions) > 0 {
			t.Errorf("partitions left in the transaction: %+v", st)
		}
	})
}

// Consecutive transactions of acknowledgements alone need no kgo client and no
// InitProducerId; each is ended by an EndTxn of its own.
func TestManyAcksOnly(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{profile: profile})
		const n = 60
		w.feed(ctx, t, n)
		c, p := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.producer(t, "tx")
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		inits := w.Traffic(keyInit).Requests
		for range n {
			b := poll(ctx, t, c)
			out, err := p.InTransaction(ctx, b, func(context.Context, *Txn) error { b.AcceptRest(); return nil })
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
		}
		w.waitDone(ctx, t, "g", n)
		if got := w.Traffic(keyEndTxn).Requests; got < n {
			t.Errorf("%d EndTxn for %d transactions", got, n)
		}
		if got := w.Traffic(keyInit).Requests; got != inits {
			t.Errorf("%d InitProducerId within the transactions", got-inits)
		}
	})
}

// The kgo client follows commits and aborts alike, without a new producer id.
func TestKgoFollows(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx")
	run := func(i int) {
		_, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Append(nil, i)}); err != nil {
				return err
			}
			if i%5 == 4 {
				return errors.New("on purpose")
			}
			return nil
		})
		if (err == nil) != (i%5 != 4) {
			t.Fatalf("transaction %d: %v", i, err)
		}
	}
	run(0)
	inits, first := w.Traffic(keyInit).Requests, w.txn("tx").ProducerEpoch
	const more = 50
	for i := 1; i <= more; i++ {
		run(i)
	}
	if got := w.Traffic(keyInit).Requests; got != inits {
		t.Errorf("%d InitProducerId after the first transaction", got-inits)
	}
	if got := w.txn("tx").ProducerEpoch - first; got != more {
		t.Errorf("the epoch moved by %d in %d transactions", got, more)
	}
}

// After an abort before staging the batch is open again, its locks and its
// place kept, and runs again at no cost in deliveries.
func TestAbortGivesBack(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 6)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		done := 0
		for done < 6 {
			b := poll(ctx, t, c)
			records := b.Records()
			tx, err := p.Begin(ctx, b)
			if err != nil {
				t.Fatal(err)
			}
			if err := copyAll(ctx, tx, b); err != nil {
				t.Fatal(err)
			}
			if err := tx.Abort(ctx); err != nil {
				t.Fatal(err)
			}
			if err := tx.Abort(ctx); err != nil {
				t.Errorf("second Abort: %v", err)
			}
			if got := w.visible(ctx, t, "out"); len(got) != done {
				t.Fatalf("visible after an abort: %v", got)
			}
			out, err := p.InTransaction(ctx, b, func(ctx context.Context, tx *Txn) error { return copyAll(ctx, tx, b) })
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("second run: %v, %v", out, err)
			}
			for _, r := range records {
				if r.DeliveryCount() != 1 {
					t.Errorf("record %s: delivery %d", r.Value, r.DeliveryCount())
				}
			}
			done += len(records)
		}
		w.waitDone(ctx, t, "g", 6)
	})
}

// After an abort that had staged, the records run again: delivered anew, or kept
// under the same delivery, as the profile has it.
func TestAbortAfterStaging(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 9)
		// The abort is made by an answer that denies the commit.
		f := w.inject(keyEndTxn, 1, func(r broker.Request) broker.Action { return broker.Action{Answer: endAnswer(r, 120)} })
		copied := func() (sharetxn.Outcome, error) {
			return p.InTransaction(ctx, join(bs), func(ctx context.Context, tx *Txn) error {
				for _, b := range bs {
					if err := copyAll(ctx, tx, b); err != nil {
						return err
					}
				}
				return nil
			})
		}
		out, err := copied()
		f.mustHaveFired(t, 1)
		if out != sharetxn.Aborted || !errors.Is(err, kerr.TransactionAbortable) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("%v, %v", out, err)
		}
		const handshakes = 3
		if w.stages() < handshakes+3 {
			t.Fatal("nothing was staged")
		}
		bs = w.again(ctx, t, c, bs, 9, 0)
		var want []string
		for _, b := range bs {
			want = append(want, values(b)...)
		}
		if out, err := copied(); out != sharetxn.Committed || err != nil {
			t.Fatalf("second run: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 9)
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
	})
}

// A verdict Release is no part of the transaction: it leaves after a commit.
func TestReleaseBesideAccept(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		b := gather(ctx, t, c, 3)
		released := ""
		out, err := p.InTransaction(ctx, join(b), func(context.Context, *Txn) error {
			for _, b := range b {
				for _, r := range b.Records() {
					if released == "" {
						released = string(r.Value)
						r.Release()
					} else {
						r.Accept()
					}
				}
			}
			return nil
		})
		if out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		again := poll(ctx, t, c)
		if vs := values(again); len(vs) != 1 || vs[0] != released || again.Records()[0].DeliveryCount() != 2 {
			t.Fatalf("delivered again: %v, want %s", vs, released)
		}
		if out, err := p.InTransaction(ctx, again, func(context.Context, *Txn) error { again.AcceptRest(); return nil }); err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
	})
}

// Nothing produced, accepted or rejected: nothing to prove, nothing to send.
func TestEmpty(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		run := func(name string, commit bool, in ...Acknowledgements) {
			t.Helper()
			tx, err := p.Begin(ctx, in...)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if !commit {
				if err := tx.Abort(ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			} else if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
				t.Errorf("%s: %v, %v", name, out, err)
			}
		}
		run("commit", true)
		run("abort", false)
		run("commit again", true)
		b := gather(ctx, t, c, 3)
		for _, b := range b {
			for _, r := range b.Records() {
				r.Release()
			}
		}
		run("commit of releases", true, join(b))
		const handshakes = 3
		if end, stage := w.Traffic(keyEndTxn).Requests, w.stages(); end != 0 || stage != handshakes {
			t.Errorf("%d EndTxn, %d staging requests", end, stage-handshakes)
		}
		again := gather(ctx, t, c, 3)
		for _, b := range again {
			for _, r := range b.Records() {
				if r.DeliveryCount() != 2 {
					t.Errorf("record %s was not released", r.Value)
				}
			}
		}
	})
}

// Two members of one group and one of another in one transaction, by Join and by
// several sends.
func TestSeveralMembers(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		hook := &recorder{}
		w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
		w.feed(ctx, t, 30)
		consumers := []*shareconsumer.Consumer{w.consumer(t, "g"), w.consumer(t, "g"), w.consumer(t, "h")}
		p := w.producer(t, "tx")
		rest := map[string]int{"g": 30, "h": 30}
		forms, most := [2]int{}, 0
		for round := 0; rest["g"]+rest["h"] > 0; round++ {
			var in []Acknowledgements
			polled := make(map[*shareconsumer.Consumer]*shareconsumer.Batch)
			for _, c := range consumers {
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				b, err := c.Poll(short)
				cancel()
				if errors.Is(err, context.DeadlineExceeded) {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				in, polled[c] = append(in, b), b
				rest[c.ShareGroupMetadata().GroupID()] -= len(b.Records())
			}
			if len(in) == 0 {
				continue
			}
			forms[round%2]++
			most = max(most, len(in))
			kip := round%2 == 1
			if kip {
				in = nil
			}
			out, err := p.InTransaction(ctx, Join(in...), func(ctx context.Context, tx *Txn) error {
				for c, b := range polled {
					if !kip {
						b.AcceptRest()
						continue
					}
					set, err := acks.FromRecords(b.Records(), acks.Accept)
					if err != nil {
						return err
					}
					for tp, bs := range set.Partitions() {
						if err := tx.SendShareAcknowledgementsToTransaction(ctx, map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: bs}, c.ShareGroupMetadata()); err != nil {
							return err
						}
					}
				}
				return nil
			})
			if out != sharetxn.Committed || err != nil {
				t.Fatalf("round %d: %v, %v", round, out, err)
			}
		}
		w.waitDone(ctx, t, "g", 30)
		w.waitDone(ctx, t, "h", 30)
		if most < 2 {
			t.Errorf("never more than %d members in one transaction", most)
		}
		ends, stages, _ := hook.seen()
		records := 0
		for _, e := range ends {
			records += e.Records
			if e.LockMargin <= 0 || e.LockMargin > 30*time.Second {
				t.Errorf("lock margin %v", e.LockMargin)
			}
		}
		staged := 0
		for _, s := range stages {
			if s.Err == nil {
				staged += s.Offsets
			}
		}
		if records != 60 || staged != 60 {
			t.Errorf("hooks saw %d records acknowledged and %d staged, want 60", records, staged)
		}
		if forms[0] == 0 {
			t.Error("no transaction by Join")
		}
	})
}

// Members of another process: their locks are told, and what they staged
// follows the outcome.
func TestForeignMember(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 12)
		elsewhere := &world{w.Cluster, w.profile, w.connect(t)}
		c, p := elsewhere.consumer(t, "g"), w.producer(t, "tx")
		done := 0
		for done < 12 {
			b := poll(ctx, t, c)
			set, err := acks.FromRecords(b.Records(), acks.Accept)
			if err != nil {
				t.Fatal(err)
			}
			send := func(opts ...SendOpt) (sharetxn.Outcome, error) {
				return p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
					return tx.SendShareAcknowledgementsToTransaction(ctx, set.Map(), c.ShareGroupMetadata(), opts...)
				})
			}
			if out, err := send(); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrUsage) {
				t.Fatalf("without LockUntil: %v, %v", out, err)
			}
			if out, err := send(LockUntil(time.Now().Add(time.Second))); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrLockExpired) {
				t.Fatalf("with less of the lock than the margin: %v, %v", out, err)
			}
			if got := w.txn("tx"); len(got.Partitions) > 0 {
				t.Fatalf("staged after its lock: %+v", got)
			}
			if out, err := send(LockUntil(b.Deadline())); out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
			done += len(b.Records())
			b.Forget()
		}
		w.waitDone(ctx, t, "g", 12)
	})
}
