package txn

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// world is a Backend that writes down what it is told, and its Coordinator c.
type world struct {
	t   *testing.T
	c   *Coordinator
	mu  sync.Mutex
	die context.CancelFunc
	ids int64
	log []string

	events []Event                     // observed, under the coordinator's lock
	staged []Partition                 // with staged records
	cut    map[Partition]chan struct{} // out of reach
}

func newWorld(t *testing.T) *world {
	ctx, cancel := context.WithCancel(context.Background())
	w := &world{t: t, ids: 100}
	w.c = New(Config{Backend: w, StateTopic: "state", Logger: slog.New(slog.DiscardHandler), Die: ctx,
		Observe: func(e Event) { w.events = append(w.events, e) }})
	w.die = cancel
	t.Cleanup(func() { cancel(); w.c.Close() })
	return w
}

func (w *world) note(format string, a ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf(format, a...))
}

// told gives and forgets what the backend was told.
func (w *world) told() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	w.log = nil
	return log
}

func (w *world) NewProducerID(context.Context, string) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ids++
	return w.ids, nil
}

func (w *world) WriteMarker(_ context.Context, p Partition, id int64, epoch int16, commit bool) error {
	w.note("marker %s-%d %d@%d %v", p.Topic, p.Partition, id, epoch, commit)
	return nil
}

func (w *world) LostMarker(p Partition, of Key) {
	w.note("lost %s-%d %d@%d", p.Topic, p.Partition, of.ProducerID, of.ProducerEpoch)
}

func (w *world) StageOffsets(_ context.Context, _ int32, k Key, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error) {
	w.note("offsets of %s staged by %d@%d", req.Group, k.ProducerID, k.ProducerEpoch)
	return req.ResponseKind().(*kmsg.TxnOffsetCommitResponse), nil
}

func (w *world) EndOffsets(_ context.Context, k Key, commit bool) error {
	w.note("offsets of %d@%d %v", k.ProducerID, k.ProducerEpoch, commit)
	return nil
}

func (w *world) ShareOutcome(id int64, markerEpoch int16, commit bool) {
	w.note("share %d@%d %v", id, markerEpoch, commit)
}

func (w *world) Staged(id int64, markerEpoch int16) []Partition { return w.staged }

func (w *world) Resolve(p Partition, id int64, markerEpoch int16, commit bool) {
	w.note("share of %s-%d %d@%d %v", p.Topic, p.Partition, id, markerEpoch, commit)
}

func (w *world) Cut(_ string, p Partition) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ch, ok := w.cut[p]; ok {
		return ch
	}
	return nil
}

// part puts partitions out of the coordinator's reach; heal brings them back.
func (w *world) part(ps ...Partition) (heal func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := make(chan struct{})
	w.cut = make(map[Partition]chan struct{})
	for _, p := range ps {
		w.cut[p] = changed
	}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.cut = nil
		close(changed)
	}
}

// elsewhere is a transactional id and a group that node 0 does not coordinate.
const elsewhere = "elsewhere"

func (w *world) Coordinator(name string) int32 {
	if name == elsewhere {
		return 1
	}
	return 0
}

// gone is a topic that does not exist.
const gone = "gone"

func (w *world) Durable() error { return nil }

func (w *world) Exists(p Partition) bool { return p.Topic != gone }

func (w *world) init(ctx context.Context, name string, id int64, epoch int16, timeout time.Duration) Key {
	w.t.Helper()
	k, code := w.tryInit(ctx, name, id, epoch, timeout)
	if code != codeNone {
		w.t.Fatalf("InitProducerId of %s: code %d", name, code)
	}
	return k
}

func (w *world) tryInit(ctx context.Context, name string, id int64, epoch int16, timeout time.Duration) (Key, int16) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = &name, id, epoch
	req.TransactionTimeoutMillis = int32(timeout.Milliseconds())
	resp := w.c.InitProducerID(ctx, 0, req)
	return Key{resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
}

