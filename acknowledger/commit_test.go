package acknowledger

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Each call is one transaction of InitProducerId (the first), stages and EndTxn,
// and of nothing else; the client that would produce has no part in it.
func TestCommit(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, p, nil)
		const n = 30
		w.feed(ctx, t, n)
		produces, inits := w.Traffic(keyProduce).Requests, w.Traffic(keyInit).Requests
		var dials atomic.Int64
		dial := producer.KafkaOptions(kgo.Dialer(func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("nobody is to dial")
		}))
		c, a := w.consumer(t, "g", shareconsumer.MaxPollRecords(4)), w.acknowledger(t, forward(dial))
		if err := a.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		stages, calls := 0, 0
		for done := 0; done < n; calls++ {
			b, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			done += b.Len()
			b.Records()[0].Reject()
			b.AcceptRest()
			partitions := 0
			for range b.ByPartition() {
				partitions++ // each has a leader of its own
			}
			stages += partitions
			if out, err := a.CommitAcknowledgements(ctx, b); out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
		}
		w.waitDone(ctx, t, "g", n)
		for key, want := range map[int16]int{keyProduce: produces, keyInit: inits + 1, keyAddToTxn: 0} {
			if got := w.Traffic(key).Requests; got != want {
				t.Errorf("key %d: %d requests, want %d", key, got, want)
			}
		}
		// At least: both are asked again while markers are being written.
		for key, least := range map[int16]int{keyEndTxn: calls, p.wire.Key(): handshakes + stages} {
			if got := w.Traffic(key).Requests; got < least {
				t.Errorf("key %d: %d requests, want %d", key, got, least)
			}
		}
		if calls < 2 || dials.Load() > 0 {
			t.Errorf("%d calls, %d connections to produce", calls, dials.Load())
		}
		if v, ok := w.txn(transactional); !ok || len(v.Partitions) > 0 {
			t.Errorf("the transactional id is left as %+v", v)
		}
	})
}

// What was released in a batch is given back after the commit; a batch with
// nothing to make final needs no transaction at all.
func TestReleased(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, nil)
		w.feed(ctx, t, 3)
		c, a := w.consumer(t, "g"), w.acknowledger(t)
		bs := gather(ctx, t, 3, c)
		bs[0].Records()[0].Release()
		if out, err := a.CommitAcknowledgements(ctx, accepted(bs)...); out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		ends := w.Traffic(keyEndTxn).Requests
		again := gather(ctx, t, 1, c)
		again[0].Records()[0].Release()
		if out, err := a.CommitAcknowledgements(ctx, again[0]); out != sharetxn.Committed || err != nil {
			t.Fatalf("releases alone: %v, %v", out, err)
		}
		if got := w.Traffic(keyEndTxn).Requests; got != ends {
			t.Errorf("%d EndTxn for releases alone", got-ends)
		}
		again = gather(ctx, t, 1, c)
		if r := again[0].Records()[0]; r.DeliveryCount() != 3 {
			t.Errorf("delivery %d, want 3", r.DeliveryCount())
		}
		w.finish(ctx, t, a, c, again, 3)
	})
}

// Without a batch there is nothing to prove and nothing to send, on brokers that
// cannot stage as well.
func TestEmpty(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var conns atomic.Int64
	w := start(t, draft95, func(c *broker.Config) {
		c.Stock44 = true
		c.Intercept = func(broker.Request) broker.Action { conns.Add(1); return broker.Action{} }
	})
	a := w.acknowledger(t)
	for _, none := range [][]producer.Acknowledgements{nil, {nil}, {producer.Join()}} {
		if out, err := a.CommitAcknowledgements(ctx, none...); out != sharetxn.Committed || err != nil {
			t.Errorf("%v: %v, %v", none, out, err)
		}
	}
	if n := conns.Load(); n > 0 {
		t.Errorf("%d requests", n)
	}
}

