package conformance

import (
	"context"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
)

// process is real Kafka as processes of this machine.
type process struct {
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

// Process starts one for a test; refused tells whether the error means that
// none is to be had.
func Process(t *testing.T, brokers int) (Target, error) {
	t.Helper()
	version, err := ParseVersion(kafka.Version())
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	k, err := kafka.Start(ctx, t.TempDir(), brokers, settings...)
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
	return &process{k, version, brokers}, nil
}

func (p *process) Name() string     { return "Kafka as processes" }
func (p *process) Seeds() []string  { return p.k.Seeds() }
func (p *process) Version() Version { return p.version }
func (p *process) Embedded() bool   { return false }

func (p *process) Nodes() (ids []int32) {
	for i := range p.nodes {
		ids = append(ids, int32(i+1))
	}
	return ids
}

func (p *process) Kill(_ context.Context, node int32) error { return p.k.Kill(node) }

func (p *process) Restart(ctx context.Context, node int32) error {
	if err := p.k.Restart(node); err != nil {
		return err
	}
	return p.k.Ready(ctx)
}
