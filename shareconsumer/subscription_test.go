package shareconsumer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends a request of another client.
func (c *cluster) ask(ctx context.Context, t *testing.T, req kmsg.Request) kmsg.Response {
	t.Helper()
	k, err := c.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	resp, err := k.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

func (c *cluster) deleteTopic(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	del := kmsg.NewPtrDeleteTopicsRequest()
	topic := kmsg.NewDeleteTopicsRequestTopic()
	topic.Topic = &name
	del.Topics, del.TopicNames, del.TimeoutMillis = append(del.Topics, topic), []string{name}, 5000
	if code := c.ask(ctx, t, del).(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("deleting: %d", code)
	}
}

// put produces one record to a partition.
func (c *cluster) put(ctx context.Context, t *testing.T, topic string, partition int32, value string) {
	t.Helper()
	p, err := c.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// slowBeats makes heartbeats so rare that only those that are asked for come
// within the test.
func slowBeats(cfg *broker.Config) { cfg.HeartbeatInterval = time.Minute }

// A changed subscription is told at once, the topics only; the new topic's
// records come, none of the other's, and what was polled is decided as always.
func TestSetTopics(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startClusterWith(t, 25*time.Second, slowBeats)
	if err := c.CreateTopic("other", 1); err != nil {
		t.Fatal(err)
	}
	c.feedTo(ctx, t, 1, 1)
	var b beats
	b.watch(c)
	var mu sync.Mutex
	var told map[string][]int32
	m := c.consumer(t, ClientRack("r1"), OnAssigned(func(a map[string][]int32) {
		mu.Lock()
		defer mu.Unlock()
		told = a
	}))
	held := gather(ctx, t, m, 1)[0]
	c.put(ctx, t, "other", 0, "x")
	if err := m.SetTopics("other", "other"); err != nil {
		t.Fatal(err)
	}
	if r := gather(ctx, t, m, 1)[0]; r.Topic != "other" || string(r.Value) != "x" {
		t.Fatalf("%s came", where(r))
	}
	mu.Lock()
	if len(told) != 1 || !slices.Equal(told["other"], []int32{0}) {
		t.Errorf("assigned %v", told)
	}
	mu.Unlock()
	b.mu.Lock()
	changed := slices.IndexFunc(b.seen, func(r *kmsg.ShareGroupHeartbeatRequest) bool {
		return slices.Equal(r.SubscribedTopicNames, []string{"other"})
	})
	if changed < 1 || b.seen[changed].RackID != nil || b.seen[changed].MemberEpoch < 1 {
		t.Errorf("heartbeats %+v", b.seen)
	}
	b.mu.Unlock()
	testkit.Eventually(ctx, t, "fetches of the topic before have ended", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		for _, s := range m.sessions {
			if s.fetches {
				return false
			}
		}
		return true
	})
	c.feed(ctx, t, 3)
	if more, _ := m.Poll(short(ctx, t)); more != nil {
		t.Errorf("%s came though it is not subscribed to any more", where(more.Records()[0]))
	}
	held.Accept()
	if err := held.batch.CommitSync(ctx); err != nil {
		t.Error(err)
	}
	for _, bad := range [][]string{{}, {""}, {"a", ""}} {
		if err := m.SetTopics(bad...); !errors.Is(err, sharetxn.ErrUsage) {
			t.Errorf("SetTopics(%q): %v", bad, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.SetTopics("in"); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("SetTopics after Close: %v", err)
	}
}

// Before the first Poll nobody is told: the member joins with what was set last.
func TestSetTopicsBeforeJoining(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var b beats
	b.watch(c)
	m, err := New(c.cl, "g", Topics("nowhere"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	if err := m.SetTopics("in"); err != nil {
		t.Fatal(err)
	}
	gather(ctx, t, m, 1)
	b.mu.Lock()
	defer b.mu.Unlock()
	if first := b.seen[0]; !slices.Equal(first.SubscribedTopicNames, []string{"in"}) || first.MemberEpoch != 0 {
		t.Fatalf("joined with %+v", first)
	}
}

// A topic that is deleted and created again has another id: what was held of the
// old one is lost, and says so; what is in the new one comes.
func TestTopicRecreated(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	m := c.consumer(t)
	old := gather(ctx, t, m, 1)[0]
	c.deleteTopic(ctx, t, "in")
	if err := c.CreateTopic("in", 3); err != nil {
		t.Fatal(err)
	}
	for p := range int32(3) {
		c.put(ctx, t, "in", p, "new")
	}
	for n := 0; n < 3; {
		b, err := m.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records() {
			if n++; r.TopicID != c.TopicID("in") || r.TopicID == old.TopicID || string(r.Value) != "new" {
				t.Errorf("%s of topic id %x", where(r), r.TopicID)
			}
		}
		b.AcceptRest()
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(ctx, t, "the old one's is lost", func() bool { return !old.Held() })
	old.Accept()
	if err := old.batch.CommitSync(ctx); !errors.Is(err, sharetxn.ErrStale) {
		t.Errorf("the old one's record: %v", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.topics) != 1 {
		t.Errorf("ids known: %x", m.topics)
	}
}

// The assignment may name partitions that metadata does not tell of yet: they
// wait, metadata is asked for, and they are fetched from when it is known.
func TestPartitionsAdded(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var as assignments
	m := c.consumer(t, OnAssigned(as.told))
	gather(ctx, t, m, 1)
	release, asked := make(chan struct{}), make(chan struct{}, 100)
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == 3 && len(r.Message().(*kmsg.MetadataRequest).Topics) == 1 {
			select {
			case asked <- struct{}{}:
			default: // enough
			}
			return broker.Action{Wait: release}
		}
		return broker.Action{}
	})
	req := kmsg.NewPtrCreatePartitionsRequest()
	more := kmsg.NewCreatePartitionsRequestTopic()
	more.Topic, more.Count = "in", 5
	req.Topics, req.TimeoutMillis = append(req.Topics, more), 5000
	if code := c.ask(ctx, t, req).(*kmsg.CreatePartitionsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatalf("adding: %d", code)
	}
	testkit.Eventually(ctx, t, "five are assigned", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.assigned) == 5
	})
	select {
	case <-asked:
	case <-ctx.Done():
		t.Fatal("metadata was not asked for")
	}
	if got := as.last(); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("told of %v before it is known who leads them", got)
	}
	close(release)
	c.put(ctx, t, "in", 4, "x")
	if r := gather(ctx, t, m, 1)[0]; r.Partition != 4 {
		t.Errorf("%s came", where(r))
	}
	if got := as.last(); !slices.Equal(got, []int32{0, 1, 2, 3, 4}) {
		t.Errorf("assigned %v", got)
	}
}

// notes is a log to look into.
type notes struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(p)
}

func (n *notes) has(text string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Contains(n.b.String(), text)
}

func (n *notes) count(text string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.b.String(), text)
}

