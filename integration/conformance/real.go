package conformance

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stock is stock Kafka of one of the kinds.
type stock struct {
	k       *kafka.Cluster
	version Version
	nodes   int
}

// settings let cases be short: sessions of members that end within seconds, and a
// log cleaner that comes by often.
var settings = []kafka.Setting{
	kafka.Set("group.share.min.session.timeout.ms", 1000),
	kafka.Set("log.cleaner.backoff.ms", 100),
}

// Real gives a test stock Kafka of that kind; package target says what an error
// means.
func Real(t *testing.T, kind kafka.Kind, brokers int) (Target, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	k, err := target.Open(ctx, kind, t.TempDir(), brokers, settings...)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Logs())
		}
		if err := k.Stop(); err != nil {
			t.Error(err)
		}
	})
	version, err := ParseVersion(k.Version)
	if err != nil {
		return nil, err
	}
	return &stock{k, version, brokers}, nil
}

func (p *stock) Name() string     { return "Kafka, " + string(p.k.Kind) }
func (p *stock) Seeds() []string  { return p.k.Seeds() }
func (p *stock) Version() Version { return p.version }
func (p *stock) Embedded() bool   { return false }

func (p *stock) Nodes() (ids []int32) {
	for i := range p.nodes {
		ids = append(ids, int32(i+1))
	}
	return ids
}

func (p *stock) Kill(_ context.Context, node int32) error { return p.k.Kill(node) }

// Leaderless stops the leader from running until the others know of no leader. It
// is not killed: a broker that ended without a word leads nothing again before the
// controller trusts its log.
func (p *stock) Leaderless(ctx context.Context, x *X, t Topic, partition int32) (back func()) {
	x.Helper()
	leader := x.Leader(ctx, t, partition)
	x.Must(p.k.Pause(leader))
	resume := sync.OnceFunc(func() { x.Must(p.k.Resume(leader)) })
	x.Cleanup(resume)
	testkit.Eventually(ctx, x, "the partition has no leader", func() bool {
		for _, node := range p.Nodes() {
			if node == leader {
				continue
			}
			kresp, err := x.Client.Broker(int(node)).Request(ctx, metadataRequest(t.Name))
			if err != nil {
				return false
			}
			for _, part := range kresp.(*kmsg.MetadataResponse).Topics[0].Partitions {
				if part.Partition == partition && part.Leader >= 0 {
					return false
				}
			}
		}
		return true
	})
	return func() {
		x.Helper()
		resume()
		testkit.Eventually(ctx, x, "it leads again", func() bool { return x.Leader(ctx, t, partition) == leader })
		x.recovered(ctx)
	}
}

func (p *stock) Restart(ctx context.Context, node int32) error {
	if err := p.k.Restart(node); err != nil {
		return err
	}
	return p.k.Ready(ctx)
}
