package shareconsumer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// forgotten gives a cluster whose partitions 0 and 1 have one leader, and a
// member that holds three records of the second, which its session has
// forgotten, and then one of the first.
func forgotten(t *testing.T, opts ...Opt) (c *cluster, m *Consumer, rs []*Record) {
	t.Helper()
	ctx := testkit.Deadline(t, 30*time.Second)
	c = startCluster(t, 25*time.Second)
	node := c.Leader("in", 0)
	if err := c.MoveLeader("in", 1, node); err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"a", "b", "c"} {
		c.put(ctx, t, "in", 1, value)
	}
	m = c.consumer(t, append([]Opt{MaxPollRecords(1)}, opts...)...)
	rs = gather(ctx, t, m, 3)
	forgot := c.onKey(keyShareFetch, 1, func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareFetchRequest); !ok || len(req.ForgottenTopicsData) == 0 {
			return broker.Action{}
		}
		return broker.Action{After: func(kmsg.Response) {}}
	})
	m.Pause("in", 1)
	c.put(ctx, t, "in", 0, "d")
	rs = append(rs, gather(ctx, t, m, 1)...)
	if forgot.Load() != 1 {
		t.Fatal("the partition was not forgotten")
	}
	return c, m, rs
}

// What a member holds of a partition that its session has forgotten goes to
// others at once when it ends, as what it holds of the session does: the end of
// a session alone leaves it locked.
func TestEndsGiveForgottenPartitionsBack(t *testing.T) {
	for name, end := range map[string]func(m *Consumer) error{
		"Close":           func(m *Consumer) error { return m.Close() },
		"MaxPollInterval": func(*Consumer) error { return nil }, // nobody polls
		"fenced": func(m *Consumer) error {
			m.fenced(errRestarted)
			return nil
		},
		"session lost": func(m *Consumer) error {
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, s := range m.sessions {
				s.restart = true
			}
			m.wakeSessions()
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []Opt
			if name == "MaxPollInterval" {
				opts = append(opts, MaxPollInterval(500*time.Millisecond))
			}
			c, m, rs := forgotten(t, opts...)
			ctx := testkit.Deadline(t, 20*time.Second)
			rs[0].Accept()
			if err := rs[0].batch.CommitSync(ctx); err != nil {
				t.Fatal(err)
			}
			rs[1].Accept() // and not committed: nobody has sent it
			if err := end(m); err != nil {
				t.Fatal(err)
			}
			if name == "fenced" || name == "session lost" {
				m.Pause("in") // or it fetches them again
			}
			testkit.Eventually(ctx, t, "all but the one that was accepted are available", func() bool {
				done, av, ac, _ := c.totals()
				return done == 1 && av == 3 && ac == 0
			})
		})
	}
}

// What a transaction holds is not released by the end of a session, also of a
// partition that it has forgotten: it may have been staged.
func TestEndsReleaseNothingThatATransactionHolds(t *testing.T) {
	c, m, rs := forgotten(t, AcknowledgementMode(Transactional))
	testkit.Deadline(t, 20*time.Second)
	released := make(chan string, 10)
	c.SetIntercept(func(r broker.Request) broker.Action {
		if req, ok := r.Message().(*kmsg.ShareAcknowledgeRequest); ok {
			for _, topic := range req.Topics {
				for _, p := range topic.Partitions {
					for _, b := range p.AcknowledgementBatches {
						released <- fmt.Sprintf("%d: %d-%d %v", p.Partition, b.FirstOffset, b.LastOffset, acks.Type(b.AcknowledgeTypes[0]))
					}
				}
			}
		}
		return broker.Action{}
	})
	if err := (handle{rs[0].batch}).Hold(); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	close(released)
	var got []string
	for r := range released {
		got = append(got, r)
	}
	if want := fmt.Sprintf("1: 1-2 %v", acks.Release); len(got) != 1 || got[0] != want {
		t.Errorf("released %v, want %s", got, want)
	}
}

// What is given back is what nobody has decided: what is not decoded, what waits to
// be polled and what is in open batches, of locks that have not ended.
func TestGiveBack(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c, s := bookkeeper()
	c.gave(leaseOf(s, 0, 1, 2, 3))
	polled := c.handOut(time.Now())
	settled := polled.split(polled.records[:1])
	held := polled.split(polled.records[:1])
	settled.settle()
	held.state = frozen
	c.gave(leaseOf(s, 5, 6, 8))
	s.acquired(acks.TopicIDPartition{TopicID: [16]byte{1}, Topic: "in"}, nil, []span{{10, 12, 1}}, time.Now(), time.Hour)
	late := leaseOf(s, 20, 21)
	late.deadline = time.Now().Add(-time.Second)
	c.gave(late)
	c.giveBack(errRestarted, func(*lease) bool { return true })
	runs := []acks.Run{{First: 2, Last: 3, Type: acks.Release}, {First: 5, Last: 6, Type: acks.Release}, {First: 8, Last: 8, Type: acks.Release}, {First: 10, Last: 12, Type: acks.Release}}
	if len(s.back) != 1 || !slices.Equal(s.back[0].runs, runs) {
		t.Fatalf("given back %+v, want %v", s.back, runs)
	}
	if c.giveBack(errRestarted, func(*lease) bool { return true }); !slices.Equal(s.back[0].runs, runs) {
		t.Errorf("given back twice: %v", s.back[0].runs)
	}
	s.inside[keyOf(s.back[0].tp)] = entrant{tp: s.back[0].tp}
	if s.forgetSession(); len(s.back) != 0 {
		t.Errorf("the session's end releases it by itself, and %v is left", s.back)
	}
}
