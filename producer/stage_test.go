package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// One leader of three refuses: nothing is acknowledged anywhere, nothing is
// visible, and every record is delivered again.
func TestOneLeaderRefuses(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name   string
			answer func(broker.Request) broker.Action
			is     error
			class  sharetxn.Class
			whole  bool
		}{
			{"the member", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 25)} }, kerr.UnknownMemberID, sharetxn.ClassAbortable, true},
			{"the member epoch", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 113)} }, kerr.StaleMemberEpoch, sharetxn.ClassAbortable, true},
			{"the group", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 30)} }, kerr.GroupAuthorizationFailed, sharetxn.ClassAbortable, true},
			{"the producer epoch", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 47)} }, kerr.InvalidProducerEpoch, sharetxn.ClassAbortable, true},
			{"the feature", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 35)} }, sharetxn.ErrUnsupported, sharetxn.ClassFatal, true},
			{"a record", func(r broker.Request) broker.Action { return broker.Action{Answer: partitionAnswer(r, 121)} }, kerr.InvalidRecordState, sharetxn.ClassAbortable, false},
			{"a topic", func(r broker.Request) broker.Action { return broker.Action{Answer: partitionAnswer(r, 29)} }, kerr.TopicAuthorizationFailed, sharetxn.ClassAbortable, false},
			{"with a code of the future", func(r broker.Request) broker.Action { return broker.Action{Answer: partitionAnswer(r, 4711)} }, nil, sharetxn.ClassAbortable, false},
			{"without naming the partition", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 0)} }, nil, sharetxn.ClassAbortable, false},
			{"as not its leader", func(r broker.Request) broker.Action { return broker.Action{Answer: partitionAnswer(r, 6)} }, kerr.NotLeaderForPartition, sharetxn.ClassAbortable, false},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile, lock: time.Second})
				w.feed(ctx, t, 9)
				cons, p := w.consumer(t, "g", shareconsumer.LockMargin(10*time.Millisecond)), w.producer(t, "tx", LockMargin(10*time.Millisecond))
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, cons, 9)
				f := &fault{key: profile.Key(), node: 2, act: c.answer}
				f.times.Store(1)
				w.SetIntercept(f.intercept)
				before := w.stages()
				out, err := w.one(ctx, p, bs, "first")
				if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || c.is != nil && !errors.Is(err, c.is) || sharetxn.ClassOf(err) != c.class {
					t.Fatalf("%v, %v (class %v)", out, err, sharetxn.ClassOf(err))
				}
				f.mustHaveFired(t, 1)
				asked := 3
				if c.class == sharetxn.ClassFatal {
					asked++ // for a new proof
				}
				if got := w.stages() - before; got != asked {
					t.Fatalf("%d staging requests, want %d: the other leaders were not asked", got, asked)
				}
				if done, _, _, pending := w.totals("g"); done != 0 || pending != 0 {
					t.Fatalf("after the abort %d records are done and %d pending", done, pending)
				}
				// Refused as a whole: nothing was staged there and the records are still
				// held. Refused by partition they are, in Draft95, the broker's again.
				rest := remaining(bs)
				want := map[bool]int{true: 3}[c.whole]
				if profile == wire.KIP93 {
					want = 9
					if errors.Is(c.is, kerr.InvalidRecordState) { // not all of that partition's are ours
						want = 6
					}
				}
				if count(rest) != want {
					t.Fatalf("%d records are still held, want %d", count(rest), want)
				}
				outputs := 0
				for done := 0; done < 9; outputs++ {
					if len(rest) == 0 {
						rest = append(rest, poll(ctx, t, cons))
					}
					n := count(rest)
					if out, err := w.one(ctx, p, rest, "next"); out != sharetxn.Committed || err != nil {
						t.Fatalf("the transaction after it: %v, %v", out, err)
					}
					done, rest = done+n, nil
				}
				w.waitDone(ctx, t, "g", 9)
				if got := w.visible(ctx, t, "out"); len(got) != outputs || slices.Contains(got, "first") {
					t.Errorf("visible: %v, want %d times next", got, outputs)
				}
			})
		}
	})
}

