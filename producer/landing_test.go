package producer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
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

const (
	keyAdd      = 24
	keyDescribe = 61
)

// loseMarkers loses the next n markers of an id for partition 0 of "out".
func (w *world) loseMarkers(id string, n int64) (lost *atomic.Int64) {
	lost = &atomic.Int64{}
	var left atomic.Int64
	left.Store(n)
	w.TreatMarkers(func(m txn.Marker) txn.Treatment {
		if m.TransactionalID != id || m.Share || m.Partition != (txn.Partition{Topic: "out", Partition: 0}) || left.Add(-1) < 0 {
			return txn.Treatment{}
		}
		lost.Add(1)
		return txn.Treatment{Lose: true}
	})
	return lost
}

// manual is a producer whose records name their partition.
func (w *world) manual(t testing.TB, id string, opts ...Opt) *Producer {
	t.Helper()
	return w.producer(t, id, append(opts, KafkaOptions(kgo.RecordPartitioner(kgo.ManualPartitioner())))...)
}

// writing begins a transaction and writes a record to each of the partitions 0 and 1
// of "out".
func writing(ctx context.Context, t testing.TB, p *Producer, in Acknowledgements, value string) *Txn {
	t.Helper()
	tx, err := p.Begin(ctx, in)
	if err != nil {
		t.Fatalf("%s: Begin: %v", value, err)
	}
	for i := range int32(2) {
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Partition: i, Value: fmt.Append(nil, value, i)}); err != nil {
			t.Fatalf("%s: Produce: %v", value, err)
		}
	}
	return tx
}

// flushed is writing, until brokers have it all.
func flushed(ctx context.Context, t testing.TB, p *Producer, in Acknowledgements, value string) *Txn {
	t.Helper()
	tx := writing(ctx, t, p, in, value)
	if err := tx.lane.out.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	return tx
}

// write is writing, and ends the transaction.
func write(ctx context.Context, t testing.TB, p *Producer, in Acknowledgements, value string, commit bool) {
	t.Helper()
	tx := writing(ctx, t, p, in, value)
	if !commit {
		if err := tx.lane.out.Flush(ctx); err != nil { // so that there is something to end
			t.Fatal(err)
		}
		if err := tx.Abort(ctx); err != nil {
			t.Fatalf("%s: Abort: %v", value, err)
		}
		return
	}
	if out, err := tx.Commit(ctx); out != sharetxn.Committed || err != nil {
		t.Fatalf("%s: %v, %v", value, out, err)
	}
}

// However often a marker is lost it is written again, before anything else of the
// id: no later abort hides what was committed, and no later commit shows what was
// aborted.
func TestLostMarkersAreWrittenAgain(t *testing.T) {
	for _, commit := range []bool{true, false} {
		for _, times := range []int64{1, 2, 3} {
			for _, ids := range []int{1, 3} {
				t.Run(fmt.Sprintf("commit %v, lost %d times, %d ids", commit, times, ids), func(t *testing.T) {
					ctx := testkit.Deadline(t, 60*time.Second)
					w := start(t, setup{})
					p := w.manual(t, "tx", AlternateIDs(ids))
					lost := w.loseMarkers("tx", times)
					var inits atomic.Int64 // of repairs
					w.SetIntercept(func(r broker.Request) broker.Action {
						if r.Key == keyInit && lost.Load() > 0 {
							inits.Add(1)
						}
						return broker.Action{}
					})
					write(ctx, t, p, nil, "first", commit)
					if err := p.Land(ctx); err != nil {
						t.Fatal(err)
					}
					// The first epoch fits a commit, and those after a repair need one between.
					between := times
					if commit {
						between--
					}
					if inits.Load() != between {
						t.Errorf("%d InitProducerId, want %d", inits.Load(), between)
					}
					if lost.Load() != times || w.Traffic(keyAdd).Requests != int(times) {
						t.Fatalf("%d markers were lost, %d AddPartitionsToTxn", lost.Load(), w.Traffic(keyAdd).Requests)
					}
					for range ids { // the id's turn comes again
						write(ctx, t, p, nil, "next", !commit)
						write(ctx, t, p, nil, "last", true)
					}
					var want []string
					for i := range 2 {
						if commit {
							want = append(want, fmt.Sprint("first", i))
						}
						for range ids {
							if !commit {
								want = append(want, fmt.Sprint("next", i))
							}
							want = append(want, fmt.Sprint("last", i))
						}
					}
					same(t, "visible", w.visible(ctx, t, "out"), want...)
				})
			}
		}
	}
}

