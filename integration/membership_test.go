package integration

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// Kafka makes assignments about a second after it was asked for one and tells
// them with the next heartbeat, which it asks for in 5 s or, here, 15 s. Neither
// the first record nor that of a topic subscribed to later waits for that.
func TestFirstRecordDoesNotWaitForAHeartbeat(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	in, other := w.topic(ctx, t, "in", 2), w.topic(ctx, t, "other", 2)
	group := w.group(ctx, t, map[string]string{"share.heartbeat.interval.ms": "15000"})
	w.feed(ctx, t, in, 1, 1)
	w.feed(ctx, t, other, 1, 1)
	c := w.consumer(t, group, in)
	first := func(topic string) {
		t.Helper()
		soon, cancel := context.WithTimeout(ctx, 12*time.Second)
		defer cancel()
		b := poll(soon, t, c)
		defer b.Close()
		if r := b.Records()[0]; r.Topic != topic || b.Len() != 1 {
			t.Fatalf("%d records, the first of %s", b.Len(), r.Topic)
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	first(in)
	if err := c.SetTopics(other); err != nil {
		t.Fatal(err)
	}
	first(other)
}

// RecordLimit on real brokers: a batch of the log comes in parts, none of them
// larger than asked for, and each record once.
func TestRecordLimit(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	const n, limit = 20, 3
	topic := w.topic(ctx, t, "in", 1)
	group := w.group(ctx, t, nil)
	w.feed(ctx, t, topic, n, 1) // one batch, or few
	c := w.consumer(t, group, topic, shareconsumer.AcquireMode(shareconsumer.RecordLimit), shareconsumer.MaxPollRecords(limit))
	seen := make(map[string]bool)
	for len(seen) < n {
		b := poll(ctx, t, c)
		if b.Len() > limit {
			t.Fatalf("%d records", b.Len())
		}
		for _, r := range b.Records() {
			if seen[string(r.Value)] || r.DeliveryCount() != 1 {
				t.Fatalf("%s came again, delivery %d", r.Value, r.DeliveryCount())
			}
			seen[string(r.Value)] = true
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	w.waitDrained(ctx, t)
}

// Pause, resume, and a member that nobody polls, on real brokers.
func TestPauseAndLiveness(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	topic := w.topic(ctx, t, "in", 2)
	group := w.group(ctx, t, nil)
	w.feed(ctx, t, topic, 2, 2)
	c := w.consumer(t, group, topic, shareconsumer.MaxPollInterval(3*time.Second))
	var rs []*shareconsumer.Record
	more := func(want int) {
		t.Helper()
		for len(rs) < want {
			b := poll(ctx, t, c)
			rs = append(rs, b.Records()...)
			b.AcceptRest()
			if err := b.CommitAsync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	more(2)
	c.Pause(topic, 1)
	parked, cancel := context.WithTimeout(ctx, 600*time.Millisecond) // lets fetches that were parked end
	defer cancel()
	if b, _ := c.Poll(parked); b != nil {
		t.Fatal("a record too many")
	}
	w.feed(ctx, t, topic, 2, 2)
	more(3)
	if r := rs[2]; r.Partition != 0 {
		t.Fatalf("partition %d came though it is paused", r.Partition)
	}
	id := c.ShareGroupMetadata()
	testkit.Eventually(ctx, t, "the member left", func() bool { return c.ShareGroupMetadata().IsZero() })
	c.Resume(topic, 1)
	more(4)
	if now := c.ShareGroupMetadata(); now.MemberID() != id.MemberID() || rs[3].Partition != 1 {
		t.Fatalf("%v came back as %v with partition %d", id, now, rs[3].Partition)
	}
	w.waitDrained(ctx, t)
}