// What is worth a retry is repeated, byte for byte, until it is staged.
func TestStageIsRepeated(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, c := range []struct {
			name string
			act  func(broker.Request) broker.Action
		}{
			{"answer lost", always(broker.Action{LoseAnswer: true})},
			{"request lost", always(broker.Action{LoseRequest: true})},
			{"markers being written", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 51)} }},
			{"coordinator loading", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 14)} }},
			{"coordinator away", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 15)} }},
			{"coordinator moved", func(r broker.Request) broker.Action { return broker.Action{Answer: stageAnswer(r, 16)} }},
			{"partition not available", func(r broker.Request) broker.Action { return broker.Action{Answer: partitionAnswer(r, 13)} }},
		} {
			t.Run(c.name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				hook := &recorder{}
				w := start(t, setup{profile: profile, hooks: []sharetxn.Hook{hook}})
				w.feed(ctx, t, 9)
				cons, p := w.consumer(t, "g"), w.producer(t, "tx")
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, cons, 9)
				var mu sync.Mutex
				requests := make(map[int32][]string)
				f := w.injectStage(3, func(r broker.Request) broker.Action {
					mu.Lock()
					defer mu.Unlock()
					requests[r.Node] = append(requests[r.Node], fmt.Sprintf("%x", r.Message().AppendTo(nil)))
					return c.act(r)
				})
				out, err := w.one(ctx, p, bs, "it")
				if out != sharetxn.Committed || err != nil {
					t.Fatalf("%v, %v", out, err)
				}
				f.mustHaveFired(t, 3)
				mu.Lock()
				defer mu.Unlock()
				if len(requests) != 1 {
					t.Errorf("the fault met %d brokers: leaders are not asked one after the other", len(requests))
				}
				for node, rs := range requests {
					for _, r := range rs {
						if r != rs[0] {
							t.Errorf("a repeat to broker %d differs from its first", node)
						}
					}
				}
				_, stages, _ := hook.seen()
				most, failed := 0, 0
				for _, s := range stages {
					most = max(most, s.Attempt)
					if s.Err != nil {
						failed++
					}
				}
				if most < 4 || failed < 3 {
					t.Errorf("hooks saw at most attempt %d and %d failures", most, failed)
				}
				w.waitDone(ctx, t, "g", 9)
				same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
			})
		}
	})
}

// A stage that is never answered makes the commit an abort, within its bound,
// and what may have been staged comes back from the broker.
func TestStageNeverAnswered(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		for _, lose := range []broker.Action{{LoseAnswer: true}, {LoseRequest: true}} {
			t.Run(fmt.Sprintf("%+v", lose.LoseAnswer), func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, setup{profile: profile})
				w.feed(ctx, t, 3)
				c, p := w.consumer(t, "g"), w.producer(t, "tx", StageTimeout(300*time.Millisecond))
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, c, 3)
				f := w.injectStage(1<<30, always(lose))
				began := time.Now()
				out, err := w.one(ctx, p, bs, "first")
				if out != sharetxn.Aborted || !strings.Contains(fmt.Sprint(err), "StageTimeout") || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
					t.Fatalf("%v, %v", out, err)
				}
				if took := time.Since(began); took < 300*time.Millisecond || took > 10*time.Second {
					t.Errorf("took %v", took)
				}
				if f.fired.Load() < 2 {
					t.Fatalf("the fault fired %d times", f.fired.Load())
				}
				w.SetIntercept(nil)
				// Two leaders were not asked: their records are still held. What the
				// first was asked for may be staged: in Draft95 it is forgotten, and comes
				// back from the broker, if it never arrived when the member leaves.
				var rest []*shareconsumer.Batch
				if lose.LoseRequest && profile == wire.Draft95 {
					if n := count(remaining(bs)); n != 2 {
						t.Fatalf("%d records are still held, want 2", n)
					}
					_ = c.Close()
					c = w.consumer(t, "g")
					rest = gather(ctx, t, c, 3)
				} else {
					rest = w.again(ctx, t, c, bs, 3, 2)
				}
				if out, err := w.one(ctx, p, rest, "second"); out != sharetxn.Committed || err != nil {
					t.Fatalf("the transaction after it: %v, %v", out, err)
				}
				w.waitDone(ctx, t, "g", 3)
				same(t, "visible outputs", w.visible(ctx, t, "out"), "second")
			})
		}
	})
}