// Nothing is acknowledged while the commit could still be undone, though it is
// reported; the records are, once it cannot.
func TestAckAfterCommitWaitsForTheMarkers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{edit: stock})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.manual(t, "tx", AckAfterCommit())
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	lost := w.loseMarkers("tx", 1)
	release := make(chan struct{})
	held := make(chan struct{})
	f := w.inject(keyAdd, 1, always(broker.Action{Before: func() { close(held) }, Wait: release}))
	bs := gather(ctx, t, c, 3)
	for _, b := range bs {
		b.AcceptRest()
	}
	write(ctx, t, p, join(bs), "kept", true)
	<-held
	f.mustHaveFired(t, 1)
	if lost.Load() != 1 {
		t.Fatalf("%d markers were lost", lost.Load())
	}
	if done, available, acquired, _ := w.totals("g"); done+available != 0 || acquired != 3 {
		t.Fatalf("before the repair %d are done, %d available, %d acquired", done, available, acquired)
	}
	impatient, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := p.Land(impatient); !errors.Is(err, sharetxn.ErrNotLanded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
		t.Errorf("Land: %v", err)
	}
	// A neighbour, with another id, writes to the same partition and is not held up.
	n := w.manual(t, "neighbour", AckAfterCommit())
	write(ctx, t, n, nil, "beside", true)
	if err := n.Land(ctx); err != nil {
		t.Fatal(err)
	}
	close(release)
	w.waitDone(ctx, t, "g", 3)
	write(ctx, t, p, nil, "gone", false)
	write(ctx, t, p, nil, "last", true)
	same(t, "visible", w.visible(ctx, t, "out"), "kept0", "kept1", "beside0", "beside1", "last0", "last1")
}

// While a lost marker cannot be written again nothing begins, nothing is
// acknowledged, Close is bounded, and each says where it hangs: also where the
// coordinator asks for patience without an end.
func TestNotLanded(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.UnknownTopicOrPartition, kerr.ConcurrentTransactions, kerr.CoordinatorLoadInProgress} {
		t.Run(code.Message, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			w := start(t, setup{edit: stock})
			w.feed(ctx, t, 3)
			c, p := w.consumer(t, "g"), w.manual(t, "tx", AckAfterCommit(), ResolveTimeout(unresolved), CloseTimeout(unresolved))
			w.retrying(ctx, t, p)
			lost := w.loseMarkers("tx", 1)
			f := w.inject(keyAdd, 1<<30, func(r broker.Request) broker.Action {
				resp := r.Message().ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
				resp.Topics = []kmsg.AddPartitionsToTxnResponseTopic{{Topic: "out", Partitions: []kmsg.AddPartitionsToTxnResponseTopicPartition{{ErrorCode: code.Code}}}}
				return broker.Action{Answer: resp}
			})
			bs := gather(ctx, t, c, 3)
			for _, b := range bs {
				b.AcceptRest()
			}
			write(ctx, t, p, join(bs), "kept", true)
			testkit.Eventually(ctx, t, "the repair was refused", func() bool { return f.fired.Load() > 1 })
			_, err := p.Begin(ctx)
			wantNotLanded(t, "Begin", err)
			wantNotLanded(t, "InitTransactions", p.InitTransactions(ctx))
			wantNotLanded(t, "Close", p.Close())
			if done, available, acquired, _ := w.totals("g"); lost.Load() != 1 || done+available != 0 || acquired != 3 {
				t.Fatalf("%d lost; %d are done, %d available, %d acquired", lost.Load(), done, available, acquired)
			}
		})
	}
}

func wantNotLanded(t *testing.T, what string, err error) {
	t.Helper()
	e, ok := errors.AsType[*sharetxn.Error](err)
	if !ok || !errors.Is(err, sharetxn.ErrNotLanded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || e.Topic != "out" || e.Partition != 0 {
		t.Errorf("%s: %v", what, err)
	}
}

// retrying initialises in spite of a short ResolveTimeout.
func (w *world) retrying(ctx context.Context, t *testing.T, p *Producer) {
	t.Helper()
	testkit.Eventually(ctx, t, "initialised", func() bool { return p.InitTransactions(ctx) == nil })
}

// Where a leader does not say whether the end has come, the next transaction of the
// id waits, and goes on when it does.
func TestLeaderDoesNotSay(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	f := w.inject(keyDescribe, 1<<30, always(broker.Action{LoseRequest: true}))
	write(ctx, t, p, nil, "first", true)
	if out, err := w.one(until(ctx, t, &f.fired), p, nil, "refused"); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrNotLanded) {
		t.Fatalf("%v, %v, after %d lost requests", out, err, f.fired.Load())
	}
	w.SetIntercept(nil)
	if out, err := w.one(ctx, p, nil, "second"); out != sharetxn.Committed {
		t.Fatalf("%v, %v", out, err)
	}
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "second")
}

