package integration

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// rawTxn speaks to the transaction coordinator without any of our code.
type rawTxn struct {
	w     *world
	cl    *kgo.Client
	topic string
	pid   int64
	epoch int16
}

func openRaw(ctx context.Context, t testing.TB, w *world) *rawTxn {
	t.Helper()
	// From version 4 on AddPartitionsToTxn is for brokers; nothing else opens a
	// transaction without a record.
	versions := kversion.Stable()
	versions.SetMaxKeyVersion(kmsg.AddPartitionsToTxn.Int16(), 3)
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds(w.plain)...), kgo.MaxVersions(versions))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	r := &rawTxn{w: w, cl: cl, topic: w.topic(ctx, t, "out", 1)}
	r.init(ctx, t)
	return r
}

// init is InitProducerId of a new producer, which fences whoever had the id.
func (r *rawTxn) init(ctx context.Context, t testing.TB) { r.initAs(ctx, t, -1, -1) }

// again is InitProducerId of this producer, as a client does that has lost an
// answer.
func (r *rawTxn) again(ctx context.Context, t testing.TB) { r.initAs(ctx, t, r.pid, r.epoch) }

func (r *rawTxn) initAs(ctx context.Context, t testing.TB, pid int64, epoch int16) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &r.w.name, 2000
	req.ProducerID, req.ProducerEpoch = pid, epoch
	whileConcurrent(ctx, t, "InitProducerId", func() (int16, error) {
		resp, err := req.RequestWith(ctx, r.cl)
		if err != nil {
			return 0, err
		}
		r.pid, r.epoch = resp.ProducerID, resp.ProducerEpoch
		return resp.ErrorCode, nil
	}, 0)
}

// add opens a transaction at the current epoch.
func (r *rawTxn) add(ctx context.Context, t testing.TB) {
	t.Helper()
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = r.w.name, r.pid, r.epoch
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = r.topic, []int32{0}
	req.Topics = append(req.Topics, topic)
	whileConcurrent(ctx, t, "AddPartitionsToTxn", func() (int16, error) {
		resp, err := req.RequestWith(ctx, r.cl)
		if err != nil {
			return 0, err
		}
		return resp.Topics[0].Partitions[0].ErrorCode, nil
	}, 0)
}

// end sends EndTxn v5 at an epoch, wants that code, and gives the new epoch.
func (r *rawTxn) end(ctx context.Context, t testing.TB, commit bool, epoch int16, want int16) int16 {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = r.w.name, r.pid, epoch, commit
	var next int16
	whileConcurrent(ctx, t, "EndTxn", func() (int16, error) {
		resp, err := req.RequestWith(ctx, r.cl)
		if err != nil {
			return 0, err
		}
		if resp.Version != 5 {
			t.Fatalf("EndTxn went out as version %d", resp.Version)
		}
		next = resp.ProducerEpoch
		return resp.ErrorCode, nil
	}, want)
	return next
}

// whileConcurrent repeats a request while the markers of an earlier end are
// being written.
func whileConcurrent(ctx context.Context, t testing.TB, what string, ask func() (int16, error), want int16) {
	t.Helper()
	testkit.Eventually(ctx, t, what+" gets an answer", func() bool {
		code, err := ask()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if code == kerr.ConcurrentTransactions.Code {
			return false
		}
		if code != want {
			t.Fatalf("%s: %v, want %v", what, kerr.ErrorForCode(code), kerr.ErrorForCode(want))
		}
		return true
	})
}

// What the resolution of outcomes rests on: EndTxn v5 that is sent again at the
// transaction's own epoch tells how it ended, whoever ended it, and changes
// nothing, until another transaction has ended or somebody took the id.
func TestEndTxnTellsTheOutcome(t *testing.T) {
	k := broker(t)
	notCommitted, fenced := kerr.InvalidTxnState.Code, kerr.ProducerFenced.Code
	for name, run := range map[string]func(context.Context, *testing.T, *rawTxn){
		"committed": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.add(ctx, t)
			for range 3 {
				if next := r.end(ctx, t, true, r.epoch, 0); next != r.epoch+1 {
					t.Errorf("epoch %d after %d", next, r.epoch)
				}
			}
			r.end(ctx, t, false, r.epoch, notCommitted)
			r.end(ctx, t, true, r.epoch, 0)
		},
		"aborted": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.add(ctx, t)
			for range 3 {
				if next := r.end(ctx, t, false, r.epoch, 0); next != r.epoch+1 {
					t.Errorf("epoch %d after %d", next, r.epoch)
				}
			}
			r.end(ctx, t, true, r.epoch, notCommitted)
		},
		"timed out": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.add(ctx, t)
			r.w.waitTxn(ctx, t, "CompleteAbort")
			r.end(ctx, t, true, r.epoch, notCommitted)
			r.epoch = r.end(ctx, t, false, r.epoch, 0)
			r.add(ctx, t)
			r.end(ctx, t, true, r.epoch, 0)
		},
		"nothing in it": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.end(ctx, t, true, r.epoch, notCommitted)
			if next := r.end(ctx, t, false, r.epoch, 0); next != r.epoch+1 {
				t.Errorf("epoch %d after %d", next, r.epoch)
			}
		},
		"nothing since a commit": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.add(ctx, t)
			r.epoch = r.end(ctx, t, true, r.epoch, 0)
			r.end(ctx, t, true, r.epoch, notCommitted)
			r.end(ctx, t, false, r.epoch, 0)
		},
		"another one since": func(ctx context.Context, t *testing.T, r *rawTxn) {
			old := r.epoch
			for range 2 {
				r.add(ctx, t)
				r.epoch = r.end(ctx, t, true, r.epoch, 0)
			}
			r.end(ctx, t, true, old, fenced)
			r.end(ctx, t, false, old, fenced)
		},
		"fenced while open": func(ctx context.Context, t *testing.T, r *rawTxn) {
			old := r.epoch
			r.add(ctx, t)
			r.init(ctx, t)
			r.end(ctx, t, true, old, fenced)
			r.end(ctx, t, false, old, fenced)
			r.add(ctx, t)
			r.end(ctx, t, true, r.epoch, 0)
		},
		// Why an outcome is asked for before InitProducerId.
		"the same producer initialised again": func(ctx context.Context, t *testing.T, r *rawTxn) {
			for _, commit := range []bool{true, false} {
				old := r.epoch
				r.add(ctx, t)
				r.end(ctx, t, commit, old, 0)
				if r.again(ctx, t); r.epoch != old+1 {
					t.Errorf("epoch %d after %d", r.epoch, old)
				}
				// the same for what was committed and for what was aborted
				r.end(ctx, t, true, old, fenced)
				r.end(ctx, t, false, old, fenced)
			}
		},
		"of another producer id": func(ctx context.Context, t *testing.T, r *rawTxn) {
			r.add(ctx, t)
			r.pid++
			r.end(ctx, t, true, r.epoch, kerr.InvalidProducerIDMapping.Code)
			r.end(ctx, t, false, r.epoch, kerr.InvalidProducerIDMapping.Code)
			r.pid--
			r.end(ctx, t, true, r.epoch, 0)
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			run(ctx, t, openRaw(ctx, t, open(t, k)))
		})
	}
}
