package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/target"
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

func (p *stock) Restart(ctx context.Context, node int32) error {
	if err := p.k.Restart(node); err != nil {
		return err
	}
	return p.k.Ready(ctx)
}
