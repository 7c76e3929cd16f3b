package ledger_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// told are the problems as rule and setting, those that are fatal with a mark.
func told(problems []ledger.Problem) (out []string) {
	for _, p := range problems {
		mark := ""
		if p.Fatal {
			mark = "!"
		}
		out = append(out, p.Rule+mark+" "+p.Setting)
	}
	return out
}

// Brokers tell the facts that the rules judge; each change shows as its own
// problem, and none where all is well.
func TestCheck(t *testing.T) {
	type change func(context.Context, *testing.T, *world) error
	alter := func(name, value string) change {
		return func(ctx context.Context, _ *testing.T, w *world) error {
			_, err := w.adm.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: name, Value: &value}}, ledger.TopicName(group))
			return err
		}
	}
	config := func(s groupconfig.Setting) change {
		return func(ctx context.Context, _ *testing.T, w *world) error { return groupconfig.Set(ctx, w.cl, group, s) }
	}
	generation := func(ctx context.Context, t *testing.T, w *world) error {
		w.write(ctx, t, resetting(2), 0)
		return nil
	}
	for name, tc := range map[string]struct {
		cfg    broker.Config
		change change
		opts   []ledger.CheckOpt
		want   []string
	}{
		"all well":            {},
		"cleanup":             {change: alter("cleanup.policy", "compact"), want: []string{"ledger-config! cleanup.policy of topic __sharetxn_ledger.g"}},
		"in sync":             {change: alter("min.insync.replicas", "1"), want: []string{"ledger-config! min.insync.replicas of topic __sharetxn_ledger.g"}},
		"limit":               {change: config(groupconfig.DeliveryCountLimit(5)), want: []string{"delivery-limit share.delivery.count.limit of group g"}},
		"renewal":             {change: config(groupconfig.RenewAcknowledge(false)), want: []string{"renewal! share.renew.acknowledge.enable of group g"}},
		"isolation":           {change: config(groupconfig.IsolationLevel(groupconfig.ReadUncommitted)), want: []string{"isolation share.isolation.level of group g"}},
		"isolation required":  {change: config(groupconfig.IsolationLevel(groupconfig.ReadUncommitted)), opts: []ledger.CheckOpt{ledger.RequireReadCommitted()}, want: []string{"isolation! share.isolation.level of group g"}},
		"timeout":             {opts: []ledger.CheckOpt{ledger.TransactionTimeout(270 * time.Second)}, want: []string{"transaction-timeout! transaction timeout"}},
		"a sized timeout":     {change: config(groupconfig.LockDuration(time.Second))},
		"a short timeout":     {change: config(groupconfig.LockDuration(time.Second)), opts: []ledger.CheckOpt{ledger.TransactionTimeout(8 * time.Second)}},
		"resetting":           {change: generation, want: []string{"generation! generation of topic __sharetxn_ledger.g"}},
		"resetting, unasked":  {change: generation, opts: []ledger.CheckOpt{ledger.EnvironmentOnly()}},
		"transaction.version": {change: func(_ context.Context, _ *testing.T, w *world) error { return w.b.SetFeature("transaction.version", 1) }, want: []string{"transaction-version! transaction.version"}},
		"no renewal yet": {cfg: broker.Config{MaxVersions: map[int16]int16{79: 1}}, want: []string{
			"broker-api! ShareAcknowledge of broker 0", "broker-api! ShareAcknowledge of broker 1", "broker-api! ShareAcknowledge of broker 2"}},
		"a wider source": {change: func(ctx context.Context, _ *testing.T, w *world) error {
			_, err := w.adm.UpdatePartitions(ctx, 4, "a")
			return err
		}, want: []string{"ledger-partitions! partitions of topic __sharetxn_ledger.g"}},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			cfg := tc.cfg
			cfg.Brokers, cfg.Topics = 3, map[string]int32{"a": 2, "b": 3}
			w := ensured(ctx, t, cfg, "a", "b")
			if tc.change != nil {
				if err := tc.change(ctx, t, w); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ledger.Check(ctx, w.cl, group, []string{"a", "b"}, tc.opts...)
			if err != nil || !slices.Equal(told(got), tc.want) {
				t.Errorf("%+v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

// Before there is anything, Check says what to do first.
func TestCheckBeforeAnything(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, broker.Config{Topics: map[string]int32{"a": 2}})
	got, err := ledger.Check(ctx, w.cl, group, []string{"a", "z"})
	want := []string{"source-topic topic z", "ledger-topic! topic __sharetxn_ledger.g", "isolation share.isolation.level of group g", "delivery-limit share.delivery.count.limit of group g"}
	if err != nil || !slices.Equal(told(got), want) {
		t.Fatalf("%+v, %v", got, err)
	}
	if want := "sharetxn ledger create --bootstrap $BOOTSTRAP --group g --topics a,z"; got[1].Command != want {
		t.Errorf("command %q", got[1].Command)
	}
	for name, call := range map[string]func() error{
		"no topics": func() error { _, err := ledger.Check(ctx, w.cl, group, nil); return err },
		"no timeout": func() error {
			_, err := ledger.Check(ctx, w.cl, group, []string{"a"}, ledger.TransactionTimeout(0))
			return err
		},
		"no cluster": func() error { _, err := ledger.Check(ctx, nil, group, []string{"a"}); return err },
	} {
		if err := call(); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.cl.Close()
	if _, err := ledger.Check(ctx, w.cl, group, []string{"a"}); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Metadata without brokers, as one that has just started may tell it, is no proof of
// anything.
func TestCheckWithoutBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
	w.b.SetIntercept(func(r broker.Request) broker.Action {
		if m, ok := r.Message().(*kmsg.MetadataRequest); ok {
			return broker.Action{Answer: m.ResponseKind()}
		}
		return broker.Action{}
	})
	if got, err := ledger.Check(ctx, w.cl, group, []string{"a"}); !errors.Is(err, brokers.ErrNone) || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
	w.b.SetIntercept(nil)
	if got, err := ledger.Check(ctx, w.cl, group, []string{"a"}); err != nil || len(got) > 0 {
		t.Errorf("afterwards: %+v, %v", got, err)
	}
}

// What brokers refuse to tell is a problem that says what to grant, and hides no
// other.
func TestCheckForbidden(t *testing.T) {
	name := ledger.TopicName(group)
	for what, tc := range map[string]struct {
		refuse func(*world, broker.Request) broker.Action
		want   string
	}{
		"the ledger":  {topicRefused(name), "acl! topic " + name + ": Describe, Read and Write on topic " + name},
		"a source":    {topicRefused("a"), "acl! topic a: Describe and Read on topic a"},
		"its configs": {configsRefused(kmsg.ConfigResourceTypeTopic, kerr.TopicAuthorizationFailed), "acl! configs of topic " + name + ": DescribeConfigs on topic " + name},
		"the group's": {configsRefused(kmsg.ConfigResourceTypeGroupConfig, kerr.GroupAuthorizationFailed), "acl configs of group g: DescribeConfigs on group g"},
		"brokers'":    {configsRefused(kmsg.ConfigResourceTypeBroker, kerr.ClusterAuthorizationFailed), "acl settings of the brokers: DescribeConfigs on the cluster"},
		"its records": {recordsRefused, "acl! records of topic " + name + ": Read on topic " + name},
	} {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := ensured(ctx, t, broker.Config{Topics: map[string]int32{"a": 1}}, "a")
		w.b.SetIntercept(func(r broker.Request) broker.Action { return tc.refuse(w, r) })
		got, err := ledger.Check(ctx, w.cl, group, []string{"a"})
		if err != nil || len(got) != 1 || told(got)[0]+": "+got[0].Want != tc.want || !strings.Contains(got[0].Command, "grant ") {
			t.Errorf("%s: %+v, %v, want %s", what, got, err, tc.want)
		}
	}
}

// topicRefused tells the metadata of one topic to nobody.
func topicRefused(name string) func(*world, broker.Request) broker.Action {
	return func(w *world, r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.MetadataRequest)
		if !ok || !slices.ContainsFunc(m.Topics, func(t kmsg.MetadataRequestTopic) bool { return t.Topic != nil && *t.Topic == name }) {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.MetadataResponse)
		seed := netip.MustParseAddrPort(w.b.Seeds()[0])
		resp.Brokers = []kmsg.MetadataResponseBroker{{Host: seed.Addr().String(), Port: int32(seed.Port())}}
		for _, asked := range m.Topics {
			t := kmsg.NewMetadataResponseTopic()
			if t.Topic = asked.Topic; *t.Topic == name {
				t.ErrorCode = kerr.TopicAuthorizationFailed.Code
			} else {
				t.Partitions = []kmsg.MetadataResponseTopicPartition{{Replicas: []int32{0}}}
			}
			resp.Topics = append(resp.Topics, t)
		}
		return broker.Action{Answer: resp}
	}
}

// configsRefused tells nobody the configs of one kind of resource.
func configsRefused(of kmsg.ConfigResourceType, code *kerr.Error) func(*world, broker.Request) broker.Action {
	return func(_ *world, r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.DescribeConfigsRequest)
		if !ok || m.Resources[0].ResourceType != of {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: of, ResourceName: m.Resources[0].ResourceName, ErrorCode: code.Code}}
		return broker.Action{Answer: resp}
	}
}

// recordsRefused gives nobody records.
func recordsRefused(_ *world, r broker.Request) broker.Action {
	m, ok := r.Message().(*kmsg.FetchRequest)
	if !ok {
		return broker.Action{}
	}
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
}