func (w *world) end(ctx context.Context, k Key, commit bool) (Key, int16) {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 5, "x", k.ProducerID, k.ProducerEpoch, commit
	resp := w.c.EndTxn(ctx, 0, req)
	return Key{resp.ProducerID, resp.ProducerEpoch}, resp.ErrorCode
}

func (w *world) produce(ctx context.Context, k Key) int16 {
	done, code := w.c.Produce(ctx, "x", k.ProducerID, k.ProducerEpoch, []Partition{{"out", 2}})
	if (done != nil) != (code == codeNone) {
		w.t.Fatalf("code %d, but done is nil: %v", code, done == nil)
	}
	if done != nil {
		done()
	}
	return code
}

func (w *world) want(code, want int16, what string) {
	w.t.Helper()
	if code != want {
		w.t.Fatalf("%s: code %d, want %d", what, code, want)
	}
}

func (w *world) wantTold(want ...string) {
	w.t.Helper()
	if got := w.told(); !slices.Equal(got, want) {
		w.t.Fatalf("the backend was told\n%q, want\n%q", got, want)
	}
}

// virtual runs a test with virtual time and a deadline of its own outside.
func virtual(t *testing.T, fn func(ctx context.Context, w *world)) {
	t.Helper()
	testkit.Deadline(t, 20*time.Second)
	synctest.Test(t, func(t *testing.T) { fn(t.Context(), newWorld(t)) })
}

const minute = time.Minute

// A commit tells the logs, the groups and the share engine, in this order, at
// the next epoch, and all of it before it is answered.
func TestCommitOrder(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		w.want(w.produce(ctx, k), codeNone, "produce")
		w.want(w.c.AddShareState(ctx, "x", k.ProducerID, k.ProducerEpoch, []int32{3}), codeNone, "staging")
		oc := kmsg.NewPtrTxnOffsetCommitRequest()
		oc.TransactionalID, oc.Group, oc.ProducerID, oc.ProducerEpoch = "x", "g", k.ProducerID, k.ProducerEpoch
		if _, err := w.c.TxnOffsetCommit(ctx, 0, oc); err != nil {
			t.Fatal(err)
		}
		w.wantTold("offsets of g staged by 101@0")
		next, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		if next != (Key{101, 1}) {
			t.Fatalf("next %v", next)
		}
		w.wantTold("marker out-2 101@1 true", "offsets of 101@0 true", "share 101@1 true")
		// The same again changes nothing and says the same.
		if again, code := w.end(ctx, k, true); again != next || code != codeNone {
			t.Fatalf("repeated: %v, code %d", again, code)
		}
		w.wantTold()
		// The next transaction has nothing of the old one.
		w.want(w.c.AddShareState(ctx, "x", next.ProducerID, next.ProducerEpoch, []int32{3}), codeNone, "staging")
		_, code = w.end(ctx, next, false)
		w.want(code, codeNone, "abort")
		w.wantTold("share 101@2 false")
	})
}

// While markers are held the decision is visible, everything about it is asked
// to come again, and EndTxn was answered at once.
func TestHeldMarkers(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		release := make(chan struct{})
		w.c.TreatMarkers(func(Marker) Treatment { return Treatment{Wait: release} })
		k := w.init(ctx, "x", -1, -1, minute)
		w.want(w.produce(ctx, k), codeNone, "produce")
		next, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		v := w.c.Transactions()[0]
		if v.Status != PrepareCommit || len(v.Partitions) != 1 || v.Writer != k {
			t.Fatalf("transaction %+v", v)
		}
		w.wantTold()
		_, code = w.end(ctx, k, true)
		w.want(code, codeConcurrentTransactions, "commit again")
		began := time.Now()
		w.want(w.produce(ctx, next), codeConcurrentTransactions, "next produce")
		if d := time.Since(began); d != addWait {
			t.Fatalf("the produce waited %v", d)
		}
		w.want(w.c.AddShareState(ctx, "x", next.ProducerID, next.ProducerEpoch, []int32{0}), codeConcurrentTransactions, "next staging")
		_, code = w.tryInit(ctx, "x", -1, -1, minute)
		w.want(code, codeConcurrentTransactions, "init")
		// A produce that waits is let in as soon as the markers are there.
		got := make(chan int16)
		go func() { got <- w.produce(ctx, next) }()
		synctest.Wait()
		close(release)
		w.want(<-got, codeNone, "produce that waited")
		w.wantTold("marker out-2 101@1 true", "share 101@1 true")
		_, code = w.end(ctx, k, true)
		w.want(code, codeProducerFenced, "retry while the next transaction is open")
	})
}