// A refusal after an attempt without an answer denies nothing of that attempt:
// its records may be staged and are the broker's.
func TestRefusedAfterLostAnswer(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, c, 3)
		var nth atomic.Int64
		f := w.injectStage(2, func(r broker.Request) broker.Action {
			if nth.Add(1) == 1 {
				return broker.Action{LoseAnswer: true}
			}
			return broker.Action{Answer: stageAnswer(r, kerr.UnknownMemberID.Code)}
		})
		out, err := w.one(ctx, p, bs, "first")
		f.mustHaveFired(t, 2)
		if out != sharetxn.Aborted || !errors.Is(err, kerr.UnknownMemberID) {
			t.Fatalf("%v, %v", out, err)
		}
		if out, err := w.one(ctx, p, w.again(ctx, t, c, bs, 3, 2), "second"); out != sharetxn.Committed || err != nil {
			t.Fatalf("the transaction after it: %v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", 3)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "second")
	})
}

// A share partition whose leader moved between fetch and staging: the old leader
// refuses, the new one is asked once, no longer knows the member's records, and
// the transaction aborts.
func TestLeaderMoves(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		m, p := joinRaw(ctx, t, w, "g"), w.producer(t, "tx")
		m.fetch(ctx, t, 1)
		send := func(offset int64) (sharetxn.Outcome, error) {
			return p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Append(nil, offset)}); err != nil {
					return err
				}
				return tx.SendShareAcknowledgementsToTransaction(ctx, m.batch(1, offset, acks.Accept), m.meta(t), LockUntil(time.Now().Add(20*time.Second)))
			})
		}
		if out, err := send(0); out != sharetxn.Committed || err != nil {
			t.Fatalf("before the move: %v, %v", out, err)
		}
		old := w.Leader("in", 1)
		if err := w.MoveLeader("in", 1, (old+1)%3); err != nil {
			t.Fatal(err)
		}
		var refused, asked atomic.Int64
		w.injectStage(1<<30, func(r broker.Request) broker.Action {
			asked.Add(1)
			return broker.Action{After: countCode(6, &refused)}
		})
		if out, err := send(1); out != sharetxn.Aborted || !errors.Is(err, kerr.InvalidRecordState) {
			t.Fatalf("after the move: %v, %v", out, err)
		}
		if asked.Load() != 2 || refused.Load() != 1 {
			t.Fatalf("%d staging requests, %d refused as not the leader's; want 2 and 1", asked.Load(), refused.Load())
		}
		m.session = make(map[int32]int32)
		m.fetch(ctx, t, 1)
		if out, err := send(1); out != sharetxn.Committed || err != nil {
			t.Fatalf("acquired anew: %v, %v", out, err)
		}
		if refused.Load() != 1 {
			t.Error("the old leader was asked again")
		}
		same(t, "visible outputs", w.visible(ctx, t, "out"), "0", "1")
	})
}

