package foreign

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is what tests run on.
type cluster struct {
	name    string
	seeds   []string
	brokers int
	real    bool // stock Kafka

	staging bool // acknowledgements in transactions (KIP-1289)
}

// world is what one test has of a cluster: clients, and a name of its own.
type world struct {
	*cluster
	plain *kgo.Client
	adm   *kadm.Client
	name  string
}

// worlds numbers them, so that a test that runs again has fresh names.
var worlds atomic.Int64

// limit is what one test may take on one cluster: most take a second or three,
// but the machine may be busy, and on stock Kafka the first use of groups and
// of transactions makes their topics.
const limit = 90 * time.Second

// onEach runs a test on every cluster, side by side: most of it is waiting.
func onEach(t *testing.T, test func(*testing.T, *world)) {
	t.Helper()
	target.Require(t, shared.err)
	for _, c := range shared.clusters {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cl, err := kgo.NewClient(kgo.SeedBrokers(c.seeds...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			test(t, &world{c, cl, kadm.NewClient(cl), fmt.Sprintf("w%d", worlds.Add(1))})
		})
	}
}

func (w *world) bootstrap() string { return strings.Join(w.seeds, ",") }

// topic creates one.
func (w *world) topic(ctx context.Context, t *testing.T, name string, partitions int32) string {
	t.Helper()
	topic := w.name + "." + name
	if _, err := w.adm.CreateTopic(ctx, partitions, -1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return topic
}

// feed produces values "0" to "n-1" to the partitions in turn.
func (w *world) feed(ctx context.Context, t *testing.T, topic string, n, partitions int) {
	t.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: fmt.Append(nil, i)})
	}
	if err := w.plain.ProduceSync(ctx, rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// visible reads a topic of one partition to its end as kgo sees it.
func (w *world) visible(ctx context.Context, t *testing.T, topic string, level kgo.IsolationLevel) (values []string) {
	t.Helper()
	ends, err := w.adm.ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	end, _ := ends.Lookup(topic, 0)
	c, err := kgo.NewClient(kgo.SeedBrokers(w.seeds...), kgo.ConsumeTopics(topic), kgo.KeepControlRecords(), kgo.FetchIsolationLevel(level),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for at := int64(0); at < end.Offset; {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%s is not readable to its end %d: %v", topic, end.Offset, err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			at = r.Offset + 1
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
		})
	}
	return values
}
