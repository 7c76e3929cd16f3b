package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// lock is short, but so much longer than a producer's lock margin (2 s) that a
// renewal that comes late on a busy machine does not cost a delivery.
const lock = 6 * time.Second

func start(t *testing.T, stock bool) *broker.Cluster {
	t.Helper()
	group := map[string]string{"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds())}
	b, err := broker.Start(broker.Config{
		Brokers: 3, Topics: map[string]int32{"rides": 3, "drivers": 2, "matches": 1}, HeartbeatInterval: 500 * time.Millisecond, Stock44: stock, History: true,
		GroupConfigs: map[string]map[string]string{"rides": group, "drivers": group},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func client(t *testing.T, b *broker.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Seeds()...), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// feed produces n records to a topic, numbered from first.
func feed(ctx context.Context, t *testing.T, k *kgo.Client, topic string, first, n int) {
	t.Helper()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		name := fmt.Appendf(nil, "%s %d", topic, first+i)
		rs[i] = &kgo.Record{Topic: topic, Key: name, Value: name}
	}
	if err := k.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// states adds up the share partitions of a group.
func states(b *broker.Cluster, group string) (done, left int64) {
	for _, p := range b.PartitionStates(group) {
		done += p.Start + p.Terminal
		left += p.Available + p.Acquired + p.Pending
	}
	return done, left
}

// refuse answers the first request for which answer has one.
func refuse(b *broker.Cluster, answer func(kmsg.Request) kmsg.Response) (refused *atomic.Int64) {
	refused = new(atomic.Int64)
	b.SetIntercept(func(r broker.Request) broker.Action {
		resp := answer(r.Message())
		if resp == nil || !refused.CompareAndSwap(0, 1) {
			return broker.Action{}
		}
		return broker.Action{Answer: resp}
	})
	return refused
}

// refuseStage denies that the member is one, for the moment.
func refuseStage(m kmsg.Request) kmsg.Response {
	req, ok := m.(*wire.Request)
	if !ok || req.TransactionalID == nil {
		return nil
	}
	resp := req.ResponseKind().(*wire.Response)
	resp.ErrorCode = kerr.UnknownMemberID.Code
	return resp
}

// refuseCommit denies a commit, when all is staged.
func refuseCommit(m kmsg.Request) kmsg.Response {
	req, ok := m.(*kmsg.EndTxnRequest)
	if !ok || !req.Commit {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.TransactionAbortable.Code, -1, -1
	return resp
}

// Rides wait for their drivers, past their locks and at one delivery. Each gets
// one then, and no driver gets two, although a transaction fails on the way:
// before anything was staged at no cost in deliveries, after that at the cost of
// one.
func TestMatches(t *testing.T) {
	for name, c := range map[string]struct {
		answer     func(kmsg.Request) kmsg.Response
		deliveries int16
	}{
		"a stage is refused":  {refuseStage, 1},
		"a commit is refused": {refuseCommit, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 60*time.Second)
			b := start(t, false)
			k := client(t, b)
			serve, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- run(serve, []string{"-bootstrap", strings.Join(b.Seeds(), ",")}) }()

			const rides, drivers = 60, 40
			feed(ctx, t, k, "rides", 0, rides)
			fed := time.Now()
			testkit.Eventually(ctx, t, "rides are in hand for longer than a lock lasts", func() bool {
				_, left := states(b, "rides")
				return left > 0 && time.Since(fed) > lock+lock/4
			})
			refused := refuse(b, c.answer)
			feed(ctx, t, k, "drivers", 0, drivers)
			testkit.Eventually(ctx, t, "every driver has a ride", func() bool {
				done, _ := states(b, "drivers")
				return done == drivers
			})
			if done, _ := states(b, "rides"); done != drivers {
				t.Errorf("%d rides are done, and %d drivers", done, drivers)
			}
			feed(ctx, t, k, "drivers", drivers, rides-drivers)
			for _, group := range []string{"rides", "drivers"} {
				testkit.Eventually(ctx, t, "all are done of "+group, func() bool {
					done, left := states(b, group)
					return done == rides && left == 0
				})
			}
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			if refused.Load() != 1 {
				t.Error("nothing was refused")
			}
			if got := deliveries(ctx, t, b); got != c.deliveries {
				t.Errorf("up to %d deliveries, want %d", got, c.deliveries)
			}
			matchedOnce(ctx, t, b, rides)
		})
	}
}

// deliveries is how often a ride was delivered, at most.
func deliveries(ctx context.Context, t *testing.T, b *broker.Cluster) (most int16) {
	t.Helper()
	facts, err := b.Facts(ctx, "rides")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range facts.Events {
		if e, ok := e.(share.Event); ok && e.Group == "rides" && e.Kind == share.EventAcquired {
			most = max(most, e.Count)
		}
	}
	return most
}

// matchedOnce reads the matches: each of n rides and n drivers is in one.
func matchedOnce(ctx context.Context, t *testing.T, b *broker.Cluster, n int) {
	t.Helper()
	feed(ctx, t, client(t, b), "matches", 0, 1) // the end
	out := client(t, b, kgo.ConsumeTopics("matches"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	matched := make(map[string]int)
	for matched["matches 0"] == 0 {
		fs := out.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			matched[string(r.Key)]++
			matched[string(r.Value)]++
		})
	}
	for i := range n {
		for _, topic := range []string{"rides", "drivers"} {
			if got := matched[fmt.Sprint(topic, " ", i)]; got != 1 {
				t.Errorf("%s %d is matched %d times", topic, i, got)
			}
		}
	}
}

// On brokers without KIP-1289 it ends, with the reason, and matches nothing.
func TestStockKafka(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	b := start(t, true)
	k := client(t, b)
	feed(ctx, t, k, "rides", 0, 3)
	feed(ctx, t, k, "drivers", 0, 3)
	if err := run(ctx, []string{"-bootstrap", strings.Join(b.Seeds(), ",")}); !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Fatalf("ended with %v", err)
	}
	for _, group := range []string{"rides", "drivers"} {
		if done, _ := states(b, group); done != 0 {
			t.Errorf("%d %s are done", done, group)
		}
	}
}
