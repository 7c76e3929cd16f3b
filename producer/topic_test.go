package producer

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An output topic that does not exist is named, before the transaction's timeout
// ends it with an error that names nothing.
func TestMissingTopicIsNamed(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	// As kgo's own 5 s are to the default transaction timeout, but quicker.
	p := w.producer(t, "tx", TransactionTimeout(2*time.Second), LockMargin(10*time.Millisecond), KafkaOptions(kgo.MetadataMinAge(time.Second)))
	for range 2 { // kgo asks at once only the first time
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Produce(ctx, &kgo.Record{Topic: "nowhere", Value: []byte("lost")}); err != nil {
			t.Fatal(err)
		}
		out, err := tx.Commit(ctx)
		if out != sharetxn.Aborted || !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "nowhere") || sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", out, err)
		}
	}
	w.works(ctx, t, p, "after")
	same(t, "visible", w.visible(ctx, t, "out"), "after")
}
