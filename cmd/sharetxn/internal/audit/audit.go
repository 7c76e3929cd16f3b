// Package audit proves, or disproves, a run of the demo from what the brokers
// hold: it reads every topic read_committed with plain kgo, recomputes the
// expected outputs from the input, and asks the brokers for lag, members,
// transactions and last stable offsets. It imports nothing of producer,
// shareconsumer, txnmanager, ledger or processor; a test holds that.
package audit

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ReasonHeader is where a dead letter says why it was rejected.
const ReasonHeader = "sharetxn.reason"

// Topics of a run.
type Topics struct{ Source, Enriched, Alerts, Dead string }

func (t Topics) outputs() []string { return []string{t.Enriched, t.Alerts, t.Dead} }
func (t Topics) all() []string     { return append(t.outputs(), t.Source) }

// Config of an audit. It is for a run at rest: the members have left.
type Config struct {
	Seeds   []string
	Group   string
	Topics  Topics
	Input   [][]byte // what was fed, a record each
	Commits int64    // transactions that the members report as committed
	Ours    string   // what the run's transactional ids begin with; others on the cluster are none of it
	// Doubles says why outputs may be visible more than once; empty if they may not.
	Doubles string
	Inside  func(context.Context) (Inside, error)
}

// Run asks the brokers and judges. An error means that they could not be asked.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Seeds...), kgo.DisableClientMetrics())
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	facts, err := gather(ctx, cfg, cl)
	if err != nil {
		return nil, err
	}
	return Judge(cfg, facts), nil
}
