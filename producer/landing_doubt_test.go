package producer

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const keyMetadata = 3

// producers answers DescribeProducers: each partition with a code, and nobody.
func producers(r broker.Request, code int16) kmsg.Response {
	req := r.Message().(*kmsg.DescribeProducersRequest)
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, topic := range req.Topics {
		rt := kmsg.DescribeProducersResponseTopic{Topic: topic.Topic}
		for _, n := range topic.Partitions {
			rt.Partitions = append(rt.Partitions, kmsg.DescribeProducersResponseTopicPartition{Partition: n, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// bothEnds runs a test of a transaction that commits, and of one that aborts.
func bothEnds(t *testing.T, name string, run func(t *testing.T, commit bool)) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("%s, commit %v", name, commit), func(t *testing.T) {
			run(t, commit)
		})
	}
}

// repaired wants that the one marker that was lost was written again, once, and
// decides what it should.
func (w *world) repaired(ctx context.Context, t *testing.T, p *Producer, lost *atomic.Int64, commit bool, before ...string) {
	t.Helper()
	if err := p.Land(ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.Traffic(keyAdd).Requests; lost.Load() != 1 || got != 1 {
		t.Fatalf("%d markers were lost, %d AddPartitionsToTxn", lost.Load(), got)
	}
	w.SetIntercept(nil)
	write(ctx, t, p, nil, "next", !commit)
	want := append(before, "next0", "next1")
	if commit {
		want = append(before, "first0", "first1")
	}
	write(ctx, t, p, nil, "last", true)
	same(t, "visible", w.visible(ctx, t, "out"), append(want, "last0", "last1")...)
}

// What a broker that is behind says of a partition, that nothing is open there or
// that there is none, is not taken for the transaction's end; neither is an answer
// that leaves it out.
func TestDoubtfulAnswers(t *testing.T) {
	for name, answer := range map[string]func(broker.Request) kmsg.Response{
		"nothing is open":   func(r broker.Request) kmsg.Response { return producers(r, 0) },
		"no such partition": func(r broker.Request) kmsg.Response { return producers(r, kerr.UnknownTopicOrPartition.Code) },
		"not the leader":    func(r broker.Request) kmsg.Response { return producers(r, kerr.NotLeaderForPartition.Code) },
		"an error":          func(r broker.Request) kmsg.Response { return producers(r, kerr.UnknownServerError.Code) },
		"left out":          func(r broker.Request) kmsg.Response { return r.Message().ResponseKind() },
	} {
		bothEnds(t, name, func(t *testing.T, commit bool) {
			ctx := testkit.Deadline(t, 60*time.Second)
			w := start(t, setup{})
			p := w.manual(t, "tx")
			write(ctx, t, p, nil, "before", true) // its leaders are known from then on
			if err := p.Land(ctx); err != nil {
				t.Fatal(err)
			}
			lost := w.loseMarkers("tx", 1)
			f := &fault{key: keyDescribe, node: w.Leader("out", 0), act: func(r broker.Request) broker.Action { return broker.Action{Answer: answer(r)} }}
			f.times.Store(1)
			w.SetIntercept(f.intercept)
			write(ctx, t, p, nil, "first", commit)
			w.repaired(ctx, t, p, lost, commit, "before0", "before1")
			f.mustHaveFired(t, 1)
		})
	}
}

// A commit is looked for at whoever leads now: the broker that led before, and knows
// nothing of it, cannot say often enough that nothing is open.
func TestLeaderMovesBeforeTheEndIsSeen(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	lost := w.loseMarkers("tx", 1)
	old := w.Leader("out", 0)
	moved := false
	f := &fault{key: keyDescribe, node: old, act: func(r broker.Request) broker.Action {
		return broker.Action{Answer: producers(r, 0), Before: func() {
			if !moved { // requests of a connection come one by one
				moved = true
				if err := w.MoveLeader("out", 0, (old+1)%3); err != nil {
					t.Error(err)
				}
			}
		}}
	}}
	f.times.Store(1 << 30)
	f.except = func(r broker.Request) bool { // partition 1 may have the same leader
		for _, topic := range r.Message().(*kmsg.DescribeProducersRequest).Topics {
			for _, n := range topic.Partitions {
				if n == 0 {
					return false
				}
			}
		}
		return true
	}
	w.SetIntercept(f.intercept)
	write(ctx, t, p, nil, "first", true)
	w.repaired(ctx, t, p, lost, true)
	if f.fired.Load() == 0 {
		t.Fatal("the old leader was not asked")
	}
}

// Metadata without a topic's partitions, for an error that passes, is no topic that
// is gone.
func TestTopicsPassingError(t *testing.T) {
	bothEnds(t, "leader not available", func(t *testing.T, commit bool) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{})
		p := w.manual(t, "tx")
		tx := flushed(ctx, t, p, nil, "first")
		lost := w.loseMarkers("tx", 1)
		f := w.inject(keyMetadata, 1<<30, func(r broker.Request) broker.Action {
			req := r.Message().(*kmsg.MetadataRequest)
			resp := req.ResponseKind().(*kmsg.MetadataResponse)
			for _, topic := range req.Topics {
				rt := kmsg.NewMetadataResponseTopic()
				rt.Topic, rt.TopicID, rt.ErrorCode = topic.Topic, topic.TopicID, kerr.LeaderNotAvailable.Code
				resp.Topics = append(resp.Topics, rt)
			}
			return broker.Action{Answer: resp}
		})
		var err error
		if commit {
			_, err = tx.Commit(ctx)
		} else {
			err = tx.Abort(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Land(until(ctx, t, &f.fired)); !errors.Is(err, sharetxn.ErrNotLanded) {
			t.Fatalf("while metadata has no partitions: %v, %d answers", err, f.fired.Load())
		}
		w.SetIntercept(nil)
		w.repaired(ctx, t, p, lost, commit)
	})
}

// What the coordinator answers in a repair, and what becomes of that.
func TestAnswersInARepair(t *testing.T) {
	for _, c := range []struct {
		name  string
		lost  int64 // markers; the second repair of a commit has an InitProducerId
		key   int16
		act   func(broker.Request) broker.Action
		class sharetxn.Class
		is    error
	}{
		{"the coordinator denies the end", 1, keyEndTxn, func(r broker.Request) broker.Action {
			return broker.Action{Answer: endAnswer(r, kerr.InvalidTxnState.Code)}
		}, sharetxn.ClassFatal, sharetxn.ErrFenced},
		{"another producer id", 2, keyInit, func(r broker.Request) broker.Action {
			resp := r.Message().ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ProducerID, resp.ProducerEpoch = 4711, 0
			return broker.Action{Instead: resp}
		}, sharetxn.ClassFatal, sharetxn.ErrNotLanded},
		{"partitions are left out", 1, keyAdd, func(r broker.Request) broker.Action {
			return broker.Action{Answer: r.Message().ResponseKind()}
		}, sharetxn.ClassNone, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			w := start(t, setup{})
			p := w.manual(t, "tx")
			if err := p.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			lost := w.loseMarkers("tx", c.lost)
			var added, hit atomic.Int64
			w.SetIntercept(func(r broker.Request) broker.Action {
				if r.Key == keyAdd {
					added.Add(1)
				}
				if r.Key == c.key && added.Load() > 0 && hit.Add(1) == 1 {
					return c.act(r)
				}
				return broker.Action{}
			})
			write(ctx, t, p, nil, "first", true)
			err := p.Land(ctx)
			if sharetxn.ClassOf(err) != c.class || c.is != nil && !errors.Is(err, c.is) || hit.Load() == 0 || lost.Load() != c.lost {
				t.Fatalf("%v, after %d answers and %d lost markers", err, hit.Load(), lost.Load())
			}
			if _, err := p.Begin(ctx); (err != nil) != (c.class == sharetxn.ClassFatal) || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("Begin: %v", err)
			}
		})
	}
}

// A marker that is only late is waited for, and not written again.
func TestLateMarkerIsNotRepaired(t *testing.T) {
	bothEnds(t, "late", func(t *testing.T, commit bool) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{})
		p := w.manual(t, "tx")
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		w.TreatMarkers(func(m txn.Marker) txn.Treatment { return txn.Treatment{Wait: release} })
		// kgo, which asks after us until the coordinator has completed, is told an error: it follows no more.
		var ends atomic.Int64
		w.SetIntercept(func(r broker.Request) broker.Action {
			if r.Key == keyEndTxn && ends.Add(1) == 2 {
				return broker.Action{Answer: endAnswer(r, kerr.InvalidTxnState.Code)}
			}
			return broker.Action{}
		})
		write(ctx, t, p, nil, "first", commit)
		testkit.Eventually(ctx, t, "the landing asks the coordinator again", func() bool { return ends.Load() > 3 })
		close(release)
		if err := p.Land(ctx); err != nil {
			t.Fatal(err)
		}
		if got := w.Traffic(keyAdd).Requests; got != 0 {
			t.Errorf("%d AddPartitionsToTxn", got)
		}
		write(ctx, t, p, nil, "last", true)
		want := []string{"last0", "last1"}
		if commit {
			want = append(want, "first0", "first1")
		}
		same(t, "visible", w.visible(ctx, t, "out"), want...)
	})
}

