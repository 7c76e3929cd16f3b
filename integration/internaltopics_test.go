package integration

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// One broker with Kafka's stock settings, whose internal topics want three
// replicas: Poll and Begin name them within seconds.
func TestOneBrokerWithStockSettings(t *testing.T) {
	ctx := testkit.Deadline(t, 90*time.Second)
	k, err := target.Start(ctx, t.TempDir(), 1,
		kafka.Set("offsets.topic.replication.factor", 3),
		kafka.Set("transaction.state.log.replication.factor", 3), kafka.Set("transaction.state.log.min.isr", 2),
		kafka.Set("share.coordinator.state.topic.replication.factor", 3), kafka.Set("share.coordinator.state.topic.min.isr", 2))
	target.Require(t, err)
	t.Cleanup(func() {
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	w := open(t, k)
	in := w.topic(ctx, t, "in", 1)
	want := func(what string, err error, settings ...string) {
		t.Helper()
		fault, ok := errors.AsType[*sharetxn.InternalTopicsError](err)
		if !ok || fault.Brokers != 1 || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Errorf("%s: %v", what, err)
			return
		}
		var got []string
		for _, topic := range fault.Topics {
			if topic.Replicas != 3 {
				t.Errorf("%s: %+v", what, topic)
			}
			got = append(got, topic.Setting)
		}
		if !slices.Equal(got, settings) {
			t.Errorf("%s: %v, want %v", what, got, settings)
		}
	}
	began := time.Now()
	_, err = w.consumer(t, "group", in).Poll(ctx)
	want("Poll", err, "offsets.topic.replication.factor", "share.coordinator.state.topic.replication.factor")
	_, err = w.producer(t).Begin(ctx)
	want("Begin", err, "transaction.state.log.replication.factor")
	t.Logf("both named after %v", time.Since(began).Round(time.Millisecond))
}
