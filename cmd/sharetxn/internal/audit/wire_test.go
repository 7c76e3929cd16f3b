package audit

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// history is a run made by hand, with kgo's own clients, so that it can be
// spoiled in any way.
type history struct {
	*broker.Cluster
	cfg Config
}

func newHistory(t *testing.T) *history {
	t.Helper()
	c, err := broker.Start(broker.Config{
		Brokers: 3, Topics: map[string]int32{"in": 3, "out": 3, "alerts": 3, "dead": 3}, HeartbeatInterval: 50 * time.Millisecond,
		GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	h := &history{Cluster: c, cfg: Config{Seeds: c.Seeds(), Group: "g", Topics: names}}
	for _, line := range []string{small, large, blast, small, "no JSON"} {
		h.cfg.Input = append(h.cfg.Input, []byte(line))
	}
	h.cfg.Inside = func(context.Context) (in Inside, err error) {
		for _, p := range c.PartitionStates("g") {
			in.Staged += p.Pending
		}
		return in, nil
	}
	return h
}

func (h *history) client(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(h.Seeds()...), kgo.DisableClientMetrics()}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (h *history) feed(ctx context.Context, t *testing.T) {
	t.Helper()
	cl := h.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	var rs []*kgo.Record
	for i, line := range h.cfg.Input {
		rs = append(rs, &kgo.Record{Topic: "in", Partition: int32(i % 2), Value: line}) // partition 2 stays empty
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func (h *history) waitMembers(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	adm := kadm.NewClient(h.client(t))
	testkit.Eventually(ctx, t, fmt.Sprintf("%d members in the group", n), func() bool {
		g, err := adm.DescribeShareGroups(ctx, "g")
		return err == nil && len(g["g"].Members) == n
	})
}

// share acknowledges all records but the last ones left.
func (h *history) share(ctx context.Context, t *testing.T, left int) {
	t.Helper()
	cl := h.client(t, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"), kgo.FetchMaxWait(50*time.Millisecond))
	for n := 0; n < len(h.cfg.Input); {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			n++
			if n > len(h.cfg.Input)-left {
				r.Ack(kgo.AckRelease)
			} else {
				r.Ack(kgo.AckAccept)
			}
		})
	}
	if err := cl.FlushAcks(ctx); err != nil {
		t.Fatal(err)
	}
	cl.LeaveGroup()
	cl.Close()
}

// outputs of the input, right.
func (h *history) outputs() (rs []*kgo.Record) {
	for _, line := range h.cfg.Input {
		r := quake.Transform(line)
		if r.Rejected() {
			rs = append(rs, &kgo.Record{Topic: "dead", Value: line, Headers: []kgo.RecordHeader{{Key: ReasonHeader, Value: []byte(r.Reason)}}})
			continue
		}
		rs = append(rs, &kgo.Record{Topic: "out", Key: r.Key, Value: r.Enriched})
		if r.Alert != nil {
			rs = append(rs, &kgo.Record{Topic: "alerts", Key: r.Key, Value: r.Alert})
		}
	}
	return rs
}

// transact produces in one transaction and ends it, or leaves it open.
func (h *history) transact(ctx context.Context, t *testing.T, end func(context.Context, *kgo.Client) error, rs ...*kgo.Record) {
	t.Helper()
	cl := h.client(t, kgo.TransactionalID(fmt.Sprintf("t%d", len(h.Transactions()))))
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := cl.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := end(ctx, cl); err != nil {
		t.Fatal(err)
	}
}

func commit(ctx context.Context, cl *kgo.Client) error {
	return cl.EndTransaction(ctx, kgo.TryCommit)
}

func abort(ctx context.Context, cl *kgo.Client) error {
	return cl.EndTransaction(ctx, kgo.TryAbort)
}

func leaveOpen(context.Context, *kgo.Client) error { return nil }

// The audit over the wire: a right history, with aborted outputs and a
// transaction each of commit and abort in the logs, and each way to spoil it.
func TestRun(t *testing.T) {
	for name, c := range map[string]struct {
		left  int // records that are not acknowledged
		spoil func(context.Context, *testing.T, *history)
		says  []string
	}{
		"right": {},
		"a duplicate": {
			spoil: func(ctx context.Context, t *testing.T, h *history) { h.transact(ctx, t, commit, h.outputs()[0]) },
			says:  []string{"the members report 1 commits, the logs hold markers of 2", "topic out: 1 duplicate"},
		},
		"an extra alert": {
			spoil: func(ctx context.Context, t *testing.T, h *history) {
				if err := h.client(t).ProduceSync(ctx, &kgo.Record{Topic: "alerts", Value: []byte("flood")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			},
			says: []string{"topic alerts: 1 unexpected"},
		},
		"an input more than outputs": {
			spoil: func(_ context.Context, _ *testing.T, h *history) { h.cfg.Input = append(h.cfg.Input, []byte(large)) },
			says:  []string{"topic alerts: 1 missing", "topic in: 1 missing", "topic out: 1 missing"},
		},
		"a record not acknowledged": {
			left: 1,
			says: []string{"records are not done for the group"},
		},
		"an open transaction": {
			spoil: func(ctx context.Context, t *testing.T, h *history) { h.transact(ctx, t, leaveOpen, h.outputs()[0]) },
			says:  []string{"1 transactions are still open", "the last stable offset is below the high watermark"},
		},
		"another's open transaction": {
			spoil: func(ctx context.Context, t *testing.T, h *history) {
				if err := h.CreateTopic("theirs", 1); err != nil {
					t.Fatal(err)
				}
				h.transact(ctx, t, leaveOpen, &kgo.Record{Topic: "theirs"})
				if h.cfg.Ours = "ours"; len(h.Transactions()) != 3 {
					t.Fatalf("transactions %v", h.Transactions())
				}
			},
		},
		"a member that stays": {
			spoil: func(ctx context.Context, t *testing.T, h *history) {
				cl := h.client(t, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))
				joined, cancel := context.WithCancel(ctx)
				polled := make(chan struct{})
				go func() { defer close(polled); cl.PollFetches(joined) }() // joins
				t.Cleanup(func() { cancel(); <-polled })
				h.waitMembers(ctx, t, 1)
			},
			says: []string{"1 members are still in the group"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			h := newHistory(t)
			h.feed(ctx, t)
			h.share(ctx, t, c.left)
			h.transact(ctx, t, abort, h.outputs()...)
			h.transact(ctx, t, commit, h.outputs()...)
			h.cfg.Commits = 1
			if c.spoil != nil {
				c.spoil(ctx, t, h)
			}
			r, err := Run(ctx, h.cfg)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Wrong) != len(c.says) {
				t.Fatalf("says %q, want %q", r.Wrong, c.says)
			}
			for i, say := range c.says {
				if !slices.ContainsFunc(r.Wrong, func(w string) bool { return strings.Contains(w, say) }) {
					t.Errorf("%d: says %q, want %q", i, r.Wrong, say)
				}
			}
			if r.Aborts != 1 || r.Commits == 0 || r.Accepted != 3 || r.Rejected != 2 || r.Alerts != 1 {
				t.Errorf("%+v", r)
			}
		})
	}
}

// A group that never was is not a failed audit, but a finding.
func TestNoGroup(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	h := newHistory(t)
	h.feed(ctx, t)
	h.transact(ctx, t, commit, h.outputs()...)
	h.cfg.Commits = 1
	r, err := Run(ctx, h.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"source partition 0: the group never read its 3 records", "source partition 1: the group never read its 2 records"}; !slices.Equal(r.Wrong, want) || r.Lag != 5 {
		t.Errorf("says %q, lag %d", r.Wrong, r.Lag)
	}
}

// A cluster that cannot be asked gives an error, never a verdict.
func TestUnreachable(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	h := newHistory(t)
	h.feed(ctx, t)
	for n := range int32(3) {
		h.StopNode(n)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if r, err := Run(short, h.cfg); err == nil {
		t.Fatalf("judged without a broker: %+v", r)
	}
}