// A timeout aborts one epoch up; the producer finds out and goes on.
func TestTimeout(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, 10*time.Second)
		w.want(w.produce(ctx, k), codeNone, "produce")
		time.Sleep(10*time.Second - 1)
		w.want(w.produce(ctx, k), codeNone, "produce just in time")
		w.wantTold()
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w.wantTold("marker out-2 101@1 false", "share 101@1 false")
		w.want(w.produce(ctx, k), codeInvalidProducerEpoch, "late produce")
		w.want(w.c.AddShareState(ctx, "x", k.ProducerID, k.ProducerEpoch, []int32{0}), codeProducerFenced, "late staging")
		_, code := w.end(ctx, k, true)
		w.want(code, codeInvalidTxnState, "late commit")
		next, code := w.end(ctx, k, false)
		w.want(code, codeNone, "late abort")
		w.want(w.produce(ctx, next), codeNone, "next produce")
		// A timer of an ended transaction does nothing to the next one.
		next, code = w.end(ctx, next, true)
		w.want(code, codeNone, "commit")
		time.Sleep(5 * time.Second)
		w.want(w.produce(ctx, next), codeNone, "third")
		w.told()
		time.Sleep(9 * time.Second)
		synctest.Wait()
		w.wantTold()
	})
}

// A produce on its way to the log gets there before the markers.
func TestMarkersComeAfterProduces(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		written, code := w.c.Produce(ctx, "x", k.ProducerID, k.ProducerEpoch, []Partition{{"out", 2}})
		w.want(code, codeNone, "produce")
		time.Sleep(minute) // the timeout
		synctest.Wait()
		if s := w.c.Transactions()[0].Status; s != PrepareAbort {
			t.Fatalf("the transaction is %v", s)
		}
		w.wantTold()
		written()
		synctest.Wait()
		w.wantTold("marker out-2 101@1 false", "share 101@1 false")
	})
}

// InitProducerId aborts what is open, and the old producer is out for good.
func TestFencing(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		old := w.init(ctx, "x", -1, -1, minute)
		w.want(w.produce(ctx, old), codeNone, "produce")
		_, code := w.tryInit(ctx, "x", -1, -1, minute)
		w.want(code, codeConcurrentTransactions, "init while ongoing")
		synctest.Wait()
		w.wantTold("marker out-2 101@1 false", "share 101@1 false")
		k := w.init(ctx, "x", -1, -1, minute)
		if k != (Key{101, 2}) {
			t.Fatalf("new producer %v", k)
		}
		for _, commit := range []bool{true, false} {
			_, code := w.end(ctx, old, commit)
			w.want(code, codeProducerFenced, fmt.Sprintf("zombie's end, commit %v", commit))
		}
		w.want(w.produce(ctx, old), codeInvalidProducerEpoch, "zombie's produce")
		_, code = w.tryInit(ctx, "x", old.ProducerID, old.ProducerEpoch, minute)
		w.want(code, codeProducerFenced, "zombie's init")
		w.wantTold()
		w.want(w.produce(ctx, k), codeNone, "the new producer's produce")
	})
}

