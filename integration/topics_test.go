package integration

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// One of two topics is deleted: the other goes on, and what was acquired of it is
// acknowledged. Before Kafka 4.4 brokers fail every fetch that still names the
// deleted one, as a whole, after it has acquired records.
func TestDeletedTopicBesideAnother(t *testing.T) {
	ctx := testkit.Deadline(t, 25*time.Second) // less than the locks
	w := open(t, broker(t))
	stays, goes := w.topic(ctx, t, "stays", 2), w.topic(ctx, t, "goes", 2)
	w.feed(ctx, t, stays, 4, 2)
	w.feed(ctx, t, goes, 4, 2)
	c := w.consumer(t, w.group(ctx, t, nil), stays, shareconsumer.Topics(goes))
	acceptEach(ctx, t, c, 8, func(*shareconsumer.Record) {})
	if _, err := w.adm.DeleteTopic(ctx, goes); err != nil {
		t.Fatal(err)
	}
	again := 0
	for range 5 {
		w.feed(ctx, t, stays, 4, 2)
		acceptEach(ctx, t, c, 4, func(r *shareconsumer.Record) {
			if r.Topic != stays {
				t.Errorf("%s-%d offset %d came", r.Topic, r.Partition, r.Offset)
			}
			if r.DeliveryCount() > 1 { // a fetch that failed had acquired it
				again++
			}
		})
	}
	t.Logf("%d records came again", again)
}

// acceptEach commits batches until n records came, and shows each.
func acceptEach(ctx context.Context, t *testing.T, c *shareconsumer.Consumer, n int, show func(*shareconsumer.Record)) {
	t.Helper()
	for got := 0; got < n; {
		b := poll(ctx, t, c)
		for _, r := range b.Records() {
			show(r)
		}
		got += b.Len()
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// What a member holds of a partition that it has paused, and that its session has
// forgotten, goes to another at once when it closes.
func TestCloseGivesPausedPartitionsBack(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, broker(t))
	topic := w.topic(ctx, t, "in", 2)
	w.feed(ctx, t, topic, 4, 2)
	group := w.group(ctx, t, map[string]string{"share.record.lock.duration.ms": "60000"}) // longer than the test
	c := w.consumer(t, group, topic)
	for n := 0; n < 4; {
		n += poll(ctx, t, c).Len()
	}
	c.Pause(topic, 1)
	w.feed(ctx, t, topic, 1, 1)
	for b := poll(ctx, t, c); b.Len() != 1 || b.Records()[0].Partition != 0; b = poll(ctx, t, c) {
		t.Fatal("more came than the one record")
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	other := w.consumer(t, group, topic)
	acceptEach(ctx, t, other, 5, func(*shareconsumer.Record) {})
}