// Where a record was written that nobody confirmed, an end is looked for, too.
func TestUnconfirmedPlacesLand(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx", CloseTimeout(unresolved))
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	f := w.inject(keyProduce, 1, always(broker.Action{LoseAnswer: true}))
	next := &fault{key: keyProduce, node: -1, act: always(broker.Action{LoseRequest: true})}
	next.times.Store(1 << 30)
	w.SetIntercept(func(r broker.Request) broker.Action {
		if f.fired.Load() == 0 {
			return f.intercept(r)
		}
		return next.intercept(r)
	})
	lost := w.loseMarkers("tx", 1)
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("first")}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(ctx, t, "the record is written and sent again", func() bool { return next.fired.Load() > 0 })
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	w.SetIntercept(nil)
	w.repaired(ctx, t, p, lost, false)
}

// A transaction that only acknowledges waits for the one before, too: its end moves
// the epoch.
func TestStagingWaitsForTheMarkers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.manual(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	bs := gather(ctx, t, c, 3)
	for _, b := range bs {
		b.AcceptRest()
	}
	lost := w.loseMarkers("tx", 1)
	f := w.inject(keyDescribe, 1<<30, always(broker.Action{LoseRequest: true}))
	write(ctx, t, p, nil, "first", true)
	stages := w.stages()
	tx, err := p.Begin(ctx, join(bs))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := tx.Commit(until(ctx, t, &f.fired)); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrNotLanded) || w.stages() != stages {
		t.Fatalf("%v, %v, %d staging requests", out, err, w.stages()-stages)
	}
	w.SetIntercept(nil)
	for _, b := range bs {
		b.AcceptRest()
	}
	if tx, err = p.Begin(ctx, join(bs)); err != nil {
		t.Fatal(err)
	}
	if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	w.waitDone(ctx, t, "g", 3)
	w.repaired(ctx, t, p, lost, true)
}

