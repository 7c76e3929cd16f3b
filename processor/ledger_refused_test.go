package processor_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An entry that brokers refuse for good, as for want of a right that was taken away,
// is no fault of the records: they wait until it is given again, and it costs no
// attempt and no delivery.
func TestRefusedEntryIsNoFailureOfRecords(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.MessageTooLarge, kerr.InvalidRecord} {
		t.Run(code.Message, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, sharetxntest.Topic("in", 1))
				var fired []<-chan struct{}
				for n := range 12 { // in halves, and each record alone
					fired = append(fired, w.Inject(t, sharetxntest.Fault{Key: sharetxntest.ProduceKey, Nth: n + 1, TransactionalID: "g-here-m0", Action: sharetxntest.Answer(code.Code)}))
				}
				w.feed(t, 2)
				nothing := w.seen.handler(func(context.Context, *processor.Record) ([]*kgo.Record, error) { return nil, nil })
				p := w.processor(t, once(processor.Config{Handler: nothing}))
				w.RunUntilDrained(t, "g", p)
				for _, f := range fired {
					<-f
				}
				if n := w.seen.count(sharetxn.Aborted); n < 3 {
					t.Errorf("%d transactions aborted", n)
				}
				w.seen.healthy(t, 1)
				if dead := w.values(t, "dead"); len(dead) > 0 {
					t.Errorf("dead letters of healthy records: %v", dead)
				}
			})
		})
	}
}

// A source topic that is widened while members work, and its ledger after it: the
// records of the new partition wait, and then are done, without a failure.
func TestLedgerWidenedLate(t *testing.T) {
	inLedger(t, func(t *testing.T) {
		w := start(t, ledgered)
		stop := run(t, w.processor(t, once(processor.Config{})))
		w.feed(t, 9)
		w.WaitDrained(t, "g")
		cl, err := kgo.NewClient(append(w.Kafka(), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		resp, err := kadm.NewClient(cl).UpdatePartitions(t.Context(), 5, "in")
		if err == nil {
			err = resp.Error()
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Partition: int32(3 + i%2), Value: fmt.Append(nil, 9+i)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the new partitions' records wait", func() bool { return w.seen.told(sharetxn.LedgerWait, "") > 0 })
		w.ensure(t)
		widened := time.Now()
		w.WaitDrained(t, "g")
		if took := time.Since(widened); took > time.Minute { // kgo asks for metadata every five by itself
			t.Errorf("they waited for %v more", took)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		w.want(t, 13)
		w.seen.healthy(t, 1)
	})
}
