package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// rawTxn is a transactional id driven by plain requests. The library asks
// EndTxn again at the old epoch to learn an outcome (DESIGN.md); what the
// coordinator answers there is therefore held here, without the library.
type rawTxn struct {
	cl        *kgo.Client
	adm       *kadm.Client
	id, topic string
	pid       int64
	epoch     int16 // of the transaction that is asked about
}

// answer is what EndTxn v5 said.
type answer struct {
	err   error
	pid   int64
	epoch int16
}

func rawClient(t *testing.T, k *kafka.Cluster) *kgo.Client {
	t.Helper()
	pinned := kversion.Stable()
	pinned.SetMaxKeyVersion(int16(kmsg.AddPartitionsToTxn), 3) // above, only brokers may
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.MaxVersions(pinned))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (x *rawTxn) init(ctx context.Context, t *testing.T, pid int64, epoch int16, timeout time.Duration) (int64, int16) {
	t.Helper()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &x.id, int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = pid, epoch
	var resp *kmsg.InitProducerIDResponse
	testkit.Eventually(ctx, t, "InitProducerId is answered", func() bool {
		var err error
		if resp, err = req.RequestWith(ctx, x.cl); err != nil {
			t.Fatalf("InitProducerId: %v", err)
		}
		return resp.ErrorCode != kerr.ConcurrentTransactions.Code
	})
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		t.Fatalf("InitProducerId: %v", err)
	}
	return resp.ProducerID, resp.ProducerEpoch
}

// add registers a partition, as staging would: that makes the transaction
// ongoing without a record.
func (x *rawTxn) add(ctx context.Context, t *testing.T) {
	t.Helper()
	topic := kmsg.NewAddPartitionsToTxnRequestTopic()
	topic.Topic, topic.Partitions = x.topic, []int32{0}
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = x.id, x.pid, x.epoch
	req.Topics = append(req.Topics, topic)
	testkit.Eventually(ctx, t, "AddPartitionsToTxn is answered", func() bool {
		resp, err := req.RequestWith(ctx, x.cl)
		if err != nil {
			t.Fatalf("AddPartitionsToTxn: %v", err)
		}
		code := resp.Topics[0].Partitions[0].ErrorCode
		if code != 0 && code != kerr.ConcurrentTransactions.Code {
			t.Fatalf("AddPartitionsToTxn: %v", kerr.ErrorForCode(code))
		}
		return code == 0
	})
}

// end asks until the answer is not that the transaction is just being ended.
func (x *rawTxn) end(ctx context.Context, t *testing.T, commit bool) (a answer) {
	t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.pid, x.epoch, commit
	testkit.Eventually(ctx, t, "EndTxn is answered", func() bool {
		resp, err := req.RequestWith(ctx, x.cl)
		if err != nil {
			t.Fatalf("EndTxn: %v", err)
		}
		if resp.Version != 5 {
			t.Fatalf("EndTxn v%d was used; the outcome can be asked for from v5 on", resp.Version)
		}
		a = answer{kerr.ErrorForCode(resp.ErrorCode), resp.ProducerID, resp.ProducerEpoch}
		return resp.ErrorCode != kerr.ConcurrentTransactions.Code
	})
	return a
}

func (x *rawTxn) wait(ctx context.Context, t *testing.T, state string) {
	t.Helper()
	testkit.Eventually(ctx, t, "transaction in state "+state, func() bool {
		d, err := x.adm.DescribeTransactions(ctx, x.id)
		return err == nil && d[x.id].State == state
	})
}

// ended ends the transaction and waits until the markers are written.
func (x *rawTxn) ended(ctx context.Context, t *testing.T, commit bool) {
	t.Helper()
	if a := x.end(ctx, t, commit); a != (answer{nil, x.pid, x.epoch + 1}) {
		t.Fatalf("EndTxn(commit=%v) of an ongoing transaction: %+v", commit, a)
	}
	x.wait(ctx, t, map[bool]string{true: "CompleteCommit", false: "CompleteAbort"}[commit])
}

