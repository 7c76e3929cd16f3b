package integration

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Processor on stock Kafka says at once that it cannot keep its promise, and
// how; it fences nobody, joins no group and stages nothing.
func TestProcessorOnStockKafka(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	in := w.topic(ctx, t, "in", 1)
	for _, profile := range []sharetxn.Profile{sharetxn.ProfileAuto, sharetxn.ProfileKIP93} {
		cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(seeds(w.plain)...), kgo.Dialer(w.tap.Dial)), sharetxn.WithProfile(profile))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		p, err := processor.New(cl, processor.Config{
			Group: "processors", Topics: []string{in}, DeadLetter: processor.DeadLetter{Topic: "dead"},
			Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		err = p.Run(ctx)
		if _, ok := errors.AsType[*sharetxn.UnsupportedError](err); !ok || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "processor.Ledger") {
			t.Errorf("profile %v: Run: %v", profile, err)
		}
	}
	for _, key := range []int16{93, 95, keyInitProducerID, kmsg.ShareGroupHeartbeat.Int16()} {
		if n := w.tap.Seen(key); n != 0 {
			t.Errorf("%d requests with key %d", n, key)
		}
	}
}

// The Processor reads a group's delivery limit where real brokers tell it.
func TestGroupTellsItsDeliveryLimit(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	for _, want := range []int{5, 3} {
		var configs map[string]string
		if want != 5 { // Kafka's default
			configs = map[string]string{"share.delivery.count.limit": strconv.Itoa(want)}
		}
		got, err := groupconfig.Describe(ctx, w.cl, w.group(ctx, t, configs))
		if err != nil || got.DeliveryCountLimit != want {
			t.Errorf("limit %d: %+v, %v", want, got, err)
		}
	}
}

// The transactions of a Processor have a timeout under the group's lock, as brokers
// tell it and their scan for transactions whose time is up, here of 1 s; one that is
// set stays.
func TestTimeoutUnderTheGroupsLock(t *testing.T) {
	k := broker(t)
	for name, tc := range map[string]struct{ lock, set, want time.Duration }{
		"default": {30 * time.Second, 0, 15 * time.Second},
		"short":   {10 * time.Second, 0, 7 * time.Second},
		"set":     {10 * time.Second, 12 * time.Second, 12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 90*time.Second)
			w := open(t, k)
			group := w.group(ctx, t, map[string]string{"share.record.lock.duration.ms": strconv.Itoa(int(tc.lock.Milliseconds()))})
			in := w.topic(ctx, t, "in", 1)
			w.feed(ctx, t, in, 1, 1)
			p, err := processor.New(w.cl, processor.Config{
				Group: group, Topics: []string{in}, DeadLetter: processor.DeadLetter{Discard: true}, Instance: "a", TransactionTimeout: tc.set,
				Guarantee: processor.AckAfterCommit, Handler: func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, nil },
			})
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- p.Run(running) }()
			id := group + "-a-m0"
			var got time.Duration
			testkit.Eventually(ctx, t, "the coordinator knows "+id, func() bool {
				told, err := w.adm.DescribeTransactions(ctx, id)
				got = time.Duration(told[id].TimeoutMillis) * time.Millisecond
				return err == nil && got > 0
			})
			if got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
			stop()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
		})
	}
}

// Two ids in turn on a real coordinator: every transaction commits, in order,
// with no wait that shows as an error.
func TestAlternateIDs(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	out := w.topic(ctx, t, "out", 1)
	p := w.producer(t, producer.AlternateIDs(2))
	var want []string
	for i := range 50 {
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		v := string(rune('a' + i%26))
		if err := tx.Produce(ctx, &kgo.Record{Topic: out, Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
		if i%10 == 7 {
			if err := tx.Abort(ctx); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if o, err := tx.Commit(ctx); o != sharetxn.Committed {
			t.Fatal(o, err)
		}
		want = append(want, v)
	}
	if got := w.visible(ctx, t, out); !slices.Equal(got, want) {
		t.Errorf("committed %v, want %v", got, want)
	}
}
