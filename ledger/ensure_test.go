package ledger_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Ensure makes a ledger as wide as the widest source, in generation 1, whoever
// calls it and how often; and widens it when a source is widened.
func TestEnsure(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Brokers: 3, Topics: map[string]int32{"a": 2, "b": 5}, OffsetReset: "earliest"})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			if err := ledger.Ensure(ctx, w.cl, group, []string{"a", "b"}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	want := slices.Repeat([]entry.Generation{active(1, ledger.Ledger)}, 5)
	if got := w.generations(ctx, t); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
	w.write(ctx, t, active(7, ledger.Ledger), 0, 1, 2, 3, 4)
	if _, err := w.adm.UpdatePartitions(ctx, 6, "a"); err != nil {
		t.Fatal(err)
	}
	member := w.member(ctx, t, "a")
	w.feed(ctx, t, "a", 0, 1)
	w.joined(ctx, t, member)
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a", "b"}); err != nil {
		t.Errorf("widening beside a member: %v", err)
	}
	want = slices.Repeat([]entry.Generation{active(7, ledger.Ledger)}, 6)
	if got := w.generations(ctx, t); !slices.Equal(got, want) {
		t.Errorf("widened: %+v", got)
	}
}

// What stands against a ledger is told, with the next step, and nothing is written.
func TestEnsureRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		begin []entry.Generation // by partition; zero: none
		want  error
		says  string
	}{
		"resetting":     {[]entry.Generation{resetting(2), resetting(2)}, ledger.ErrResetting, "sharetxn ledger reset"},
		"mixed":         {[]entry.Generation{active(1, ledger.Ledger), active(2, ledger.Ledger)}, ledger.ErrMixed, "sharetxn ledger reset"},
		"staged":        {[]entry.Generation{active(1, ledger.Staged), active(1, ledger.Staged)}, ledger.ErrGuarantee, "sharetxn ledger move"},
		"staged, wider": {[]entry.Generation{active(1, ledger.Staged), {}}, ledger.ErrGuarantee, "sharetxn ledger move"},
	} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, broker.Config{Topics: map[string]int32{"a": 2, ledger.TopicName(group): 2}})
		for p, g := range tc.begin {
			if g != (entry.Generation{}) {
				w.write(ctx, t, g, int32(p))
			}
		}
		err := ledger.Ensure(ctx, w.cl, group, []string{"a"})
		if !errors.Is(err, tc.want) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
		if got := w.generations(ctx, t); !slices.Equal(got, tc.begin) {
			t.Errorf("%s: %+v written", name, got)
		}
	}
}

// A group's first ledger needs it without members: those who are there work
// without entries.
func TestEnsureBesideMembers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 2}, OffsetReset: "earliest"})
	w.feed(ctx, t, "a", 0, 1)
	member := w.member(ctx, t, "a")
	w.joined(ctx, t, member)
	err := ledger.Ensure(ctx, w.cl, group, []string{"a"})
	who, ok := errors.AsType[*ledger.GroupNotEmptyError](err)
	if !ok || !errors.Is(err, ledger.ErrGroupNotEmpty) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || who.Group != group || len(who.Members) != 1 ||
		!strings.Contains(err.Error(), member.ShareGroupMetadata().MemberID()) {
		t.Errorf("with a member: %v", err)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, make([]entry.Generation, 2)) {
		t.Errorf("%+v written", got)
	}
	if err := member.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a"}); err != nil {
		t.Errorf("without: %v", err)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(1, ledger.Ledger)}, 2)) {
		t.Errorf("%+v", got)
	}
}

// A source topic that was just made may be unknown to all brokers; a moment later
// it is not.
func TestEnsureBehindTheSource(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Brokers: 3, Topics: map[string]int32{"a": 2}})
	var asked atomic.Int32
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.MetadataRequest)
		if !ok || len(m.Topics) != 1 || *m.Topics[0].Topic != "a" || asked.Add(1) > 5 {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.MetadataResponse)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = m.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		resp.Topics = append(resp.Topics, rt)
		return broker.Action{Answer: resp}
	})
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a"}); err != nil {
		t.Error(err)
	}
	if n := asked.Load(); n <= 5 {
		t.Errorf("asked %d times", n)
	}
	if got := w.generations(ctx, t); !slices.Equal(got, slices.Repeat([]entry.Generation{active(1, ledger.Ledger)}, 2)) {
		t.Errorf("%+v", got)
	}
}

