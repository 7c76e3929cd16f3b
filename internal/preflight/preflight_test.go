package preflight

import (
	"context"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What brokers tell decides what is at fault: only a topic that is not there and
// wants more replicas than there are brokers.
func TestJudge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := map[string]string{Offsets.setting: "3", Transactions.setting: "3", ShareState.setting: "3"}
		fault := func(brokers int, topics ...Topic) *sharetxn.InternalTopicsError {
			out := &sharetxn.InternalTopicsError{Brokers: brokers}
			for _, x := range topics {
				out.Topics = append(out.Topics, sharetxn.InternalTopic{Topic: x.name, Setting: x.setting, Replicas: 3})
			}
			return out
		}
		for name, tc := range map[string]struct {
			seen    seen
			settled bool
			fault   *sharetxn.InternalTopicsError
		}{
			"stock settings, one broker":  {seen{1, nil, three}, false, fault(1, Offsets, ShareState)},
			"stock settings, two brokers": {seen{2, nil, three}, false, fault(2, Offsets, ShareState)},
			"stock settings, three":       {seen{3, nil, three}, false, nil},
			"only the share state":        {seen{1, map[string]bool{Offsets.name: true}, three}, false, fault(1, ShareState)},
			"both are there":              {seen{1, map[string]bool{Offsets.name: true, ShareState.name: true}, three}, true, nil},
			"another is at fault":         {seen{1, nil, map[string]string{Offsets.setting: "1", ShareState.setting: "1", Transactions.setting: "3"}}, false, nil},
			"nothing told":                {seen{1, nil, nil}, false, nil},
			"no number":                   {seen{1, nil, map[string]string{Offsets.setting: "many"}}, false, nil},
		} {
			settled, got := judge(tc.seen, []Topic{Offsets, ShareState})
			if settled != tc.settled || !reflect.DeepEqual(got, tc.fault) {
				t.Errorf("%s: %v, %+v, want %v, %+v", name, settled, got, tc.settled, tc.fault)
			}
		}
	})
}

func start(t *testing.T, cfg broker.Config) (*broker.Cluster, *core.Cluster) {
	t.Helper()
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return b, core.Of(cl)
}

func never() bool { return false }

// A guarded context ends with what is at fault, and says which setting to change.
func TestGuard(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	_, c := start(t, broker.Config{InternalReplicas: broker.InternalReplicas{Transactions: 3}})
	guarded, stop := Guard(ctx, c, Transactions)
	defer stop()
	<-guarded.Done()
	fault, ok := errors.AsType[*sharetxn.InternalTopicsError](context.Cause(guarded))
	if !ok || fault.Brokers != 1 || len(fault.Topics) != 1 || !strings.Contains(fault.Error(), "set transaction.state.log.replication.factor=1") {
		t.Errorf("cause %v", context.Cause(guarded))
	}
	fine, stop := Guard(ctx, c, Offsets)
	stop()
	if err := context.Cause(fine); errors.As(err, &fault) {
		t.Errorf("stopped before it looked, and found %v", err)
	}
}

// Where there is nothing to find the watch ends: it is well, brokers refuse to
// tell, or ctx is over. It survives an answer that is lost.
func TestWatchEnds(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	b, c := start(t, broker.Config{InternalReplicas: broker.InternalReplicas{Offsets: 3}})
	if fault := Watch(ctx, c, func() bool { return true }, Offsets); fault != nil {
		t.Errorf("well, and %v", fault)
	}
	const describeConfigs = 32
	refused := make(chan struct{}, 1)
	b.SetIntercept(func(r broker.Request) broker.Action {
		m, ok := r.Message().(*kmsg.DescribeConfigsRequest)
		if !ok || r.Key != describeConfigs {
			return broker.Action{}
		}
		resp := m.ResponseKind().(*kmsg.DescribeConfigsResponse)
		resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceType: m.Resources[0].ResourceType, ResourceName: m.Resources[0].ResourceName, ErrorCode: kerr.ClusterAuthorizationFailed.Code}}
		select {
		case refused <- struct{}{}:
		default:
		}
		return broker.Action{Answer: resp}
	})
	if fault := Watch(ctx, c, never, Offsets); fault != nil {
		t.Errorf("refused, and %v", fault)
	}
	<-refused
	short, cancel := context.WithCancel(ctx)
	cancel()
	if fault := Watch(short, c, never, Offsets); fault != nil {
		t.Errorf("ended, and %v", fault)
	}
	lost := make(chan struct{}, 10)
	b.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == describeConfigs && len(lost) == 0 {
			lost <- struct{}{}
			return broker.Action{LoseRequest: true}
		}
		return broker.Action{}
	})
	if fault := Watch(ctx, c, never, Offsets); fault == nil {
		t.Error("an answer that was lost ended it")
	}
	<-lost
}