// logging is another sharetxn.Cluster, whose warnings go to log.
func (c *cluster) logging(t *testing.T, log *notes) *sharetxn.Cluster {
	t.Helper()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(c.Seeds()...)), sharetxn.Logger(slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn}))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// A topic that does not exist is told of once, also to two members; it is
// consumed from when it is there, and told of again only when it has vanished. The
// other topic's records come all the while, and nothing is told of it.
func TestTopicMissing(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var log notes
	cl := c.logging(t, &log)
	member := func(topics ...string) *Consumer {
		m, err := New(cl, "g", Topics(topics...), AcknowledgementMode(Implicit), MaxWait(100*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		return m
	}
	const told = "a topic does not exist; create it, or mend its name\" topic="
	m := member("in", "late")
	gather(ctx, t, m, 1)
	testkit.Eventually(ctx, t, "the missing topic is told", func() bool { return log.count(told+"late") == 1 })
	if err := c.CreateTopic("late", 1); err != nil {
		t.Fatal(err)
	}
	c.put(ctx, t, "late", 0, "x")
	if r := gather(ctx, t, m, 1)[0]; r.Topic != "late" {
		t.Fatalf("%s came", where(r))
	}
	if n := log.count(told + "late"); n != 1 {
		t.Errorf("told %d times before it was there", n)
	}
	c.deleteTopic(ctx, t, "late")
	testkit.Eventually(ctx, t, "the vanished topic is told", func() bool { return log.count(told+"late") == 2 })
	other := member("in", "late", "typo")
	short, cancel := context.WithCancel(ctx)
	polled := make(chan struct{})
	go func() { defer close(polled); _, _ = other.Poll(short) }()
	testkit.Eventually(ctx, t, "what only the second misses is told", func() bool { return log.count(told+"typo") == 1 })
	cancel()
	<-polled
	if n := log.count(told); n != 3 || log.has(told+"in\n") {
		t.Errorf("told %d times: %s", n, log.b.String())
	}
}

// A group that is deleted under its member is joined again, with a warning.
func TestGroupDeleted(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 25*time.Second)
	c.feedTo(ctx, t, 1, 1)
	var log notes
	m, err := New(c.logging(t, &log), "g", Topics("in"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	gather(ctx, t, m, 1)
	refused := c.refuseBeats(1, kerr.GroupIDNotFound.Code)
	gather(ctx, t, m, 1)
	if refused.Load() != 1 || !log.has("level=WARN") || !log.has("must rejoin") || !log.has("GROUP_ID_NOT_FOUND") {
		t.Errorf("refused %d times; the log has %s", refused.Load(), log.b.String())
	}
}
