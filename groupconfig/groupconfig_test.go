package groupconfig_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyDescribe = 32
	keyAlter    = 44
)

func start(t *testing.T, cfg broker.Config) (*broker.Cluster, *sharetxn.Cluster) {
	t.Helper()
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.MetadataMinAge(10*time.Millisecond)), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return b, cl
}

// All that can be set is told again, with its kind and its source, and goes back
// to the default.
func TestSetAndDescribe(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		ctx := testkit.Deadline(t, 30*time.Second)
		_, cl := start(t, broker.Config{Brokers: nodes})
		if err := groupconfig.Set(ctx, cl, "g",
			groupconfig.IsolationLevel(groupconfig.ReadCommitted), groupconfig.AutoOffsetReset("by_duration:PT1H"),
			groupconfig.LockDuration(20*time.Second), groupconfig.DeliveryCountLimit(7), groupconfig.MaxRecordLocks(300),
			groupconfig.RenewAcknowledge(false), groupconfig.SessionTimeout(50*time.Second),
			groupconfig.HeartbeatInterval(6*time.Second), groupconfig.AssignmentInterval(2*time.Second)); err != nil {
			t.Fatal(err)
		}
		got, err := groupconfig.Describe(ctx, cl, "g")
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range got.Entries {
			if e.Source != groupconfig.SourceGroup && strings.HasPrefix(e.Key, "share.") {
				t.Errorf("%s=%s has source %v", e.Key, e.Value, e.Source)
			}
		}
		if len(got.Entries) < 9 {
			t.Errorf("only %v", got.Entries)
		}
		got.Entries = nil
		want := groupconfig.Configs{
			AutoOffsetReset: "by_duration:PT1H", IsolationLevel: groupconfig.ReadCommitted, LockDuration: 20 * time.Second,
			DeliveryCountLimit: 7, MaxRecordLocks: 300, SessionTimeout: 50 * time.Second, HeartbeatInterval: 6 * time.Second, AssignmentInterval: 2 * time.Second,
		}
		if !same(got, want) {
			t.Errorf("%d nodes: %+v, want %+v", nodes, got, want)
		}
		if err := groupconfig.Set(ctx, cl, "g", groupconfig.Unset("share.isolation.level"), groupconfig.DeliveryCountLimit(3)); err != nil {
			t.Fatal(err)
		}
		if got, err = groupconfig.Describe(ctx, cl, "g"); err != nil {
			t.Fatal(err)
		}
		if e, ok := got.Entry("share.isolation.level"); !ok || e.Source != groupconfig.SourceDefault || got.IsolationLevel != groupconfig.ReadUncommitted || got.DeliveryCountLimit != 3 || got.LockDuration != 20*time.Second {
			t.Errorf("after putting back: %+v", got)
		}
		if e, ok := got.Entry("nothing"); ok {
			t.Errorf("an entry of no key: %+v", e)
		}
	}
}

func same(a, b groupconfig.Configs) bool {
	return a.AutoOffsetReset == b.AutoOffsetReset && a.IsolationLevel == b.IsolationLevel && a.LockDuration == b.LockDuration &&
		a.DeliveryCountLimit == b.DeliveryCountLimit && a.MaxRecordLocks == b.MaxRecordLocks && a.RenewAcknowledge == b.RenewAcknowledge &&
		a.SessionTimeout == b.SessionTimeout && a.HeartbeatInterval == b.HeartbeatInterval && a.AssignmentInterval == b.AssignmentInterval
}

// A mistake is told by its kind; nothing is set then, and a mistake that needs
// no broker sends nothing.
func TestMistakes(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, broker.Config{MinLockDuration: time.Second})
	limit := groupconfig.DeliveryCountLimit(9)
	for name, tc := range map[string]struct {
		group    string
		settings []groupconfig.Setting
		is       error
		text     string
		sent     bool
	}{
		"no group":      {"", []groupconfig.Setting{limit}, sharetxn.ErrUsage, "group: empty", false},
		"no settings":   {"g", nil, sharetxn.ErrUsage, "none", false},
		"no key":        {"g", []groupconfig.Setting{groupconfig.Value("", "1")}, sharetxn.ErrUsage, "without a key", false},
		"twice":         {"g", []groupconfig.Setting{limit, groupconfig.Unset(limit.Key())}, sharetxn.ErrUsage, "share.delivery.count.limit is given twice", false},
		"unknown":       {"g", []groupconfig.Setting{limit, groupconfig.Value("share.colour", "red")}, groupconfig.ErrUnknownKey, "share.colour", true},
		"lock too low":  {"g", []groupconfig.Setting{limit, groupconfig.LockDuration(999 * time.Millisecond)}, groupconfig.ErrInvalidValue, "999", true},
		"limit too far": {"g", []groupconfig.Setting{groupconfig.DeliveryCountLimit(11)}, groupconfig.ErrInvalidValue, "2", true},
		"isolation":     {"g", []groupconfig.Setting{limit, groupconfig.IsolationLevel("none")}, groupconfig.ErrInvalidValue, "read_committed", true},
		"no number":     {"g", []groupconfig.Setting{limit, groupconfig.Value("share.session.timeout.ms", "long")}, groupconfig.ErrInvalidValue, "long", true},
	} {
		before := b.Traffic(keyAlter).Requests
		err := groupconfig.Set(ctx, cl, tc.group, tc.settings...)
		if !errors.Is(err, tc.is) || sharetxn.ClassOf(err) != sharetxn.ClassUsage || !strings.Contains(err.Error(), tc.text) {
			t.Errorf("%s: %v (class %v)", name, err, sharetxn.ClassOf(err))
		}
		if sent := b.Traffic(keyAlter).Requests > before; sent != tc.sent {
			t.Errorf("%s: sent: %v", name, sent)
		}
	}
	if got, err := groupconfig.Describe(ctx, cl, "g"); err != nil || got.DeliveryCountLimit != 5 {
		t.Errorf("after the mistakes: %+v, %v", got, err)
	}
	if _, err := groupconfig.Describe(ctx, cl, ""); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("Describe of no group: %v", err)
	}
	if err := groupconfig.Set(ctx, nil, "g", limit); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("no cluster: %v", err)
	}
}

