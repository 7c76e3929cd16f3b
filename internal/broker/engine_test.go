package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A share consumer that reads committed records and already waits gets a
// transaction's records when it commits, not when its poll is over.
func TestCommitWakesShareFetch(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{
		Topics: map[string]int32{"out": 1}, HeartbeatInterval: 100 * time.Millisecond,
		GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest", "share.isolation.level": "read_committed"}},
	})
	p := producer(t, c)
	write(ctx, t, p, "a")
	member := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("out"), kgo.FetchMaxWait(20*time.Second))
	got := make(chan kgo.Fetches, 1)
	go func() { got <- member.PollFetches(ctx) }()
	testkit.Eventually(ctx, t, "the member waits at the partition", func() bool {
		return c.Traffic(keyShareFetch).Requests > 0 && len(c.PartitionStates("g")) == 1
	})
	began := time.Now()
	if err := p.EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	if fs := <-got; fs.NumRecords() != 1 {
		t.Fatalf("%d records, %v", fs.NumRecords(), fs.Errors())
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("woken after %v", d)
	}
	c.Close() // a kgo client that closes waits for its next long poll
}

// The engine is told of a new leader: what was acquired is not any more.
func TestMoveLeaderReleases(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 2, Topics: map[string]int32{"in": 1}, GroupConfigs: earliest, HeartbeatInterval: 100 * time.Millisecond})
	feed(ctx, t, c, "in", 1)
	member := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))
	if fs := member.PollFetches(ctx); fs.NumRecords() != 1 {
		t.Fatalf("%d records, %v", fs.NumRecords(), fs.Errors())
	}
	if s, _, count, _ := c.StateOf("g", "in", 0, 0); s != share.Acquired || count != 1 {
		t.Fatalf("the record is %v, delivered %d times", s, count)
	}
	// Nobody fetches from the new leader until the state was looked at.
	looked := make(chan struct{})
	c.SetIntercept(func(r Request) Action {
		if r.Key == keyShareFetch && r.Node == 1 {
			return Action{Wait: looked}
		}
		return Action{}
	})
	if err := c.MoveLeader("in", 0, 1); err != nil {
		t.Fatal(err)
	}
	if s, _, _, ok := c.StateOf("g", "in", 0, 0); ok && s != share.Available {
		t.Errorf("the record is %v after the move", s)
	}
	close(looked)
	if fs := member.PollFetches(ctx); fs.NumRecords() != 1 {
		t.Fatalf("%d records after the move, %v", fs.NumRecords(), fs.Errors())
	}
}
