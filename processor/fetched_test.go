package processor_test

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What was fetched and waits behind long handlers keeps its locks.
func TestLongHandlersKeepFetched(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: on.least()}))
		w.feed(t, 6)
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{MaxRecords: 1, HandlerTimeout: time.Hour, Handler: w.seen.handler(func(ctx context.Context, r *processor.Record) ([]*kgo.Record, error) {
			time.Sleep(7 * time.Minute)
			return copyOf(r), nil
		})}))
		w.want(t, 6)
		w.seen.healthy(t, 1)
	})
}

// A stop waits for a fetch under way: closing over it would archive what it
// brings on its last delivery.
func TestStopWaitsForFetch(t *testing.T) {
	inAll(t, func(t *testing.T, on setting) {
		w := start(t, on, sharetxntest.Topic("in", 1), sharetxntest.Group("g", sharetxntest.GroupConfig{DeliveryLimit: on.least()}))
		w.feed(t, 5)
		w.useDelivery(t, 5)
		fired := w.Inject(t, sharetxntest.Fault{Key: sharetxntest.ShareFetchKey, Nth: 1, Action: sharetxntest.Delay(3 * time.Second)})
		stop := run(t, w.processor(t, processor.Config{}))
		<-fired
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.RunUntilDrained(t, "g", w.processor(t, processor.Config{}))
		if n := len(w.values(t, "out")) + len(w.values(t, "dead")); n != 5 {
			t.Errorf("%d of 5", n)
		}
	})
}
