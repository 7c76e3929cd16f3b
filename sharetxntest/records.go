package sharetxntest

import (
	"strings"
	"testing"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Feed produces records, outside of any transaction, to the partitions of their
// topics in turn, and waits until the brokers have them. Partition and Offset
// of each record are then set. A topic that does not exist ends the test.
func (c *Cluster) Feed(t testing.TB, rs ...*kgo.Record) {
	t.Helper()
	for _, r := range rs {
		if c.broker.Partitions(r.Topic) == 0 {
			t.Fatalf("sharetxntest.Feed: topic %q does not exist: give Start the option Topic(%[1]q, partitions)", r.Topic)
		}
	}
	ctx, cancel := c.bounded()
	defer cancel()
	// kgo asks for its producer id under a mutex. If several partitions came for
	// it at once, and a planned fault made it wait, a virtual clock would stop.
	if _, _, err := c.client.ProducerID(ctx); err != nil {
		t.Fatalf("sharetxntest.Feed: %v", err)
	}
	if err := c.client.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatalf("sharetxntest.Feed: %v", err)
	}
}

// Committed gives what a read_committed reader of the topic sees now, by
// partition and offset. It is read from the brokers' logs, not by a client, and
// so no request is counted and no fault fires. A topic that does not exist has
// no records.
func (c *Cluster) Committed(t testing.TB, topic string) []*kgo.Record {
	t.Helper()
	ctx, cancel := c.bounded()
	defer cancel()
	rs, err := c.broker.Committed(ctx, topic)
	if err != nil {
		t.Fatalf("sharetxntest.Committed: %v", err)
	}
	return rs
}

// intercept sees every request before it is handled.
func (c *Cluster) intercept(r broker.Request) broker.Action {
	switch {
	case r.Key == kmsg.Metadata.Int16():
		c.create(r)
	case r.Staging() && stages(r):
		c.staged.Add(1)
	}
	return c.plan.Intercept()(r)
}

// create makes the topics that a client asks for and that do not exist, as
// brokers do by default. Names that begin with two underscores are of topics that
// have an owner, who makes them as they must be: Kafka's, and a group's ledger.
func (c *Cluster) create(r broker.Request) {
	req, ok := r.Message().(*kmsg.MetadataRequest)
	if !ok {
		return
	}
	for _, want := range req.Topics {
		if want.Topic == nil || strings.HasPrefix(*want.Topic, "__") || c.broker.Partitions(*want.Topic) > 0 {
			continue
		}
		if err := c.broker.CreateTopic(*want.Topic, 1); err != nil {
			c.log.Warn("topic not created", "topic", *want.Topic, "err", err)
		}
	}
}
