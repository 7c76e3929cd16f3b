package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	brokertxn "github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// embedded is the embedded broker as a stock Kafka 4.4.
type embedded struct {
	c     *broker.Cluster
	nodes int
}

// Embedded starts one for a test.
func Embedded(t *testing.T, brokers int) Target {
	t.Helper()
	c, err := broker.Start(broker.Config{
		Brokers: brokers, Stock44: true, AutoCreateTopics: true,
		// As the real brokers of these tests are set.
		HeartbeatInterval: 500 * time.Millisecond, AssignmentInterval: time.Second, MinSessionTimeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	e := &embedded{c, brokers}
	e.set(t, "log.cleaner.backoff.ms", "100")
	return e
}

// set sets a config of all brokers.
func (e *embedded) set(t *testing.T, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.Seeds()...), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	set, err := kadm.NewClient(cl).AlterBrokerConfigs(ctx, []kadm.AlterConfig{{Name: key, Value: &value}})
	if err == nil && set[0].Err != nil {
		err = set[0].Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (e *embedded) Name() string     { return "embedded broker" }
func (e *embedded) Seeds() []string  { return e.c.Seeds() }
func (e *embedded) Version() Version { return Version{4, 4, 0} }
func (e *embedded) Embedded() bool   { return true }

func (e *embedded) Nodes() (ids []int32) {
	for i := range e.nodes {
		ids = append(ids, int32(i))
	}
	return ids
}

// Kill also does what a controller would: other brokers lead what that one led.
func (e *embedded) Kill(ctx context.Context, node int32) error {
	e.c.StopNode(node)
	if e.nodes == 1 {
		return nil
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(e.Seeds()...), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	topics, err := kadm.NewClient(cl).ListTopics(ctx)
	if err != nil {
		return err
	}
	next := (node + 1) % int32(e.nodes)
	topics.EachPartition(func(p kadm.PartitionDetail) {
		if p.Leader == node && err == nil {
			err = e.c.MoveLeader(p.Topic, p.Partition, next)
		}
	})
	return err
}

// Leaderless loses the partition's markers, which is all that it is for: every
// partition has a leader here.
func (e *embedded) Leaderless(_ context.Context, _ *X, t Topic, partition int32) (back func()) {
	e.c.TreatMarkers(func(m brokertxn.Marker) brokertxn.Treatment {
		return brokertxn.Treatment{Lose: m.Partition == brokertxn.Partition{Topic: t.Name, Partition: partition}}
	})
	return func() { e.c.TreatMarkers(nil) }
}

func (e *embedded) Restart(_ context.Context, node int32) error { return e.c.StartNode(node) }
