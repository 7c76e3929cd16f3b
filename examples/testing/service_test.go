package orders

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

// order is a record for topic orders.
func order(id int) *kgo.Record {
	return &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, `{"id":"%d","customer":"ann","cents":5}`, id)}
}

// service is the processor as the service configures it.
func service(t *testing.T, k *sharetxntest.Cluster, cfg processor.Config) *processor.Processor {
	t.Helper()
	cfg.Group, cfg.Topics, cfg.DeadLetter.Topic = "billing", []string{"orders"}, "orders.dead"
	p, err := processor.New(k.Connect(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// billing is the service's group, set as in production: it sees what was
// committed only.
var billing = sharetxntest.Group("billing", sharetxntest.GroupConfig{ReadCommitted: true})

// The service from end to end: a real client against brokers on a virtual
// network and clock. Orders become invoices, each once, and what is no order a
// dead letter.
func TestService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("orders", 3), billing)
		k.Feed(t, order(1), order(2), &kgo.Record{Topic: "orders", Value: []byte("hello")})
		k.RunUntilDrained(t, "billing", service(t, k, processor.Config{Handler: Invoice}))
		k.AssertExactlyOnce(t, "billing", "invoices", "orders.dead")
		if out, dead := k.Committed(t, "invoices"), k.Committed(t, "orders.dead"); len(out) != 2 || len(dead) != 1 {
			t.Errorf("%d invoices, %d dead letters", len(out), len(dead))
		}
	})
}

// The answer to a commit is lost: it has happened, and the service cannot know.
// A fault that never fires fails the test by itself.
func TestLostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("orders", 3), billing)
		k.Feed(t, order(1), order(2))
		k.Inject(t, sharetxntest.Fault{Key: sharetxntest.EndTxnKey, Action: sharetxntest.LoseAnswer()})
		k.RunUntilDrained(t, "billing", service(t, k, processor.Config{Handler: Invoice}))
		k.AssertExactlyOnce(t, "billing", "invoices")
		if n := len(k.Committed(t, "invoices")); n != 2 {
			t.Errorf("%d invoices", n)
		}
	})
}

// moody is an Addresses that is down for its first calls.
type moody struct {
	book
	down int
}

func (m *moody) Find(ctx context.Context, customers []string) (map[string]string, error) {
	if m.down > 0 {
		m.down--
		return nil, errors.New("address book is down")
	}
	return m.book.Find(ctx, customers)
}

// What the service depends on is down for a while: all labels are made in the
// end, and nothing becomes a dead letter.
func TestLabelService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := sharetxntest.Start(t, sharetxntest.Topic("orders", 3), billing)
		for id := range 20 {
			k.Feed(t, order(id))
		}
		addresses := &moody{book: book{"ann": "Rose Street 1"}, down: 3}
		k.RunUntilDrained(t, "billing", service(t, k, processor.Config{BatchHandler: Label(addresses)}))
		k.AssertExactlyOnce(t, "billing", "labels")
		if n := len(k.Committed(t, "labels")); n != 20 || addresses.down > 0 {
			t.Errorf("%d labels", n)
		}
	})
}
