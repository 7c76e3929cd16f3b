package topic_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/ledger/rules"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsets(at int64) kadm.Offsets {
	o := make(kadm.Offsets)
	o.AddOffset(topic.Name(group), 0, at, -1)
	return o
}

// forbid refuses what the ledger's client asks of topics.
func forbid(r broker.Request) broker.Action {
	switch m := r.Message().(type) {
	case *kmsg.FetchRequest:
		resp := m.ResponseKind().(*kmsg.FetchResponse)
		for _, t := range m.Topics {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return broker.Action{Answer: resp}
	case *kmsg.ProduceRequest:
		resp := m.ResponseKind().(*kmsg.ProduceResponse)
		for _, t := range m.Topics {
			rt := kmsg.NewProduceResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewProduceResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return broker.Action{Answer: resp}
	case *kmsg.CreateTopicsRequest:
		resp := m.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic, rt.ErrorCode = m.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, rt)
		return broker.Action{Answer: resp}
	case *kmsg.CreatePartitionsRequest:
		resp := m.ResponseKind().(*kmsg.CreatePartitionsResponse)
		rt := kmsg.NewCreatePartitionsResponseTopic()
		rt.Topic, rt.ErrorCode = m.Topics[0].Topic, kerr.TopicAuthorizationFailed.Code
		resp.Topics = append(resp.Topics, rt)
		return broker.Action{Answer: resp}
	}
	return broker.Action{}
}

func forbidden(t *testing.T, what string, err error, grant string) {
	t.Helper()
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), grant) {
		t.Errorf("%s: %v, want %q", what, err, grant)
	}
}

func (w *world) configs(ctx context.Context, t *testing.T) map[string]string {
	t.Helper()
	got, err := w.adm.DescribeTopicConfigs(ctx, topic.Name(group))
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, c := range got[0].Configs {
		out[c.Key] = c.MaybeValue()
	}
	return out
}

func (w *world) info(ctx context.Context, t *testing.T) topic.Info {
	t.Helper()
	infos, errs, err := topic.Describe(ctx, w.cl, topic.Name(group))
	if err != nil || len(errs) > 0 {
		t.Fatal(err, errs)
	}
	return infos[0]
}

// The topic is made with what it needs, by whoever is first, and widened; it keeps
// the configs it has, and does not become narrower.
func TestMake(t *testing.T) {
	for nodes, want := range map[int]struct {
		replicas int
		insync   string
	}{1: {1, "1"}, 2: {2, "1"}, 3: {3, "2"}, 4: {3, "2"}} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, broker.Config{Brokers: nodes})
		var wg sync.WaitGroup
		for partitions := 1; partitions <= 8; partitions++ {
			wg.Go(func() {
				if err := topic.Make(ctx, w.cl, group, partitions, 0); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got := w.info(ctx, t); got.Partitions != 8 || got.Replicas != want.replicas || len(got.Brokers) != nodes {
			t.Errorf("%d nodes: %+v", nodes, got)
		}
		got := w.configs(ctx, t)
		if got["segment.bytes"] != "16777216" {
			t.Errorf("%d nodes: the log's files have %s bytes", nodes, got["segment.bytes"])
		}
		for name, value := range rules.TopicConfigs(want.replicas) {
			if got[name] != value {
				t.Errorf("%d nodes: %s=%s, want %s", nodes, name, got[name], value)
			}
		}
		if got["min.insync.replicas"] != want.insync {
			t.Errorf("%d nodes: %s in sync", nodes, got["min.insync.replicas"])
		}
		other := "604800000"
		if _, err := w.adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &other}}, topic.Name(group)); err != nil {
			t.Fatal(err)
		}
		for _, partitions := range []int{9, 3} {
			if err := topic.Make(ctx, w.cl, group, partitions, 1); err != nil {
				t.Errorf("%d nodes: again with %d partitions: %v", nodes, partitions, err)
			}
			if got := w.info(ctx, t); got.Partitions != 9 || w.configs(ctx, t)["retention.ms"] != other {
				t.Errorf("%d nodes: after %d partitions: %+v, %v", nodes, partitions, got, w.configs(ctx, t))
			}
		}
	}
}