// Nor is InitProducerId sent before: it would fence the repair. Here the epoch to go
// on with is not known, since the answer that proves the commit has none.
func TestInitWaitsForTheMarkers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx")
	tx := flushed(ctx, t, p, nil, "first")
	lost := w.loseMarkers("tx", 1)
	var ends, asked atomic.Int64
	w.SetIntercept(func(r broker.Request) broker.Action {
		switch {
		case r.Key == keyEndTxn && ends.Add(1) == 1:
			return broker.Action{Instead: endAnswer(r, 0)}
		case r.Key == keyDescribe:
			asked.Add(1)
			return broker.Action{LoseRequest: true}
		}
		return broker.Action{}
	})
	if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
		t.Fatalf("%v, %v", out, err)
	}
	inits := w.Traffic(keyInit).Requests
	if _, err := p.Begin(until(ctx, t, &asked)); !errors.Is(err, sharetxn.ErrNotLanded) || w.Traffic(keyInit).Requests != inits {
		t.Fatalf("Begin: %v, %d InitProducerId", err, w.Traffic(keyInit).Requests-inits)
	}
	w.SetIntercept(nil)
	w.repaired(ctx, t, p, lost, true)
}

// Where one of several ids has not landed for long, none begins anything: its turn
// would come.
func TestTroubleOfAnotherID(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx", AlternateIDs(2), ResolveTimeout(unresolved))
	w.retrying(ctx, t, p)
	lost := w.loseMarkers("tx", 1)
	f := w.inject(keyAdd, 1<<30, always(broker.Action{LoseRequest: true}))
	write(ctx, t, p, nil, "first", true)
	testkit.Eventually(ctx, t, "the repair is under way", func() bool { return f.fired.Load() > 0 })
	_, err := p.Begin(ctx)
	wantNotLanded(t, "Begin, at the other id's turn", err)
	w.SetIntercept(nil)
	if err := p.Land(ctx); err != nil || lost.Load() != 1 {
		t.Fatalf("%v, %d lost", err, lost.Load())
	}
	write(ctx, t, p, nil, "second", true)
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "second0", "second1")
}
