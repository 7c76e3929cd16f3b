package share

import (
	"testing"
	"time"

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