// While it is staged a record takes no plain acknowledgement.
func TestPlainAckOfStagedRecord(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		m, p := joinRaw(ctx, t, w, "g"), w.producer(t, "tx")
		m.fetch(ctx, t, 0)
		staged, free := make(chan struct{}), make(chan struct{})
		f := w.inject(keyEndTxn, 1, func(broker.Request) broker.Action {
			close(staged)
			return broker.Action{Wait: free}
		})
		type result struct {
			out sharetxn.Outcome
			err error
		}
		ended := make(chan result, 1)
		go func() {
			out, err := p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				return tx.SendShareAcknowledgementsToTransaction(ctx, m.batch(0, 0, acks.Accept), m.meta(t), LockUntil(time.Now().Add(20*time.Second)))
			})
			ended <- result{out, err}
		}()
		select {
		case <-staged:
		case <-ctx.Done():
			t.Fatal("EndTxn never came")
		}
		if s, owner, _, ok := w.StateOf("g", "in", 0, 0); s != share.TxPending || owner != m.id || !ok {
			t.Fatalf("the record is %v of %q", s, owner)
		}
		for _, typ := range []acks.Type{acks.Accept, acks.Release, acks.Reject} {
			if code := m.acknowledge(ctx, t, 0, 0, typ); code != kerr.InvalidRecordState.Code {
				t.Errorf("%v of a staged record: code %d", typ, code)
			}
		}
		close(free)
		if r := <-ended; r.out != sharetxn.Committed || r.err != nil {
			t.Fatalf("%v, %v", r.out, r.err)
		}
		f.mustHaveFired(t, 1)
		testkit.Eventually(ctx, t, "the record is done", func() bool { done, _, _, pending := w.totals("g"); return done == 1 && pending == 0 })
	})
}

// The broker's own check of the member's epoch.
func TestStaleMemberEpoch(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		m, p := joinRaw(ctx, t, w, "g"), w.producer(t, "tx")
		m.fetch(ctx, t, 0)
		send := func(meta groupmeta.ShareGroupMetadata) (sharetxn.Outcome, error) {
			return p.InTransaction(ctx, nil, func(ctx context.Context, tx *Txn) error {
				if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("it")}); err != nil {
					return err
				}
				return tx.SendShareAcknowledgementsToTransaction(ctx, m.batch(0, 0, acks.Accept), meta, LockUntil(time.Now().Add(20*time.Second)))
			})
		}
		stale, err := groupmeta.New("g", m.id, m.epoch+7)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := send(stale); out != sharetxn.Aborted || !errors.Is(err, kerr.StaleMemberEpoch) && !errors.Is(err, kerr.FencedMemberEpoch) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("epoch of the future: %v, %v", out, err)
		}
		unknown, err := groupmeta.New("g", "nobody", 1)
		if err != nil {
			t.Fatal(err)
		}
		if out, err := send(unknown); out != sharetxn.Aborted || !errors.Is(err, kerr.UnknownMemberID) {
			t.Fatalf("unknown member: %v, %v", out, err)
		}
		if out, err := send(m.meta(t)); out != sharetxn.Committed || err != nil {
			t.Fatalf("the member itself: %v, %v", out, err)
		}
		same(t, "visible outputs", w.visible(ctx, t, "out"), "it")
	})
}

// A broker that is down is no reason to stage at it forever, and the records of
// the others are not half acknowledged.
func TestLeaderDown(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		c, p := w.consumer(t, "g"), w.producer(t, "tx", StageTimeout(500*time.Millisecond))
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, c, 9)
		down := w.Leader("in", 2)
		w.StopNode(down)
		out, err := p.InTransaction(ctx, join(bs), func(context.Context, *Txn) error {
			for _, b := range bs {
				b.AcceptRest()
			}
			return nil
		})
		if out == sharetxn.Committed || err == nil {
			t.Fatalf("%v, %v", out, err)
		}
		if done, _, _, _ := w.totals("g"); done != 0 {
			t.Fatalf("%d records are done", done)
		}
		if err := w.StartNode(down); err != nil {
			t.Fatal(err)
		}
		for _, b := range remaining(bs) {
			b.Close()
		}
		done := int64(0)
		for done < 9 {
			b := poll(ctx, t, c)
			n := int64(len(b.Records()))
			if out, err := p.InTransaction(ctx, b, func(context.Context, *Txn) error { b.AcceptRest(); return nil }); out == sharetxn.Committed {
				done += n
			} else if sharetxn.IsFatal(err) {
				t.Fatal(err)
			}
		}
		w.waitDone(ctx, t, "g", 9)
	})
}
