package producer

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// An output topic that does not exist is named, before the transaction's timeout
// ends it with an error that names nothing.
func TestMissingTopicIsNamed(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t, setup{})
	var err error
	if w.cl, err = sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.Seeds()...), kgo.MetadataMinAge(time.Minute)), sharetxn.Logger(slog.New(slog.DiscardHandler))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cl.Close)
	p := w.producer(t, "tx", TransactionTimeout(9*time.Second), LockMargin(10*time.Millisecond))
	for range 2 { // kgo asks at once only the first time
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Produce(ctx, &kgo.Record{Topic: "nowhere", Value: []byte("lost")}); err != nil {
			t.Fatal(err)
		}
		out, err := tx.Commit(ctx)
		if out != sharetxn.Aborted || !errors.Is(err, kerr.UnknownTopicOrPartition) || !strings.Contains(err.Error(), "nowhere") || sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", out, err)
		}
	}
	w.works(ctx, t, p, "after")
	same(t, "visible", w.visible(ctx, t, "out"), "after")
}

// kgo asks for a missing topic twice within a transaction, however short, and no
// sooner than it is told to where that is long enough.
func TestMetadataAge(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for name, tc := range map[string]struct {
		timeout time.Duration
		cluster []kgo.Opt
		kafka   []kgo.Opt
		want    time.Duration
	}{
		"kgo's, in the default timeout":  {timeout: 15 * time.Second, want: 5 * time.Second},
		"kgo's, in a long one":           {timeout: time.Minute, want: 5 * time.Second},
		"a third of a short one":         {timeout: 6 * time.Second, want: 2 * time.Second},
		"the least timeout":              {timeout: 300 * time.Millisecond, want: 100 * time.Millisecond},
		"the cluster's, if it is quick":  {timeout: 6 * time.Second, cluster: []kgo.Opt{kgo.MetadataMinAge(time.Second)}, want: time.Second},
		"the cluster's, if it is slow":   {timeout: 6 * time.Second, cluster: []kgo.Opt{kgo.MetadataMinAge(time.Minute)}, want: 2 * time.Second},
		"the producer's, whatever it is": {timeout: 6 * time.Second, kafka: []kgo.Opt{kgo.MetadataMinAge(time.Minute)}, want: time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			cl, err := sharetxn.Connect(sharetxn.Kafka(append(tc.cluster, kgo.SeedBrokers("nowhere:1"))...))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			p, err := New(cl, "tx", TransactionTimeout(tc.timeout), LockMargin(0), KafkaOptions(tc.kafka...))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Close() }()
			out := p.lanes[0].out
			kafka, err := out.newClient()
			if err != nil {
				t.Fatal(err)
			}
			defer kafka.Close()
			if got := kafka.OptValue(kgo.MetadataMinAge); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