// A context that ends while a source topic is waited for does not say that it does
// not exist.
func TestEnsureCutShort(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{})
	brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	err := ledger.Ensure(brief, w.cl, group, []string{"none"})
	if !errors.Is(err, context.DeadlineExceeded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || strings.Contains(err.Error(), "does not exist") {
		t.Errorf("cut short: %v", err)
	}
	if err := ledger.Ensure(ctx, w.cl, group, []string{"none"}); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("waited for: %v", err)
	}
}

// On a cluster that never had a group the coordinator is about to come.
func TestEnsureBeforeTheCoordinator(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 1}})
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.b.Seeds()...), kgo.RequestRetries(1), kgo.RetryBackoffFn(func(int) time.Duration { return time.Millisecond })))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	const describe = 77
	asked := make(chan struct{}, 1000)
	away := func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareGroupDescribeRequest)
		if r.Key != describe || !ok {
			return broker.Action{}
		}
		asked <- struct{}{}
		resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
		g := kmsg.NewShareGroupDescribeResponseGroup()
		g.GroupID, g.ErrorCode = group, kerr.CoordinatorNotAvailable.Code
		resp.Groups = append(resp.Groups, g)
		return broker.Action{Answer: resp}
	}
	w.b.SetIntercept(away)
	short, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- ledger.Ensure(short, cl, group, []string{"a"}) }()
	const calls = 5 // of a request that is sent twice
	for range 2 * calls {
		<-asked
	}
	stop()
	if err := <-done; err == nil || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
		t.Errorf("no more patience: %v", err)
	}
	go func() { done <- ledger.Ensure(ctx, cl, group, []string{"a"}) }()
	for range 2 * calls {
		<-asked
	}
	w.b.SetIntercept(nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Mistakes are told before anything is sent, or say what to create.
func TestEnsureMistakes(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 2}})
	for name, tc := range map[string]struct {
		group  string
		topics []string
		opts   []ledger.EnsureOpt
		class  sharetxn.Class
		says   string
	}{
		"no group":       {"", []string{"a"}, nil, sharetxn.ClassUsage, "group: empty"},
		"group's name":   {"a b", []string{"a"}, nil, sharetxn.ClassUsage, "use another group"},
		"no topics":      {group, nil, nil, sharetxn.ClassUsage, "topics: none"},
		"an empty topic": {group, []string{"a", ""}, nil, sharetxn.ClassUsage, "topics: an empty name"},
		"the ledger":     {group, []string{"__sharetxn_ledger.g"}, nil, sharetxn.ClassUsage, "is the ledger itself"},
		"no replicas":    {group, []string{"a"}, []ledger.EnsureOpt{ledger.ReplicationFactor(0)}, sharetxn.ClassUsage, "ReplicationFactor: 0"},
		"many replicas":  {group, []string{"a"}, []ledger.EnsureOpt{ledger.ReplicationFactor(2)}, sharetxn.ClassUsage, "not so many brokers"},
		"no such topic":  {group, []string{"a", "z"}, nil, sharetxn.ClassAbortable, "source topic z does not exist"},
	} {
		err := ledger.Ensure(ctx, w.cl, tc.group, tc.topics, tc.opts...)
		if sharetxn.ClassOf(err) != tc.class || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v (class %v)", name, err, sharetxn.ClassOf(err))
		}
	}
	if err := ledger.Ensure(ctx, nil, group, []string{"a"}); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("no cluster: %v", err)
	}
	if w.b.TopicID(ledger.TopicName(group)) != [16]byte{} {
		t.Error("a topic was made")
	}
	if err := ledger.Ensure(ctx, w.cl, group, []string{"a"}, ledger.ReplicationFactor(1)); err != nil {
		t.Errorf("beside them: %v", err)
	}
}