// A topic is described by who knows most of it, whoever is asked first; under two
// ids it is two topics, and nobody can tell which is the newer.
func TestDescribeWhileBrokersAreBehind(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Brokers: 3, Topics: map[string]int32{"a": 4, "b": 2}})
	live, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, w.cl)
	if err != nil {
		t.Fatal(err)
	}
	const refuses = -1
	for name, tc := range map[string]struct {
		shown [3]int  // how many partitions of a nodes show, but for 4
		anew  [3]bool // nodes that show it with another id
		want  int
		errs  error
		err   error
	}{
		"all know":             {shown: [3]int{4, 4, 4}, want: 4},
		"one knows":            {shown: [3]int{0, 0, 4}, want: 4},
		"one knows, of others": {shown: [3]int{4, 0, 0}, want: 4},
		"it was widened":       {shown: [3]int{2, 4, 3}, want: 4},
		"none knows":           {shown: [3]int{0, 0, 0}},
		"one refuses":          {shown: [3]int{refuses, 4, 0}, want: 4},
		"none but refusals":    {shown: [3]int{refuses, 0, refuses}, errs: kerr.TopicAuthorizationFailed},
		"made anew":            {shown: [3]int{4, 2, 4}, anew: [3]bool{false, true, false}, err: topic.ErrDisagree},
	} {
		var looks [3]atomic.Int32
		w.b.SetIntercept(func(r broker.Request) broker.Action {
			m, ok := r.Message().(*kmsg.MetadataRequest)
			if !ok || len(m.Topics) != 2 {
				return broker.Action{}
			}
			looks[r.Node].Add(1)
			resp := m.ResponseKind().(*kmsg.MetadataResponse)
			resp.Brokers, resp.ControllerID = live.Brokers, live.ControllerID
			for _, asked := range m.Topics {
				rt := kmsg.NewMetadataResponseTopic()
				rt.Topic, rt.TopicID = asked.Topic, w.b.TopicID(*asked.Topic)
				partitions := 2
				if *asked.Topic == "a" {
					partitions = tc.shown[r.Node]
					if tc.anew[r.Node] {
						rt.TopicID[0]++
					}
				}
				switch partitions {
				case 0:
					rt.ErrorCode = kerr.UnknownTopicOrPartition.Code
				case refuses:
					rt.ErrorCode = kerr.TopicAuthorizationFailed.Code
				}
				rt.Partitions = make([]kmsg.MetadataResponseTopicPartition, max(0, partitions))
				resp.Topics = append(resp.Topics, rt)
			}
			return broker.Action{Answer: resp}
		})
		infos, errs, err := topic.Describe(ctx, w.cl, "b", "a")
		for node := range looks {
			if looks[node].Load() == 0 {
				t.Errorf("%s: broker %d was not asked", name, node)
			}
		}
		if !errors.Is(err, tc.err) {
			t.Errorf("%s: %v, want %v", name, err, tc.err)
		}
		if tc.err != nil {
			continue
		}
		if len(infos) != 2 || infos[0].Partitions != 2 || infos[1].Partitions != tc.want || len(infos[1].Brokers) != 3 {
			t.Errorf("%s: %+v", name, infos)
		}
		if len(errs) > 1 || !errors.Is(errs["a"], tc.errs) {
			t.Errorf("%s: %v refused", name, errs)
		}
	}
}

// Make returns when the last broker shows the topic; where time is up it names the
// one that does not.
func TestMakeIsSeenEverywhere(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{Brokers: 3})
	var behind atomic.Bool
	behind.Store(true)
	looks := make(chan struct{}, 1000)
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.MetadataRequest)
		if !ok || r.Node != 1 || len(m.Topics) != 1 || !behind.Load() {
			return broker.Action{}
		}
		looks <- struct{}{}
		resp := m.ResponseKind().(*kmsg.MetadataResponse)
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.ErrorCode = m.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		resp.Topics = append(resp.Topics, rt)
		return broker.Action{Answer: resp}
	})
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	run := func(ctx context.Context) { done <- topic.Make(ctx, w.cl, group, 2, 0) }
	go run(short)
	for range 3 {
		<-looks
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "broker 1 shows 0 partitions") {
		t.Errorf("with a broker behind: %v", err)
	}
	go run(ctx)
	for range 3 {
		<-looks
	}
	behind.Store(false)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// What brokers refuse says what to do, and nothing is there then.
func TestMakeRefused(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{Brokers: 2})
	err := topic.Make(ctx, w.cl, group, 1, 3)
	if sharetxn.ClassOf(err) != sharetxn.ClassUsage || !errors.Is(err, kerr.InvalidReplicationFactor) || !strings.Contains(err.Error(), "not so many brokers") {
		t.Errorf("three replicas on two brokers: %v", err)
	}
	w.b.SetIntercept(forbid)
	forbidden(t, "create", topic.Make(ctx, w.cl, group, 1, 0), "grant Create on topic __sharetxn_ledger.g")
	w.b.SetIntercept(nil)
	if got := w.info(ctx, t); got.Partitions != 0 {
		t.Errorf("refused, and there is %+v", got)
	}
	w.ledger(ctx, t, 1)
	w.b.SetIntercept(forbid)
	forbidden(t, "widen", topic.Make(ctx, w.cl, group, 2, 0), "grant Alter on topic __sharetxn_ledger.g")
}

// Topics are named by their ids; one that is gone has no name, and no ids are not
// all topics.
func TestNames(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 1, "b": 2}})
	a, b, gone := w.b.TopicID("a"), w.b.TopicID("b"), [16]byte{1, 2, 3}
	got, err := topic.Names(ctx, w.cl, [][16]byte{a, gone, b})
	if err != nil || len(got) != 2 || got[a] != "a" || got[b] != "b" {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := topic.Names(ctx, w.cl, nil); err != nil || len(got) > 0 {
		t.Errorf("of none: %v, %v", got, err)
	}
}
