package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// API keys that tests look for.
const (
	keyInitProducerID = 22
	keyEndTxn         = 26
	keyShareFetch     = 78
)

// world is what one test has of a Kafka cluster: connections through a tap, and
// names of its own.
type world struct {
	tap   *kafka.Tap
	cl    *sharetxn.Cluster
	plain *kgo.Client // not through the tap
	adm   *kadm.Client
	name  string
}

// worlds numbers them, so that a test that runs again has fresh names.
var worlds atomic.Int64

func open(t testing.TB, k *kafka.Cluster) *world {
	t.Helper()
	tap := kafka.NewTap()
	t.Cleanup(tap.Close)
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(k.Seeds()...), kgo.Dialer(tap.Dial), kgo.MetadataMinAge(10*time.Millisecond)),
		sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	plain, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.MetadataMinAge(10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(plain.Close)
	name := fmt.Sprintf("%s-%d", strings.ReplaceAll(strings.ToLower(t.Name()), "/", "."), worlds.Add(1))
	return &world{tap, cl, plain, kadm.NewClient(plain), name}
}

// topic creates a topic; name tells a test's topics apart.
func (w *world) topic(ctx context.Context, t testing.TB, name string, partitions int32) string {
	t.Helper()
	topic := w.name + "." + name
	if _, err := w.adm.CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return topic
}

func (w *world) producer(t testing.TB, opts ...producer.Opt) *producer.Producer {
	t.Helper()
	p, err := producer.New(w.cl, w.name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// group sets a share group's configs, beside reading from the start.
func (w *world) group(ctx context.Context, t testing.TB, configs map[string]string) string {
	t.Helper()
	settings := []groupconfig.Setting{groupconfig.AutoOffsetReset("earliest")}
	for key, value := range configs {
		settings = append(settings, groupconfig.Value(key, value))
	}
	if err := groupconfig.Set(ctx, w.cl, w.name, settings...); err != nil {
		t.Fatal(err)
	}
	return w.name
}

func (w *world) consumer(t testing.TB, group, topic string, opts ...shareconsumer.Opt) *shareconsumer.Consumer {
	t.Helper()
	c, err := shareconsumer.New(w.cl, group, append([]shareconsumer.Opt{shareconsumer.Topics(topic)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// feed produces values "0" to "n-1" to the partitions in turn.
func (w *world) feed(ctx context.Context, t testing.TB, topic string, n, partitions int) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)})
	}
	if err := w.plain.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// visible reads a topic with read_committed to its end.
func (w *world) visible(ctx context.Context, t testing.TB, topic string) (values []string) {
	t.Helper()
	ends, err := w.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(seeds(w.plain)...), kgo.ConsumeTopics(topic), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	at := make(map[int32]int64)
	left := func() (n int64) {
		ends.Each(func(o kadm.ListedOffset) { n += max(0, o.Offset-at[o.Partition]) })
		return n
	}
	for left() > 0 {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%s is not readable to its end, %d left: %v", topic, left(), err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			at[r.Partition] = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}

func seeds(cl *kgo.Client) []string { return cl.OptValue(kgo.SeedBrokers).([]string) }

// waitTxn waits until the coordinator gives the test's transactional id that state.
func (w *world) waitTxn(ctx context.Context, t testing.TB, state string) {
	t.Helper()
	testkit.Eventually(ctx, t, "transaction in state "+state, func() bool {
		d, err := w.adm.DescribeTransactions(ctx, w.name)
		return err == nil && d[w.name].State == state
	})
}
