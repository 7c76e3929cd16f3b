package ledger

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/rules"
)

// Problem is one rule that is not met where the ledger is to be used.
type Problem struct {
	Rule    string // a word for programs: "broker-api", "ledger-config", ...; docs/ledger.md has all
	Setting string // what is wrong, as its owner names it
	Value   string // as it is
	Want    string // as it should be, and why
	Command string // that mends it; $BOOTSTRAP stands for the brokers' addresses
	Fatal   bool   // exactly-once does not hold without it: a Processor refuses to start
}

// CheckOpt is an option of Check.
type CheckOpt interface{ applyCheck(*checkConfig) }

type checkConfig struct {
	timeout       *time.Duration // nil: a Processor's default
	readCommitted bool
	environment   bool
}

type checkFunc func(*checkConfig)

func (f checkFunc) applyCheck(c *checkConfig) { f(c) }

// TransactionTimeout is the processors' transaction timeout
// (transaction.timeout.ms), which must be well below the group's lock times its
// delivery limit. Default: what a Processor takes whose Config has none and whose
// LockMargin is the default.
func TransactionTimeout(d time.Duration) CheckOpt {
	return checkFunc(func(c *checkConfig) { c.timeout = &d })
}

// RequireReadCommitted makes a group that reads uncommitted a fatal problem: for
// inputs that transactions write, as those of a chain of processors. Without it
// Check tells of such a group as advice.
func RequireReadCommitted() CheckOpt {
	return checkFunc(func(c *checkConfig) { c.readCommitted = true })
}

// EnvironmentOnly leaves out what only the ledger's records tell: its generation
// and the group's guarantee. Reading them takes as long as loading the ledger;
// who does that next is told of them then.
func EnvironmentOnly() CheckOpt {
	return checkFunc(func(c *checkConfig) { c.environment = true })
}

// Check tells which rules are not met for a group that consumes the topics with a
// ledger, brokers first, each with the setting, its value, the value wanted and the
// command that mends it; nil if all are met. What brokers do not let the caller
// read is a problem too, and says what to grant. It changes nothing. Safe for
// concurrent use.
//
// Errors: class usage for arguments; else brokers could not be asked, and nothing
// is known.
func Check(ctx context.Context, cl *sharetxn.Cluster, group string, topics []string, opts ...CheckOpt) ([]Problem, error) {
	const op = "Check"
	var cfg checkConfig
	for _, o := range opts {
		o.applyCheck(&cfg)
	}
	if err := check(op, cl, group); err != nil {
		return nil, err
	}
	if err := checkTopics(op, group, topics); err != nil {
		return nil, err
	}
	if cfg.timeout != nil && *cfg.timeout <= 0 {
		return nil, usage(op, group, "TransactionTimeout: %v, want more than 0", *cfg.timeout)
	}
	facts, err := gather(ctx, cl, op, group, topics, cfg)
	if err != nil {
		return nil, err
	}
	var out []Problem
	for _, p := range rules.Judge(facts) {
		out = append(out, Problem(p))
	}
	return out, nil
}