// Without the right to read a topic nothing can be seen there: it is said once,
// and all goes on.
func TestNoRightToSee(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{edit: stock})
	var log lockedBuffer
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.Seeds()...), kgo.DisableClientMetrics()), sharetxn.Logger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	w.cl = cl
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.manual(t, "tx", AckAfterCommit())
	f := w.inject(keyDescribe, 1<<30, func(r broker.Request) broker.Action {
		req := r.Message().(*kmsg.DescribeProducersRequest)
		resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
		for _, topic := range req.Topics {
			rt := kmsg.DescribeProducersResponseTopic{Topic: topic.Topic}
			for _, n := range topic.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.DescribeProducersResponseTopicPartition{Partition: n, ErrorCode: kerr.TopicAuthorizationFailed.Code})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return broker.Action{Answer: resp}
	})
	bs := gather(ctx, t, c, 3)
	for _, b := range bs {
		b.AcceptRest()
	}
	write(ctx, t, p, join(bs), "first", true)
	w.waitDone(ctx, t, "g", 3)
	write(ctx, t, p, nil, "second", true)
	if err := p.Land(ctx); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "allow READ on the topic"); n != 1 || f.fired.Load() < 2 {
		t.Errorf("said %d times after %d refusals:\n%s", n, f.fired.Load(), log.String())
	}
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "second0", "second1")
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Whoever takes the id before the repair ends this producer: nothing of its
// transaction is acknowledged, since nobody knows what becomes of it.
func TestFencedBeforeTheRepair(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{edit: stock})
	w.feed(ctx, t, 3)
	c, p := w.consumer(t, "g"), w.manual(t, "tx", AckAfterCommit())
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	lost := w.loseMarkers("tx", 1)
	held, release := make(chan struct{}), make(chan struct{})
	w.inject(keyAdd, 1, always(broker.Action{Before: func() { close(held) }, Wait: release}))
	bs := gather(ctx, t, c, 3)
	for _, b := range bs {
		b.AcceptRest()
	}
	write(ctx, t, p, join(bs), "first", true)
	<-held
	other := w.producer(t, "tx", AckAfterCommit())
	if err := other.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	close(release)
	if err := p.Land(ctx); !errors.Is(err, sharetxn.ErrFenced) || !sharetxn.IsFatal(err) {
		t.Errorf("Land: %v", err)
	}
	if _, err := p.Begin(ctx); !errors.Is(err, sharetxn.ErrFenced) {
		t.Errorf("Begin: %v", err)
	}
	if done, available, acquired, _ := w.totals("g"); lost.Load() != 1 || done+available != 0 || acquired != 3 {
		t.Errorf("%d lost; %d are done, %d available, %d acquired", lost.Load(), done, available, acquired)
	}
	write(ctx, t, w.manual(t, "neighbour"), nil, "beside", true)
}

// Answers that are lost on the way of a repair leave no doubt behind: it is done
// once, and the producer goes on at the right epoch.
func TestAnswersLostInARepair(t *testing.T) {
	for name, c := range map[string]struct {
		key  int16
		lose broker.Action
	}{
		"AddPartitionsToTxn's answer":  {keyAdd, broker.Action{LoseAnswer: true}},
		"AddPartitionsToTxn itself":    {keyAdd, broker.Action{LoseRequest: true}},
		"EndTxn's answer":              {keyEndTxn, broker.Action{LoseAnswer: true}},
		"EndTxn itself":                {keyEndTxn, broker.Action{LoseRequest: true}},
		"DescribeProducers":            {keyDescribe, broker.Action{LoseRequest: true}},
		"InitProducerId's answer":      {keyInit, broker.Action{LoseAnswer: true}},
		"InitProducerId itself":        {keyInit, broker.Action{LoseRequest: true}},
		"DescribeProducers, cut after": {keyDescribe, broker.Action{Disconnect: true}},
	} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commit %v", name, commit), func(t *testing.T) {
				ctx := testkit.Deadline(t, 60*time.Second)
				w := start(t, setup{})
				p := w.manual(t, "tx")
				if err := p.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				lost := w.loseMarkers("tx", 2) // the second repair has an InitProducerId, of a commit
				var added, hit atomic.Int64
				w.SetIntercept(func(r broker.Request) broker.Action {
					if r.Key == keyAdd {
						added.Add(1)
					}
					begun := added.Load() > 0 || c.key == keyInit || c.key == keyDescribe
					if r.Key == c.key && begun && hit.Add(1) == 1 {
						return c.lose
					}
					return broker.Action{}
				})
				write(ctx, t, p, nil, "first", commit)
				if err := p.Land(ctx); err != nil {
					t.Fatal(err)
				}
				if lost.Load() != 2 || hit.Load() == 0 {
					t.Fatalf("%d markers lost, %d requests met", lost.Load(), hit.Load())
				}
				w.SetIntercept(nil)
				write(ctx, t, p, nil, "next", !commit)
				write(ctx, t, p, nil, "last", true)
				want := []string{"last0", "last1"}
				if commit {
					want = append(want, "first0", "first1")
				} else {
					want = append(want, "next0", "next1")
				}
				same(t, "visible", w.visible(ctx, t, "out"), want...)
			})
		}
	}
}

