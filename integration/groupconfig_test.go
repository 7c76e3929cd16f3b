package integration

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// The bounds are Kafka's, as is what it calls a key that it does not have.
func TestGroupConfigBounds(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 40*time.Second)
	w := open(t, k)
	for _, tc := range []struct {
		setting groupconfig.Setting
		want    error
	}{
		{groupconfig.LockDuration(999 * time.Millisecond), groupconfig.ErrInvalidValue},
		{groupconfig.LockDuration(time.Second), nil},
		{groupconfig.LockDuration(60 * time.Second), nil},
		{groupconfig.LockDuration(60*time.Second + time.Millisecond), groupconfig.ErrInvalidValue},
		{groupconfig.DeliveryCountLimit(1), groupconfig.ErrInvalidValue},
		{groupconfig.DeliveryCountLimit(2), nil},
		{groupconfig.DeliveryCountLimit(10), nil},
		{groupconfig.DeliveryCountLimit(11), groupconfig.ErrInvalidValue},
		{groupconfig.MaxRecordLocks(99), groupconfig.ErrInvalidValue},
		{groupconfig.MaxRecordLocks(4000), nil},
		{groupconfig.MaxRecordLocks(4001), groupconfig.ErrInvalidValue},
		{groupconfig.IsolationLevel("none"), groupconfig.ErrInvalidValue},
		{groupconfig.AutoOffsetReset("by_duration:PT1H"), nil},
		{groupconfig.AutoOffsetReset("none"), groupconfig.ErrInvalidValue},
		{groupconfig.HeartbeatInterval(499 * time.Millisecond), groupconfig.ErrInvalidValue},
		{groupconfig.SessionTimeout(44 * time.Second), groupconfig.ErrInvalidValue},
		{groupconfig.Value("share.colour", "red"), groupconfig.ErrUnknownKey},
	} {
		err := groupconfig.Set(ctx, w.cl, w.name, tc.setting)
		if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("%v: %v, want %v", tc.setting, err, tc.want)
		}
		if err != nil && sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("%v: class %v", tc.setting, sharetxn.ClassOf(err))
		}
	}
	got, err := groupconfig.Describe(ctx, w.cl, w.name)
	if err != nil || got.LockDuration != 60*time.Second || got.DeliveryCountLimit != 10 || got.MaxRecordLocks != 4000 ||
		got.AutoOffsetReset != "by_duration:PT1H" || got.IsolationLevel != groupconfig.ReadUncommitted || !got.RenewAcknowledge {
		t.Errorf("in the end: %+v, %v", got, err)
	}
	for key, want := range map[string]groupconfig.Source{
		"share.record.lock.duration.ms": groupconfig.SourceGroup, "share.isolation.level": groupconfig.SourceDefault, "share.heartbeat.interval.ms": groupconfig.SourceBroker,
	} {
		if e, ok := got.Entry(key); !ok || e.Source != want {
			t.Errorf("%s: %+v, want source %v", key, e, want)
		}
	}
}

// configsEverywhere: what Set returned from, each broker tells; twenty times, since
// a broker is behind for milliseconds only.
func (w *world) configsEverywhere(ctx context.Context, t *testing.T) {
	t.Helper()
	for i := range 20 {
		limit := 2 + i%9
		if err := groupconfig.Set(ctx, w.cl, w.name+".configs", groupconfig.DeliveryCountLimit(limit)); err != nil {
			t.Fatal(err)
		}
		for _, seed := range seeds(w.plain) {
			one, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(seed)))
			if err != nil {
				t.Fatal(err)
			}
			got, err := groupconfig.Describe(ctx, one, w.name+".configs")
			one.Close()
			if err != nil || got.DeliveryCountLimit != limit {
				t.Errorf("%s: limit %d, want %d (%v)", seed, got.DeliveryCountLimit, limit, err)
			}
		}
	}
}

// Isolation is the group's: by default it delivers what was aborted, and not when
// it reads committed.
func TestIsolationIsTheGroups(t *testing.T) {
	k := broker(t)
	ctx := testkit.Deadline(t, 60*time.Second)
	w := open(t, k)
	in := w.topic(ctx, t, "in", 1)
	p, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.TransactionalID(w.name))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, tx := range []struct {
		value string
		end   kgo.TransactionEndTry
	}{{"undone", kgo.TryAbort}, {"kept", kgo.TryCommit}} {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := p.ProduceSync(ctx, &kgo.Record{Topic: in, Value: []byte(tx.value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := p.EndTransaction(ctx, tx.end); err != nil {
			t.Fatal(err)
		}
	}
	for group, tc := range map[string]struct {
		settings []groupconfig.Setting
		want     []string
	}{
		"default":   {nil, []string{"undone", "kept"}},
		"committed": {[]groupconfig.Setting{groupconfig.IsolationLevel(groupconfig.ReadCommitted)}, []string{"kept"}},
	} {
		name := w.name + "." + group
		if err := groupconfig.Set(ctx, w.cl, name, append(tc.settings, groupconfig.AutoOffsetReset("earliest"))...); err != nil {
			t.Fatal(err)
		}
		if got := readAll(ctx, t, w, name, in, "kept"); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, want %v", group, got, tc.want)
		}
	}
}

// readAll accepts what a group delivers, up to a value.
func readAll(ctx context.Context, t *testing.T, w *world, group, topic, last string) (values []string) {
	t.Helper()
	c := w.consumer(t, group, topic, shareconsumer.AcknowledgementMode(shareconsumer.Explicit))
	for !slices.Contains(values, last) {
		b, err := c.Poll(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range b.Records() {
			values = append(values, string(r.Value))
			r.Accept()
		}
		if err := b.CommitSync(ctx); err != nil {
			t.Fatal(err)
		}
	}
	return values
}