// Set returns only when the last broker has it, and names it where time is up.
func TestVisibleEverywhere(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, broker.Config{Brokers: 3})
	catchUp := b.Lag(1)
	looks := make(chan struct{}, 1000)
	b.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == keyDescribe && r.Node == 1 {
			looks <- struct{}{}
		}
		return broker.Action{}
	})
	short, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	set := func(ctx context.Context) {
		done <- groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4), groupconfig.IsolationLevel(groupconfig.ReadCommitted))
	}
	go set(short)
	<-looks
	<-looks
	<-looks // the third: two answers were behind
	cancel()
	err := <-done
	late, ok := errors.AsType[*groupconfig.NotVisibleError](err)
	if !ok || !errors.Is(err, context.Canceled) {
		t.Fatalf("with a broker behind: %v", err)
	}
	if late.Broker != 1 || late.Group != "g" || late.Key != "share.delivery.count.limit" || late.Want != "4" || late.Found != "5" {
		t.Errorf("%+v", late)
	}
	// It was set all the same; the next call waits until the broker has caught up.
	go set(ctx)
	for range 3 {
		<-looks
	}
	select {
	case err := <-done:
		t.Fatalf("returned while a broker is behind: %v", err)
	default:
	}
	catchUp()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A broker that cannot be asked is named; one that is gone for good is not waited
// for by those who come later.
func TestBrokerOutOfReach(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, broker.Config{Brokers: 3})
	b.SetIntercept(func(r broker.Request) broker.Action {
		return broker.Action{LoseRequest: r.Key == keyDescribe && r.Node == 2}
	})
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	err := groupconfig.Set(short, cl, "g", groupconfig.DeliveryCountLimit(4))
	if late, ok := errors.AsType[*groupconfig.NotVisibleError](err); !ok || late.Broker != 2 || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	b.SetIntercept(nil)
	if err := groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4)); err != nil {
		t.Fatal(err)
	}
}

// What access forbids is fatal, and says what to grant; reading alone as well.
func TestForbidden(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, broker.Config{})
	var forbid atomic.Int32
	forbid.Store(keyAlter)
	b.SetIntercept(func(r broker.Request) broker.Action {
		if int32(r.Key) != forbid.Load() {
			return broker.Action{}
		}
		switch m := r.Message().(type) {
		case *kmsg.IncrementalAlterConfigsRequest:
			resp := m.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
			resp.Resources = []kmsg.IncrementalAlterConfigsResponseResource{{ResourceName: "g", ErrorCode: kerr.GroupAuthorizationFailed.Code}}
			return broker.Action{Answer: resp}
		case *kmsg.DescribeConfigsRequest:
			resp := m.ResponseKind().(*kmsg.DescribeConfigsResponse)
			resp.Resources = []kmsg.DescribeConfigsResponseResource{{ResourceName: "g", ErrorCode: kerr.GroupAuthorizationFailed.Code}}
			return broker.Action{Answer: resp}
		}
		return broker.Action{}
	})
	wantForbidden := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, kerr.GroupAuthorizationFailed) || !sharetxn.IsFatal(err) || !strings.Contains(err.Error(), "grant") {
			t.Errorf("%s: %v", what, err)
		}
	}
	wantForbidden("alter", groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4)))
	if got, err := groupconfig.Describe(ctx, cl, "g"); err != nil || got.DeliveryCountLimit != 5 {
		t.Errorf("Describe beside it: %+v, %v", got, err)
	}
	forbid.Store(keyDescribe)
	wantForbidden("read back", groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4)))
	_, err := groupconfig.Describe(ctx, cl, "g")
	wantForbidden("describe", err)
}

// Brokers without these requests, and a closed cluster, end it at once.
func TestNotPossible(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	_, cl := start(t, broker.Config{MaxVersions: map[int16]int16{keyAlter: -1}})
	if err := groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4)); !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Errorf("without IncrementalAlterConfigs: %v", err)
	}
	if _, err := groupconfig.Describe(ctx, cl, "g"); err != nil {
		t.Errorf("Describe beside it: %v", err)
	}
	cl.Close()
	if err := groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(4)); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// Metadata that names no brokers, as one that has just started may tell it, is no
// proof that every broker has it.
func TestNoBrokersAreNoProof(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	b, cl := start(t, broker.Config{Brokers: 3})
	var emptied, asked atomic.Int32
	b.SetIntercept(func(r broker.Request) broker.Action {
		switch req := r.Message().(type) {
		case *kmsg.DescribeConfigsRequest:
			asked.Add(1)
		case *kmsg.MetadataRequest:
			if req.Topics != nil && len(req.Topics) == 0 && emptied.CompareAndSwap(0, 1) {
				return broker.Action{Answer: req.ResponseKind()}
			}
		}
		return broker.Action{}
	})
	if err := groupconfig.Set(ctx, cl, "g", groupconfig.DeliveryCountLimit(7)); err != nil {
		t.Fatal(err)
	}
	if emptied.Load() != 1 || asked.Load() < 3 {
		t.Errorf("%d answers without brokers, %d brokers were asked", emptied.Load(), asked.Load())
	}
}
