package sharetxntest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Services that are not exactly once are told so, each for what it does.
func TestAssertExactlyOnceFails(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	consumer := func(t testing.TB, k *Cluster) *shareconsumer.Consumer {
		c, err := shareconsumer.New(k.Connect(t), "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Explicit))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	poll := func(t testing.TB, c *shareconsumer.Consumer) *shareconsumer.Batch {
		b, err := c.Poll(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, tc := range map[string]struct {
		service func(t testing.TB, k *Cluster)
		outputs []string
		want    []string
	}{
		"does nothing": {service: func(testing.TB, *Cluster) {}, want: []string{"group g acknowledged nothing in a committed transaction"}},
		"produces, then acknowledges": {service: func(t testing.TB, k *Cluster) {
			b := poll(t, consumer(t, k))
			for _, r := range b.Records() {
				k.Feed(t, &kgo.Record{Topic: "out", Value: r.Value})
				r.Accept()
			}
			if err := b.CommitSync(context.Background()); err != nil {
				t.Fatal(err)
			}
			k.WaitDrained(t, "g")
		}, outputs: []string{"out"}, want: []string{
			"acknowledged nothing", "lost: in-0 offsets 0 to 1: accepted plainly", "stray: out-0 offsets 0 to 1: visible, and written outside of any transaction",
		}},
		"holds records": {service: func(t testing.TB, k *Cluster) { poll(t, consumer(t, k)) }, want: []string{
			"acknowledged nothing", "left: in-0 offsets 0 to 1: 2 acquired and 0 staged at rest", "left: in-0 offsets 0 to 1: not done",
		}},
		"forgets to acknowledge": {service: func(t testing.TB, k *Cluster) {
			k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
			p, err := producer.New(k.Connect(t), "forgetful")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.Close() })
			txn, err := p.Begin(context.Background())
			if err == nil {
				err = txn.Produce(context.Background(), &kgo.Record{Topic: "out"})
			}
			if err == nil {
				_, err = txn.Commit(context.Background())
			}
			if err != nil {
				t.Fatal(err)
			}
		}, want: []string{"unacknowledged: out-0 offset 3: published by transaction forgetful"}},
		"publishes on another topic": {service: func(t testing.TB, k *Cluster) {
			k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		}, outputs: []string{"results"}, want: []string{"elsewhere: out-0 offsets 0 to 1: published by transaction copier"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				failed, _ := verdict(t, func(t testing.TB) {
					k := Start(t, Topic("in", 1), Topic("out", 1))
					k.Feed(t, numbers(2)...)
					tc.service(t, k)
					k.AssertExactlyOnce(t, "g", tc.outputs...)
				})
				wantText(t, "failures", failed, tc.want...)
			})
		})
	}
}

// A record that the group never finishes with is archived by the broker at the
// limit: lost, and said so.
func TestDeliveryLimit(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		failed, _ := verdict(t, func(t testing.TB) {
			k := Start(t, Topic("in", 1), Topic("out", 1), Group("g", GroupConfig{DeliveryLimit: 2, LockDuration: 5 * time.Second}))
			k.Feed(t, numbers(1)...)
			c, err := shareconsumer.New(k.Connect(t), "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Explicit))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			began := time.Now()
			for range 2 {
				if _, err := c.Poll(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if d := time.Since(began); d < 5*time.Second || d > 10*time.Second {
				t.Errorf("the second delivery came after %v", d)
			}
			k.WaitDrained(t, "g")
			k.AssertExactlyOnce(t, "g")
		})
		wantText(t, "failures", failed, "acknowledged nothing", "I7 archived: in-0 offset 0: archived after 2 deliveries, its limit")
	})
}

// A Processor of three members goes through a fault of every kind and publishes
// each record once; minutes of locks and timeouts are no time.
func TestProcessorThroughFaults(t *testing.T) {
	testkit.Deadline(t, 2*time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Brokers(3), Topic("in", 6), Topic("out", 3))
		k.Inject(t, Fault{Key: InitProducerIDKey, Action: Delay(2 * time.Second)})
		k.Feed(t, numbers(300)...)
		for _, f := range []Fault{
			{Key: EndTxnKey, Nth: 1, Action: LoseAnswer()},
			{Key: EndTxnKey, Nth: 3, Action: LoseRequest()},
			{Key: EndTxnKey, Nth: 5, Action: Delay(40 * time.Second)},
			{Key: EndTxnKey, Nth: 7, Action: BrokerRestarts(1)},
			{Key: StageKey, Nth: 2, Action: LoseAnswer()},
			{Key: StageKey, Nth: 4, Action: LeaderMoves("in", 3, 1)},
			{Key: StageKey, Nth: 6, Action: DeliverTwice()},
			{Key: ProduceKey, Nth: 2, Action: Disconnect()},
			{Key: HeartbeatKey, Nth: 3, Action: LoseAnswer()},
			{Key: ShareFetchKey, Nth: 4, Action: LoseAnswer()},
		} {
			k.Inject(t, f)
		}
		p, err := processor.New(k.Connect(t), processor.Config{
			Group: "g", Topics: []string{"in"}, Members: 3, MaxRecords: 20, DeadLetter: processor.DeadLetter{Topic: "dead"},
			Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
				if in.Offset == 7 && in.DeliveryCount == 1 {
					return nil, errors.New("not today")
				}
				return []*kgo.Record{{Topic: "out", Value: in.Value}}, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		k.RunUntilDrained(t, "g", p)
		wantNumbers(t, k, "out", 300)
		k.AssertExactlyOnce(t, "g", "out", "dead")
	})
}