// Batches of two members of one group and of one of another: one transaction.
func TestSeveralMembersAndGroups(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, p, nil)
		const n = 30
		// Records come only when both members of g have partitions.
		var first, second atomic.Int64
		share := func(n *atomic.Int64) shareconsumer.Opt {
			return shareconsumer.OnAssigned(func(tps map[string][]int32) { n.Store(int64(len(tps["in"]))) })
		}
		one, two, other := w.consumer(t, "g", share(&first)), w.consumer(t, "g", share(&second)), w.consumer(t, "h")
		testkit.Eventually(ctx, t, "both members have partitions of their own", func() bool {
			for _, c := range []*shareconsumer.Consumer{one, two} {
				short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
				_, _ = c.Poll(short) // joins
				cancel()
			}
			return first.Load() > 0 && second.Load() > 0 && first.Load()+second.Load() == 3
		})
		w.feed(ctx, t, n)
		bs := append(gather(ctx, t, n, one, two), gather(ctx, t, n, other)...)
		a := w.acknowledger(t)
		if out, err := a.CommitAcknowledgements(ctx, accepted(bs)...); out != sharetxn.Committed || err != nil {
			t.Fatalf("%v, %v", out, err)
		}
		w.waitDone(ctx, t, "g", n)
		w.waitDone(ctx, t, "h", n)
		if got := w.Traffic(keyEndTxn).Requests; got != 1 {
			t.Errorf("%d EndTxn, want 1", got)
		}
		members := make(map[string]bool)
		for _, c := range []*shareconsumer.Consumer{one, two, other} {
			members[c.ShareGroupMetadata().MemberID()] = true
		}
		if len(members) != 3 || len(bs) < 3 {
			t.Errorf("%d members, %d batches", len(members), len(bs))
		}
	})
}

// Calls at the same time take turns, and each is a transaction of its own.
func TestConcurrentCalls(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, p, nil)
		const n = 24
		w.feed(ctx, t, n)
		c, a := w.consumer(t, "g", shareconsumer.MaxPollRecords(3)), w.acknowledger(t)
		if err := a.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		bs := gather(ctx, t, n, c)
		if len(bs) < 4 {
			t.Fatalf("%d batches are too few to stand in line", len(bs))
		}
		came, free := w.hold(p.wire.Key())
		ended := []<-chan result{commit(ctx, a, bs[:1])}
		wait(ctx, t, "a stage", came)
		for _, b := range bs[1:] {
			ended = append(ended, commit(ctx, a, []*shareconsumer.Batch{b}))
		}
		// One that does not want to wait leaves its batch as it was.
		short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if out, err := a.CommitAcknowledgements(short, bs[0]); out != sharetxn.Aborted || !errors.Is(err, context.DeadlineExceeded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Errorf("out of patience: %v, %v", out, err)
		}
		if err := a.InitTransactions(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("InitTransactions out of patience: %v", err)
		}
		close(free)
		for _, e := range ended {
			if r := <-e; r.out != sharetxn.Committed || r.err != nil {
				t.Errorf("%v, %v", r.out, r.err)
			}
		}
		w.waitDone(ctx, t, "g", n)
		if v, ok := w.txn(transactional); !ok || int(v.ProducerEpoch) != len(bs) {
			t.Errorf("epoch %d after %d transactions", v.ProducerEpoch, len(bs))
		}
	})
}

// What New refuses, and what it says.
func TestNewRefuses(t *testing.T) {
	testkit.Deadline(t, 30*time.Second)
	w := start(t, draft95, nil)
	closed := w.connect(t)
	closed.Close()
	for _, c := range []struct {
		name, prefix, says string
		cl                 *sharetxn.Cluster
		is                 error
		opts               []Opt
	}{
		{"no cluster", "acks", "cluster", nil, sharetxn.ErrUsage, nil},
		{"a closed cluster", "acks", "closed", closed, sharetxn.ErrClosed, nil},
		{"no prefix", "", "transactional id prefix", w.cl, sharetxn.ErrUsage, nil},
		{"no instance", "acks", "Instance", w.cl, sharetxn.ErrUsage, []Opt{Instance("")}},
		{"an id that is no text", "acks\xff", "UTF-8", w.cl, sharetxn.ErrUsage, nil},
		{"an instance without end", "acks", "bytes", w.cl, sharetxn.ErrUsage, []Opt{Instance(fmt.Sprintf("%020000d", 0))}},
		{"CloseTimeout", "acks", "CloseTimeout: 0s", w.cl, sharetxn.ErrUsage, []Opt{CloseTimeout(0)}},
		{"TransactionTimeout", "acks", "TransactionTimeout", w.cl, sharetxn.ErrUsage, []Opt{TransactionTimeout(-1)}},
		{"LockMargin", "acks", "LockMargin", w.cl, sharetxn.ErrUsage, []Opt{LockMargin(time.Hour)}},
		{"StageTimeout", "acks", "StageTimeout", w.cl, sharetxn.ErrUsage, []Opt{StageTimeout(-1)}},
		{"ResolveTimeout", "acks", "ResolveTimeout", w.cl, sharetxn.ErrUsage, []Opt{ResolveTimeout(0)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, err := New(c.cl, c.prefix, c.opts...)
			if a != nil || !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("%v, %v", a, err)
			}
		})
	}
}
