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
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// forms are the two loops as command lines.
var forms = map[string][]string{"closure": nil, "the KIP's form": {"-kip"}}

func start(t *testing.T, stock bool) *broker.Cluster {
	t.Helper()
	b, err := broker.Start(broker.Config{
		Brokers: 3, Topics: map[string]int32{"in": 3, "out": 1}, HeartbeatInterval: 500 * time.Millisecond, Stock44: stock,
		GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func client(t *testing.T, b *broker.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Seeds()...), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func args(b *broker.Cluster, form []string) []string {
	return append([]string{"-bootstrap", strings.Join(b.Seeds(), ","), "-in", "in", "-out", "out", "-group", "g"}, form...)
}

// Both forms give each record out exactly once, in capitals, also what comes
// while they run, and acknowledge each.
func TestForms(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			b := start(t, false)
			in := client(t, b)
			out := client(t, b, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
			serve, stop := context.WithCancel(ctx)
			ended := make(chan error, 1)
			go func() { ended <- run(serve, args(b, form)) }()
			const n, rounds = 250, 2
			for round := range rounds {
				want := make(map[string]bool)
				for i := range n {
					want[fmt.Sprintf("RECORD %d OF %d", i, round)] = true
					in.Produce(ctx, &kgo.Record{Topic: "in", Value: fmt.Appendf(nil, "record %d of %d", i, round)}, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Error(err)
						}
					})
				}
				for len(want) > 0 {
					fs := out.PollFetches(ctx)
					if err := fs.Err(); err != nil {
						t.Fatalf("%d records never came: %v", len(want), err)
					}
					fs.EachRecord(func(r *kgo.Record) {
						if !want[string(r.Value)] {
							t.Errorf("%s came twice, or was never sent", r.Value)
						}
						delete(want, string(r.Value))
					})
				}
			}
			testkit.Eventually(ctx, t, "every input is done", func() bool {
				done := int64(0)
				for _, p := range b.PartitionStates("g") {
					if p.Available+p.Acquired+p.Pending > 0 {
						return false
					}
					done += p.Start
				}
				return done == n*rounds
			})
			stop()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
		})
	}
}

// On brokers without KIP-1289 both forms end, with the reason, and publish
// nothing.
func TestStockKafka(t *testing.T) {
	for name, form := range forms {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			b := start(t, true)
			if err := client(t, b).ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("record")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := run(ctx, args(b, form)); !errors.Is(err, sharetxn.ErrUnsupported) {
				t.Fatalf("ended with %v", err)
			}
			out := client(t, b, kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
			if err := client(t, b).ProduceSync(ctx, &kgo.Record{Topic: "out", Value: []byte("the end")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			for {
				fs := out.PollFetches(ctx)
				if err := fs.Err(); err != nil {
					t.Fatal(err)
				}
				var seen []string
				fs.EachRecord(func(r *kgo.Record) {
					if !r.Attrs.IsControl() {
						seen = append(seen, string(r.Value))
					}
				})
				if len(seen) > 1 || len(seen) == 1 && seen[0] != "the end" {
					t.Fatalf("published: %v", seen)
				}
				if len(seen) == 1 {
					return
				}
			}
		})
	}
}
