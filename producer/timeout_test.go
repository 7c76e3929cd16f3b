package producer

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A transaction timeout above what the brokers allow (transaction.max.timeout.ms) is
// refused by them: fatal, since only another configuration mends it. At the limit it
// is not.
func TestTimeoutAboveTheBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t, setup{edit: func(c *broker.Config) { c.MaxTxnTimeout = 20 * time.Second }})
	_, err := w.producer(t, "above", TransactionTimeout(20*time.Second+time.Millisecond)).Begin(ctx)
	e, ok := errors.AsType[*sharetxn.Error](err)
	if !ok || e.Class != sharetxn.ClassFatal || !e.FromBroker || e.Code != kerr.InvalidTransactionTimeout.Code || !errors.Is(err, kerr.InvalidTransactionTimeout) {
		t.Errorf("above: %v", err)
	}
	w.works(ctx, t, w.producer(t, "at", TransactionTimeout(20*time.Second)), "within")
	same(t, "visible", w.visible(ctx, t, "out"), "within")
}
