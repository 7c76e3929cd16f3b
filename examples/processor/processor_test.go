package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/examples/data"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// unreadable are inputs that end in the dead letter topic.
var unreadable = []string{`{"type":"Feature"`, ``, `{"id":"a","properties":{"type":"earthquake"}}`, `{"properties":{"type":"earthquake","mag":5}}`}

// start gives a cluster whose topic quakes has the bundled events and the
// unreadable ones.
func start(t *testing.T, opts ...sharetxntest.Opt) *sharetxntest.Cluster {
	t.Helper()
	k := sharetxntest.Start(t, append(opts, sharetxntest.Brokers(3), sharetxntest.Topic("quakes", 3))...)
	var in []*kgo.Record
	for _, line := range bytes.Split(bytes.TrimSpace(data.Earthquakes), []byte("\n")) {
		in = append(in, &kgo.Record{Topic: "quakes", Value: line})
	}
	for _, bad := range unreadable {
		in = append(in, &kgo.Record{Topic: "quakes", Value: []byte(bad)})
	}
	k.Feed(t, in...)
	return k
}

// check holds what is visible against what data/README.md says of the events.
func check(t *testing.T, k *sharetxntest.Cluster) {
	t.Helper()
	for topic, want := range map[string]int{"quakes.condensed": 1679, "quakes.alerts": 85} {
		ids := make(map[string]int)
		for _, r := range k.Committed(t, topic) {
			var q quake
			if err := json.Unmarshal(r.Value, &q); err != nil || q.ID != string(r.Key) || q.Time.Year() != 2018 {
				t.Errorf("%s has %s under the key %s (%v)", topic, r.Value, r.Key, err)
			}
			if topic == "quakes.alerts" && q.Magnitude < alertFrom {
				t.Errorf("alert of magnitude %v", q.Magnitude)
			}
			ids[q.ID]++
		}
		for id, n := range ids {
			if n != 1 {
				t.Errorf("%s has quake %s %d times", topic, id, n)
			}
		}
		if len(ids) != want {
			t.Errorf("%s has %d quakes, want %d", topic, len(ids), want)
		}
	}
	letters := make(map[string]bool)
	for _, r := range k.Committed(t, "quakes.dead") {
		letters[string(r.Value)] = true
		var reason string
		for _, h := range r.Headers {
			if h.Key == processor.HeaderReason {
				reason = string(h.Value)
			}
		}
		if !strings.HasPrefix(reason, "no ") {
			t.Errorf("dead letter %s has the reason %q", r.Value, reason)
		}
	}
	for _, bad := range unreadable {
		if !letters[bad] {
			t.Errorf("no dead letter of %s", bad)
		}
	}
	if len(letters) != len(unreadable) {
		t.Errorf("%d dead letters, want %d", len(letters), len(unreadable))
	}
}

// The whole service on a virtual clock, in both profiles and with a ledger on stock
// Kafka: the minute that felt quakes wait costs milliseconds.
func TestService(t *testing.T) {
	for name, c := range map[string]struct {
		brokers   sharetxntest.Opt
		guarantee processor.Guarantee
	}{
		"draft95": {sharetxntest.Profile(sharetxn.ProfileDraft95), processor.Staged},
		"kip93":   {sharetxntest.Profile(sharetxn.ProfileKIP93), processor.Staged},
		"ledger":  {sharetxntest.StockKafka44(), processor.Ledger},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, c.brokers)
				cl := k.Connect(t)
				if c.guarantee == processor.Ledger {
					if err := ledger.Ensure(t.Context(), cl, "condensers", []string{"quakes"}); err != nil {
						t.Fatal(err)
					}
				}
				began := time.Now()
				k.RunUntilDrained(t, "condensers", sharetxntest.RunnerFunc(func(ctx context.Context) error {
					return serve(ctx, cl, c.guarantee, "condensers", "test", 2)
				}))
				if took := time.Since(began); took < settled || took > 2*settled {
					t.Errorf("took %v: felt quakes must wait a minute", took)
				}
				check(t, k)
				if c.guarantee == processor.Staged { // the audit knows no ledger; check counts each output
					k.AssertExactlyOnce(t, "condensers", "quakes.condensed", "quakes.alerts", "quakes.dead")
				}
			})
		})
	}
}

// Two processes share the work; the command line reaches brokers on sockets.
func TestCommand(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	k := sharetxntest.Start(t, sharetxntest.Topic("quakes", 3))
	k.Feed(t, &kgo.Record{Topic: "quakes", Value: []byte(`{"id":"a","properties":{"type":"earthquake","mag":5.5,"status":"reviewed"}}`)})
	serve, stop := context.WithCancel(ctx)
	ended := make(chan error, 2)
	for _, instance := range []string{"a", "b"} {
		args := []string{"-bootstrap", strings.Join(k.Seeds(), ","), "-group", "condensers", "-instance", instance, "-members", "2"}
		go func() { ended <- run(serve, args) }()
	}
	k.WaitDrained(t, "condensers")
	if configs, err := groupconfig.Describe(ctx, k.Connect(t), "condensers"); err != nil || configs.IsolationLevel != groupconfig.ReadCommitted {
		t.Errorf("the group reads %v, %v", configs.IsolationLevel, err)
	}
	stop()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	k.AssertExactlyOnce(t, "condensers", "quakes.condensed", "quakes.alerts")
}

// On brokers without KIP-1289 the service ends, with the reason, and publishes
// nothing.
func TestStockKafka(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	k := start(t, sharetxntest.StockKafka44())
	err := run(t.Context(), []string{"-bootstrap", strings.Join(k.Seeds(), ","), "-group", "condensers"})
	if !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Fatalf("ended with %v", err)
	}
	if n := len(k.Committed(t, "quakes.condensed")); n > 0 {
		t.Errorf("%d published", n)
	}
}

// Each way out of the handler: it is a function, and needs no broker.
func TestHandle(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	rejected := func(err error) bool { _, ok := errors.AsType[*processor.RejectError](err); return ok }
	released := func(err error) bool { _, ok := errors.AsType[*processor.ReleaseError](err); return ok }
	accepted := func(err error) bool { return err == nil }
	const felt = `{"id":"a","properties":{"type":"earthquake","mag":2.5,"status":"automatic"}}`
	for name, c := range map[string]struct {
		value   string
		age     time.Duration
		outputs int
		verdict func(error) bool
	}{
		"small":           {`{"id":"a","properties":{"type":"earthquake","mag":-0.2}}`, 0, 1, accepted},
		"strong":          {`{"id":"a","properties":{"type":"earthquake","mag":4.5,"status":"reviewed"}}`, 0, 2, accepted},
		"felt and young":  {felt, 0, 0, released},
		"felt and old":    {felt, 2 * settled, 1, accepted},
		"no quake":        {`{"id":"a","properties":{"type":"explosion","mag":5}}`, 0, 0, accepted},
		"no JSON":         {`quake`, 0, 0, rejected},
		"without figures": {unreadable[2], 0, 0, rejected},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := handle(t.Context(), &processor.Record{Value: []byte(c.value), Timestamp: time.Now().Add(-c.age)})
			if len(out) != c.outputs || !c.verdict(err) {
				t.Errorf("%d outputs, error %v", len(out), err)
			}
		})
	}
}