// A lost answer to InitProducerId is given again only to whom it was for.
func TestInitRepeats(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		n := w.init(ctx, "x", k.ProducerID, k.ProducerEpoch, minute)
		if again := w.init(ctx, "x", k.ProducerID, k.ProducerEpoch, minute); again != n || n == k {
			t.Fatalf("first %v, then %v, again %v", k, n, again)
		}
		m := w.init(ctx, "x", -1, -1, minute)
		_, code := w.tryInit(ctx, "x", n.ProducerID, n.ProducerEpoch, minute)
		w.want(code, codeProducerFenced, "claim of whom another replaced")
		w.want(w.produce(ctx, m), codeNone, "produce")
	})
}

// lastKey makes the id's producer reach the last epoch.
func (w *world) lastKey(ctx context.Context) Key {
	w.init(ctx, "x", -1, -1, minute)
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	t := w.c.txns["x"]
	t.epoch = lastEpoch
	return Key{t.id, lastEpoch}
}

// The last epoch ends with a new producer id, whoever ends the transaction.
func TestLastEpoch(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.lastKey(ctx)
		w.want(w.produce(ctx, k), codeNone, "produce")
		next, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		if next != (Key{102, 0}) {
			t.Fatalf("next %v", next)
		}
		w.wantTold("marker out-2 101@32767 true", "share 101@32767 true")
		if again, code := w.end(ctx, k, true); again != next || code != codeNone {
			t.Fatalf("repeated: %v, code %d", again, code)
		}
		w.want(w.produce(ctx, next), codeNone, "next produce")
	})
	virtual(t, func(ctx context.Context, w *world) {
		k := w.lastKey(ctx)
		w.want(w.produce(ctx, k), codeNone, "produce")
		time.Sleep(minute) // the timeout
		synctest.Wait()
		w.wantTold("marker out-2 101@32767 false", "share 101@32767 false")
		_, code := w.end(ctx, k, true)
		w.want(code, codeInvalidTxnState, "late commit")
		if next, code := w.end(ctx, k, false); next != (Key{102, 0}) || code != codeNone {
			t.Fatalf("late abort: %v, code %d", next, code)
		}
	})
	virtual(t, func(ctx context.Context, w *world) {
		w.lastKey(ctx)
		if k := w.init(ctx, "x", -1, -1, minute); k != (Key{102, 0}) {
			t.Fatalf("init at the last epoch: %v", k)
		}
	})
	virtual(t, func(ctx context.Context, w *world) {
		if next, code := w.end(ctx, w.lastKey(ctx), false); next != (Key{102, 0}) || code != codeNone {
			t.Fatalf("abort of nothing: %v, code %d", next, code)
		}
	})
}

// Bad requests are refused, each with Kafka's code, and change nothing.
func TestRefusals(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		for _, tc := range []struct {
			name    string
			id      int64
			epoch   int16
			timeout time.Duration
			code    int16
		}{
			{"", -1, -1, minute, codeInvalidRequest},
			{"x", 5, -1, minute, codeInvalidRequest},
			{"x", -1, 5, minute, codeInvalidRequest},
			{"x", -1, -1, 0, codeInvalidTransactionTimeout},
			{"x", -1, -1, -minute, codeInvalidTransactionTimeout},
			{"x", -1, -1, 15*minute + time.Millisecond, codeInvalidTransactionTimeout},
			{elsewhere, -1, -1, minute, codeNotCoordinator},
		} {
			if _, code := w.tryInit(ctx, tc.name, tc.id, tc.epoch, tc.timeout); code != tc.code {
				t.Errorf("init %q %d@%d %v: code %d, want %d", tc.name, tc.id, tc.epoch, tc.timeout, code, tc.code)
			}
		}
		_, code := w.end(ctx, Key{101, 0}, true)
		w.want(code, codeInvalidProducerIDMapping, "end of an unknown id")
		w.want(w.produce(ctx, Key{101, 0}), codeInvalidProducerIDMapping, "produce of an unknown id")
		w.want(w.c.AddShareState(ctx, "x", 101, 0, []int32{0}), codeInvalidProducerIDMapping, "staging of an unknown id")
		if n := len(w.c.Transactions()); n != 0 {
			t.Fatalf("%d transactional ids exist", n)
		}
		w.init(ctx, "x", -1, -1, 15*minute)

		end := kmsg.NewPtrEndTxnRequest()
		end.TransactionalID = elsewhere
		w.want(w.c.EndTxn(ctx, 0, end).ErrorCode, codeNotCoordinator, "end elsewhere")
		add := kmsg.NewPtrAddPartitionsToTxnRequest()
		add.TransactionalID = elsewhere
		add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "out", Partitions: []int32{1}}}
		w.want(w.c.AddPartitionsToTxn(ctx, 0, add).Topics[0].Partitions[0].ErrorCode, codeNotCoordinator, "add elsewhere")
		addOffsets := kmsg.NewPtrAddOffsetsToTxnRequest()
		addOffsets.TransactionalID = elsewhere
		w.want(w.c.AddOffsetsToTxn(ctx, 0, addOffsets).ErrorCode, codeNotCoordinator, "add offsets elsewhere")
		oc := kmsg.NewPtrTxnOffsetCommitRequest()
		oc.TransactionalID, oc.Group = "x", elsewhere
		oc.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "in", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{}}}}
		resp, err := w.c.TxnOffsetCommit(ctx, 0, oc)
		if err != nil {
			t.Fatal(err)
		}
		w.want(resp.Topics[0].Partitions[0].ErrorCode, codeNotCoordinator, "offsets elsewhere")
		w.wantTold()
	})
}