func TestEndTxnAsksForTheOutcome(t *testing.T) {
	k := broker(t)
	const timeout = time.Minute
	for _, c := range []struct {
		name  string
		limit time.Duration // the transaction timeout; 0: never reached
		reach func(context.Context, *testing.T, *rawTxn)
		// answers at the epoch that the transaction began with
		commit, abort error
		final         [2]string // states after the commit and after the abort
		epoch         int16     // what success gives, counted from that epoch
	}{
		{name: "ongoing", epoch: 1, final: [2]string{"CompleteCommit", "CompleteAbort"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t) }},
		{name: "committed", epoch: 1, abort: kerr.InvalidTxnState, final: [2]string{"CompleteCommit", "CompleteCommit"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t); x.ended(ctx, t, true) }},
		{name: "aborted", epoch: 1, commit: kerr.InvalidTxnState, final: [2]string{"CompleteAbort", "CompleteAbort"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t); x.ended(ctx, t, false) }},
		{name: "timed out", limit: time.Second, epoch: 1, commit: kerr.InvalidTxnState, final: [2]string{"CompleteAbort", "CompleteAbort"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t); x.wait(ctx, t, "CompleteAbort") }},
		{name: "nothing added", epoch: 1, commit: kerr.InvalidTxnState, final: [2]string{"Empty", "CompleteAbort"},
			reach: func(context.Context, *testing.T, *rawTxn) {}},
		{name: "nothing added after a commit", epoch: 1, commit: kerr.InvalidTxnState, final: [2]string{"CompleteCommit", "CompleteAbort"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t); x.ended(ctx, t, true); x.epoch++ }},
		{name: "two transactions ago", commit: kerr.ProducerFenced, abort: kerr.ProducerFenced, final: [2]string{"CompleteAbort", "CompleteAbort"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) {
				x.add(ctx, t)
				x.ended(ctx, t, true)
				x.epoch++
				x.add(ctx, t)
				x.ended(ctx, t, false)
				x.epoch--
			}},
		{name: "another producer began", commit: kerr.ProducerFenced, abort: kerr.ProducerFenced, final: [2]string{"Empty", "Empty"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) {
				x.add(ctx, t)
				x.ended(ctx, t, true)
				if _, epoch := x.init(ctx, t, -1, -1, timeout); epoch != x.epoch+2 {
					t.Errorf("the other producer has epoch %d after %d", epoch, x.epoch)
				}
			}},
		{name: "an id of another producer", commit: kerr.InvalidProducerIDMapping, abort: kerr.InvalidProducerIDMapping, final: [2]string{"Ongoing", "Ongoing"},
			reach: func(ctx context.Context, t *testing.T, x *rawTxn) { x.add(ctx, t); x.pid++ }},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 30*time.Second)
			w := open(t, k)
			cl, topic := rawClient(t, k), w.topic(ctx, t, "out", 1)
			for i, commit := range []bool{true, false} {
				x := &rawTxn{cl: cl, adm: w.adm, id: fmt.Sprint(w.name, ".", commit), topic: topic}
				limit := timeout
				if c.limit > 0 {
					limit = c.limit
				}
				x.pid, x.epoch = x.init(ctx, t, -1, -1, limit)
				c.reach(ctx, t, x)
				want := answer{err: []error{c.commit, c.abort}[i], pid: -1, epoch: -1}
				if want.err == nil {
					want.pid, want.epoch = x.pid, x.epoch+c.epoch
				}
				for _, again := range []string{"", ", again"} {
					if got := x.end(ctx, t, commit); got != want {
						t.Errorf("EndTxn(commit=%v)%s: %+v, want %+v", commit, again, got, want)
					}
					x.wait(ctx, t, c.final[i])
				}
			}
		})
	}
}

// Why an outcome is asked for before InitProducerId: afterwards nobody knows.
func TestInitProducerIDForgetsTheOutcome(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 30*time.Second)
	w := open(t, k)
	cl, topic := rawClient(t, k), w.topic(ctx, t, "out", 1)
	for _, commit := range []bool{true, false} {
		x := &rawTxn{cl: cl, adm: w.adm, id: fmt.Sprint(w.name, ".", commit), topic: topic}
		x.pid, x.epoch = x.init(ctx, t, -1, -1, time.Minute)
		x.add(ctx, t)
		x.ended(ctx, t, commit)
		if pid, epoch := x.init(ctx, t, x.pid, x.epoch, time.Minute); pid != x.pid || epoch != x.epoch+1 {
			t.Errorf("InitProducerId of the same producer: id %d epoch %d, after id %d epoch %d", pid, epoch, x.pid, x.epoch)
		}
		// The same for both: it tells nothing.
		if got, want := x.end(ctx, t, true), (answer{kerr.ProducerFenced, -1, -1}); got != want {
			t.Errorf("the commit of what ended with commit=%v: %+v, want %+v", commit, got, want)
		}
	}
}
