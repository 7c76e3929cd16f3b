package processor

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/brokerconfig"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/rules"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// clocks are what a transaction timeout is sized under; what is not told is 0.
type clocks struct {
	lock time.Duration // of the group's records
	scan time.Duration // how often brokers look for transactions whose time is up
}

// timeout is that of the members' transactions: the Config's, or else one under
// the group's lock as it is now.
func (p *Processor) timeout(start context.Context) time.Duration {
	if p.cfg.TransactionTimeout != 0 {
		return p.cfg.TransactionTimeout
	}
	var c clocks
	var refused error // for good: no reason to ask again
	err := patiently(start, p.log, "how long the group's lock is", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, startFor/3)
		defer cancel()
		err := c.read(ctx, p)
		if k, answered := errors.AsType[*kerr.Error](err); answered && !k.Retriable {
			refused, err = err, nil
		}
		return err
	})
	timeout := txnmanager.TimeoutUnder(c.lock, cmp.Or(c.scan, rules.StockScan), p.cfg.LockMargin)
	if c.lock == 0 && start.Err() == nil {
		p.log.Warn("sharetxn: the group's lock cannot be read, so transactions have the timeout for Kafka's default lock; if it is shorter, what a process leaves open outlasts it (grant DescribeConfigs on the group, or set Config.TransactionTimeout)",
			"group", p.cfg.Group, "timeout", timeout, "err", cmp.Or(err, refused))
	}
	return timeout
}

// read asks the brokers. The lock is the group's own, or theirs for groups that
// have none.
func (c *clocks) read(ctx context.Context, p *Processor) error {
	configs, err := groupconfig.Describe(ctx, p.cl, p.cfg.Group)
	if err != nil {
		return err
	}
	c.lock = configs.LockDuration
	return core.Of(p.cl).Use(func(cl *kgo.Client) error {
		settings, err := brokerconfig.Read(ctx, cl, brokerconfig.RecordLock, brokerconfig.TimeoutScan)
		if err != nil {
			return err
		}
		c.lock = cmp.Or(c.lock, brokerconfig.Millis(settings[brokerconfig.RecordLock]))
		c.scan = brokerconfig.Millis(settings[brokerconfig.TimeoutScan])
		return nil
	})
}
