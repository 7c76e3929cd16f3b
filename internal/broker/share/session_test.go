package share

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A session that knew a topic is told of its end as Kafka 4.4 tells it
// (measured); one that never did is told that the id means nothing.
func TestDeletedTopicInASession(t *testing.T) {
	r := newRig(testkit.Deadline(t, 10*time.Second), t, nil)
	r.add(1)
	knew, never := r.user("knew"), r.user("never")
	if resp := knew.fetch(); len(resp.Topics) != 1 {
		t.Fatalf("%d topics before, want 1", len(resp.Topics))
	}
	r.log.mu.Lock()
	delete(r.log.topics, "in")
	r.log.mu.Unlock()
	code := func(resp *kmsg.ShareFetchResponse) int16 {
		t.Helper()
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			t.Fatalf("topics answered: %+v", resp.Topics)
		}
		return resp.Topics[0].Partitions[0].ErrorCode
	}
	if got := code(knew.fetch()); got != codeUnknownTopicOrPartition {
		t.Errorf("session that knew it: %d, want %d", got, codeUnknownTopicOrPartition)
	}
	if got := code(never.fetch()); got != codeUnknownTopicID {
		t.Errorf("session that did not: %d, want %d", got, codeUnknownTopicID)
	}
}

// Before Kafka 4.4 a topic of the session that is not there fails the whole fetch;
// the session goes on, what the fetch acquired stays acquired, and forgetting the
// topic is enough (measured).
func TestDeletedTopicBefore44(t *testing.T) {
	r := newRig(testkit.Deadline(t, 10*time.Second), t, nil, func(c *Config) { c.Before44 = true })
	goes := r.log.create("goes", 1)
	u := r.user("m")
	lists := func(req *kmsg.ShareFetchRequest) {
		topic := kmsg.NewShareFetchRequestTopic()
		topic.TopicID = goes
		topic.Partitions = append(topic.Partitions, kmsg.NewShareFetchRequestTopicPartition())
		req.Topics = append(req.Topics, topic)
	}
	u.fetch(lists)
	r.log.mu.Lock()
	delete(r.log.topics, "goes")
	r.log.mu.Unlock()
	r.add(2)
	if resp := u.send(u.ask()); resp.ErrorCode != codeUnknownServerError || len(resp.Topics) != 0 {
		t.Fatalf("with the topic: %+v", resp)
	}
	if resp := u.send(u.ask()); resp.ErrorCode != codeInvalidShareSessionEpoch {
		t.Fatalf("at the epoch that failed: %+v", resp)
	}
	u.epoch++
	forgets := func(req *kmsg.ShareFetchRequest) {
		topic := kmsg.NewShareFetchRequestForgottenTopicsData()
		topic.TopicID, topic.Partitions = goes, []int32{0}
		req.ForgottenTopicsData = append(req.ForgottenTopicsData, topic)
	}
	r.add(1)
	wantGot(t, "without it", u.fetch(forgets), [3]int64{2, 2, 1})
	if resp := u.sendAck(u.ackReq(batch(0, 1, acks.Accept))); resp.Topics[0].Partitions[0].ErrorCode != codeNone {
		t.Errorf("what the failed fetch acquired is not held: %+v", resp)
	}
	if resp := r.user("never").send(r.user("never").ask(lists)); resp.ErrorCode != codeUnknownServerError {
		t.Errorf("opening with it: %+v", resp)
	}
}
