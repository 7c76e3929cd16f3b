package shareconsumer

import (
	"context"
	"errors"
	"log/slog"
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

// warnings counts what is logged at Warn and above.
type warnings struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (w *warnings) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

func (w *warnings) Handle(_ context.Context, r slog.Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, r.Message)
	return nil
}

// A share partition that is not initialised yet answers so for a moment: it is
// asked again, nobody is told, and its neighbour on the broker does not wait for it.
func TestUninitialisedPartitionIsWaitedForQuietly(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startClusterWith(t, 25*time.Second, func(cfg *broker.Config) { cfg.Brokers, cfg.Topics = 1, map[string]int32{"in": 2} })
	w := &warnings{Handler: slog.DiscardHandler}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(c.Seeds()...)), sharetxn.Logger(slog.New(w)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	var mu sync.Mutex
	refused, ready := 0, false
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyShareFetch {
			return broker.Action{}
		}
		return broker.Action{After: func(resp kmsg.Response) {
			mu.Lock()
			defer mu.Unlock()
			answer := resp.(*kmsg.ShareFetchResponse)
			if ready || answer.ErrorCode != 0 {
				return
			}
			refused++
			topic := kmsg.NewShareFetchResponseTopic()
			topic.TopicID = c.TopicID("in")
			for _, have := range answer.Topics {
				for _, p := range have.Partitions {
					if p.Partition != 1 {
						topic.Partitions = append(topic.Partitions, p)
					}
				}
			}
			p := kmsg.NewShareFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.Records = 1, kerr.UnknownServerError.Code, []byte{}
			topic.Partitions = append(topic.Partitions, p)
			answer.Topics = []kmsg.ShareFetchResponseTopic{topic}
		}}
	})
	c.put(ctx, t, "in", 0, "a")
	m, err := New(cl, "g", Topics("in"), MaxWait(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	accept(ctx, t, m, 1)
	if b, err := m.Poll(short(ctx, t)); b != nil || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", b, err)
	}
	mu.Lock()
	if refused < 2 {
		t.Errorf("refused %d times", refused)
	}
	ready = true
	mu.Unlock()
	c.put(ctx, t, "in", 1, "b")
	accept(ctx, t, m, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.all) > 0 {
		t.Errorf("logged: %q", w.all)
	}
}

// A broker that does not lead refuses acknowledgements with
// UNKNOWN_TOPIC_OR_PARTITION and names nobody: it is not asked again, the leader
// is looked for, and the records come again from it.
func TestAcknowledgementAtABrokerThatDoesNotLead(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 1, 1)
	m := c.consumer(t)
	b := poll(ctx, t, m)
	r := b.Records()[0]
	from := c.Leader("in", 0)
	to := (from + 1) % 3
	var mu sync.Mutex
	asked, looked := 0, 0
	c.SetIntercept(func(r broker.Request) broker.Action {
		mu.Lock()
		defer mu.Unlock()
		switch req := r.Message().(type) {
		case *kmsg.ShareAcknowledgeRequest:
			if req.ShareSessionEpoch < 0 || r.Node != from {
				return broker.Action{}
			}
			asked++
			return broker.Action{After: func(resp kmsg.Response) {
				p := &resp.(*kmsg.ShareAcknowledgeResponse).Topics[0].Partitions[0]
				p.ErrorCode, p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = kerr.UnknownTopicOrPartition.Code, 0, 0
			}}
		case *kmsg.MetadataRequest:
			looked += min(asked, 1)
		}
		return broker.Action{}
	})
	if err := c.MoveLeader("in", 0, to); err != nil {
		t.Fatal(err)
	}
	r.Accept()
	if err := b.CommitSync(ctx); !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, sharetxn.ErrStale) {
		t.Fatalf("CommitSync: %v", err)
	}
	if r.Held() {
		t.Error("the record is held still")
	}
	accept(ctx, t, m, 1)
	c.waitDone(ctx, t, 1)
	mu.Lock()
	defer mu.Unlock()
	if asked != 1 || looked == 0 {
		t.Errorf("the old leader was asked %d times, metadata then %d times", asked, looked)
	}
}