// Older clients register partitions themselves.
func TestAddPartitionsToTxn(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		add := kmsg.NewPtrAddPartitionsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch = "x", k.ProducerID, k.ProducerEpoch
		add.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: "out", Partitions: []int32{1}}}
		w.want(w.c.AddPartitionsToTxn(ctx, 0, add).Topics[0].Partitions[0].ErrorCode, codeNone, "add")
		add.ProducerEpoch++
		w.want(w.c.AddPartitionsToTxn(ctx, 0, add).Topics[0].Partitions[0].ErrorCode, codeProducerFenced, "add at another epoch")
		add.Topics = append(add.Topics, kmsg.AddPartitionsToTxnRequestTopic{Topic: gone, Partitions: []int32{0}})
		half := w.c.AddPartitionsToTxn(ctx, 0, add)
		w.want(half.Topics[0].Partitions[0].ErrorCode, codeOperationNotAttempted, "add beside one that does not exist")
		w.want(half.Topics[1].Partitions[0].ErrorCode, codeUnknownTopicOrPartition, "add one that does not exist")
		d := kmsg.NewPtrDescribeTransactionsRequest()
		d.TransactionalIDs = []string{"x", "y", elsewhere}
		got := w.c.DescribeTransactions(0, d).TransactionStates
		if got[0].State != "Ongoing" || len(got[0].Topics) != 1 || got[0].ProducerID != k.ProducerID || got[0].StartTimestamp < 0 {
			t.Errorf("described %+v", got[0])
		}
		w.want(got[1].ErrorCode, codeTransactionalIDNotFound, "describe what does not exist")
		w.want(got[2].ErrorCode, codeNotCoordinator, "describe elsewhere")
		l := kmsg.NewPtrListTransactionsRequest()
		if n := len(w.c.ListTransactions(0, l).TransactionStates); n != 1 {
			t.Errorf("%d listed", n)
		}
		l.StateFilters = []string{"Empty", "Nonsense"}
		if got := w.c.ListTransactions(0, l); len(got.TransactionStates) != 0 || !slices.Equal(got.UnknownStateFilters, []string{"Nonsense"}) {
			t.Errorf("%d listed that are empty, unknown states %v", len(got.TransactionStates), got.UnknownStateFilters)
		}
		_, code := w.end(ctx, k, false)
		w.want(code, codeNone, "abort")
		if got := w.c.DescribeTransactions(0, d).TransactionStates[0]; got.State != "CompleteAbort" || got.StartTimestamp < 0 {
			t.Errorf("described at its end %+v", got)
		}
		w.wantTold("marker out-1 101@1 false", "share 101@1 false")
	})
}
