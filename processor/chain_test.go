package processor_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// stage is a Processor that copies one topic to another, under guarantee Ledger.
func (w *world) stage(t *testing.T, group, from, to string) *processor.Processor {
	t.Helper()
	if err := ledger.Ensure(t.Context(), w.Connect(t), group, []string{from}); err != nil {
		t.Fatal(err)
	}
	p, err := processor.New(w.Connect(t, sharetxn.WithHooks(w.seen)), processor.Config{
		Group: group, Topics: []string{from}, Guarantee: processor.Ledger, Instance: "here", MaxRecords: 5, DeadLetter: processor.DeadLetter{Topic: "dead"},
		Handler: func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
			return []*kgo.Record{{Topic: to, Key: in.Key, Value: in.Value}}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Two stages in a row are exactly once from end to end where the second one's group
// reads committed, though every third transaction aborts. Where it reads
// uncommitted it is handed what the first took back, and publishes that too.
func TestChain(t *testing.T) {
	for name, committed := range map[string]bool{"read committed": true, "read uncommitted": false} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				const n = 300
				limit := sharetxntest.GroupConfig{DeliveryLimit: 10}
				second := limit
				second.ReadCommitted = committed
				w := start(t, ledgered, sharetxntest.Topic("mid", 3), sharetxntest.Group("g", limit), sharetxntest.Group("h", second))
				w.feed(t, n)
				// A refused commit, its abort, a commit, each but the first followed by kgo, on
				// one of two ids: a third of all.
				for i := range 26 {
					w.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Nth: 1 + 5*i, TransactionalID: "g-here-m0", Action: sharetxntest.Answer(kerr.TransactionAbortable.Code)})
					w.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Nth: 1 + 5*i, TransactionalID: "h-here-m0-alt1", Action: sharetxntest.Answer(kerr.TransactionAbortable.Code)})
				}
				stops := []func() error{run(t, w.stage(t, "g", "in", "mid")), run(t, w.stage(t, "h", "mid", "out"))}
				w.WaitDrained(t, "g")
				w.WaitDrained(t, "h")
				for _, stop := range stops {
					if err := stop(); err != nil {
						t.Fatal(err)
					}
				}
				if a, c := w.seen.count(sharetxn.Aborted), w.seen.count(sharetxn.Committed); 4*a < a+c {
					t.Errorf("only %d of %d transactions aborted", a, a+c)
				} else {
					t.Logf("%d of %d transactions aborted", a, a+c)
				}
				out, more := w.values(t, "out"), 0
				for i := range n {
					v := fmt.Sprint(i)
					if out[v] == 0 {
						t.Errorf("record %s did not come through", v)
					}
					more += out[v] - 1
				}
				if (more == 0) != committed {
					t.Errorf("%d records more than there should be", more)
				}
			})
		})
	}
}