// Where nothing is lost it costs one request to each leader, and what is known of
// leaders is kept. Ids in turn do not wait for each other's.
func TestLandingCosts(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx")
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	write(ctx, t, p, nil, "0", true)
	if err := p.Land(ctx); err != nil {
		t.Fatal(err)
	}
	leaders := map[int32]bool{w.Leader("out", 0): true, w.Leader("out", 1): true}
	before := w.Traffic(keyDescribe).Requests
	const n = 20
	for i := range n {
		write(ctx, t, p, nil, fmt.Sprint(i, "-"), i%4 != 0)
	}
	if err := p.Land(ctx); err != nil {
		t.Fatal(err)
	}
	if got, want := w.Traffic(keyDescribe).Requests-before, n*len(leaders); got != want {
		t.Errorf("%d DescribeProducers for %d transactions on %d leaders", got, n, len(leaders))
	}
	if got := w.Traffic(keyAdd).Requests; got != 0 {
		t.Errorf("%d AddPartitionsToTxn", got)
	}
}

func TestAlternateIDsDoNotWaitForEachOther(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx", AlternateIDs(2))
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	f := w.inject(keyDescribe, int64(len(map[int32]bool{w.Leader("out", 0): true, w.Leader("out", 1): true})), always(broker.Action{Wait: release}))
	write(ctx, t, p, nil, "first", true)
	write(ctx, t, p, nil, "second", true) // of the other id
	if err := p.lanes[1].m.Land(ctx); err != nil {
		t.Fatal(err)
	}
	if f.fired.Load() == 0 {
		t.Fatal("nothing was held")
	}
	close(release)
	write(ctx, t, p, nil, "third", true)
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "second0", "second1", "third0", "third1")
}

// A repair whose markers are written and whose answer is lost is asked after: only
// its answer says at which epoch the producer goes on.
func TestRepairsAnswerLost(t *testing.T) {
	bothEnds(t, "lost", func(t *testing.T, commit bool) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{})
		p := w.manual(t, "tx")
		lost := w.loseMarkers("tx", 1)
		var added, hit atomic.Int64
		w.SetIntercept(func(r broker.Request) broker.Action {
			switch {
			case r.Key == keyAdd:
				added.Add(1)
			case r.Key == keyEndTxn && added.Load() > 0 && hit.Add(1) == 1:
				return broker.Action{LoseAnswer: true}
			}
			return broker.Action{}
		})
		write(ctx, t, p, nil, "first", commit)
		if err := p.Land(ctx); err != nil || hit.Load() < 2 {
			t.Fatalf("%v, %d EndTxn of the repair", err, hit.Load())
		}
		w.repaired(ctx, t, p, lost, commit)
	})
}

// Land is for the ends of all ids.
func TestLandWaitsForAllIDs(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	p := w.manual(t, "tx", AlternateIDs(2))
	write(ctx, t, p, nil, "first", true)
	lost := w.loseMarkers("tx-alt1", 1)
	f := w.inject(keyAdd, 1<<30, always(broker.Action{LoseRequest: true}))
	write(ctx, t, p, nil, "second", true)
	testkit.Eventually(ctx, t, "the repair is under way", func() bool { return f.fired.Load() > 0 })
	if err := p.Land(until(ctx, t, &f.fired)); !errors.Is(err, sharetxn.ErrNotLanded) || lost.Load() != 1 {
		t.Fatalf("%v, %d lost", err, lost.Load())
	}
	w.SetIntercept(nil)
	if err := p.Land(ctx); err != nil {
		t.Fatal(err)
	}
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "second0", "second1")
}
