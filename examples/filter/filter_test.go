package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func start(t *testing.T, stock bool) *broker.Cluster {
	t.Helper()
	b, err := broker.Start(broker.Config{
		Brokers: 3, Topics: map[string]int32{"in": 3}, HeartbeatInterval: 500 * time.Millisecond, Stock44: stock, History: true,
		GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

// at is a record's place.
type at struct {
	partition int32
	offset    int64
}

// feed produces n events, each seventh of them no JSON, and tells which where.
func feed(ctx context.Context, t *testing.T, b *broker.Cluster, n int) (valid map[at]bool) {
	t.Helper()
	k, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		value := `{"event": %d}`
		if i%7 == 0 {
			value = `event %d`
		}
		rs[i] = &kgo.Record{Topic: "in", Key: fmt.Append(nil, i), Value: fmt.Appendf(nil, value, i)}
	}
	if err := k.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	valid = make(map[at]bool)
	for i, r := range rs {
		valid[at{r.Partition, r.Offset}] = i%7 != 0
	}
	return valid
}

// forms are the two filters as command lines.
var forms = map[string][]string{"by hand": nil, "processor": {"-processor"}}

func inBoth(ctx context.Context, t *testing.T, test func(ctx context.Context, t *testing.T, form []string)) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) { test(ctx, t, form) })
	}
}

func args(b *broker.Cluster, form []string) []string {
	return append([]string{"-bootstrap", strings.Join(b.Seeds(), ","), "-topic", "in", "-group", "g", "-instance", "test"}, form...)
}

// Every event is decided once, by a transaction: what is JSON acknowledged, the
// rest archived.
func TestFilter(t *testing.T) { inBoth(testkit.Deadline(t, 60*time.Second), t, testFilter) }

func testFilter(ctx context.Context, t *testing.T, form []string) {
	b := start(t, false)
	const n = 350
	valid := feed(ctx, t, b, n)
	serve, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(serve, args(b, form)) }()
	testkit.Eventually(ctx, t, "every event is done", func() bool {
		done := int64(0)
		for _, p := range b.PartitionStates("g") {
			done += p.Start
		}
		return done == n
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	facts, err := b.Facts(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range facts.Events {
		e, ok := e.(share.Event)
		if !ok {
			continue
		}
		if e.Kind == share.EventDecided {
			t.Errorf("acknowledged outside of a transaction: %+v", e)
		}
		for o := e.First; e.Kind == share.EventResolved && o <= e.Last; o++ {
			where := at{e.Partition, o}
			good, there := valid[where]
			if !there {
				t.Fatalf("%+v is decided twice", where)
			}
			if want := map[bool]share.State{true: share.Acknowledged, false: share.Archived}[good]; e.To != want {
				t.Errorf("%+v is %v, want %v", where, e.To, want)
			}
			delete(valid, where)
		}
	}
	if len(valid) > 0 {
		t.Errorf("%d events were never decided", len(valid))
	}
}

// On brokers without KIP-1289 it ends, with the reason, and decides nothing.
func TestStockKafka(t *testing.T) { inBoth(testkit.Deadline(t, 60*time.Second), t, testStockKafka) }

func testStockKafka(ctx context.Context, t *testing.T, form []string) {
	b := start(t, true)
	feed(ctx, t, b, 7)
	if err := run(ctx, args(b, form)); !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Fatalf("ended with %v", err)
	}
	for _, p := range b.PartitionStates("g") {
		if p.Start+p.Terminal > 0 {
			t.Errorf("decided: %+v", p)
		}
	}
}
