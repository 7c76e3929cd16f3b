package txnmanager

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sharetxn/sharetxn"
)

// Opt is an option of New.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	timeout time.Duration // of a transaction
	margin  time.Duration
	stage   time.Duration // 0: what lock and transaction leave
	resolve time.Duration
	close   time.Duration
	outputs Outputs
}

// DefaultTransactionTimeout, with the broker's scan of 10 s for transactions
// that are over it, stays below the default acquisition lock of 30 s.
const DefaultTransactionTimeout = 15 * time.Second

// DefaultLockMargin is the LockMargin where none is set.
const DefaultLockMargin = 2 * time.Second

func defaults() config {
	return config{timeout: DefaultTransactionTimeout, margin: DefaultLockMargin, resolve: 30 * time.Second, close: 5 * time.Second}
}

// TransactionTimeout is how long the broker lets a transaction stay open before
// it aborts it (transaction.timeout.ms). Default DefaultTransactionTimeout, at
// least 100 ms.
func TransactionTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.timeout = d }) }

// LockMargin is how long before the earliest acquisition lock ends a commit is
// refused. Default DefaultLockMargin, below the TransactionTimeout.
func LockMargin(d time.Duration) Opt { return optFunc(func(c *config) { c.margin = d }) }

// StageTimeout bounds staging. Default 0: what the locks and the transaction
// timeout leave, less the margin; it never extends that.
func StageTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.stage = d }) }

// ResolveTimeout bounds EndTxn and the resolution of its outcome, and each
// initialisation. Default 30 s.
func ResolveTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.resolve = d }) }

// CloseTimeout bounds Close, and how long an abort waits for produce requests
// under way. Default 5 s.
func CloseTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.close = d }) }

// WithOutputs lets transactions produce. Without it they can only acknowledge.
func WithOutputs(o Outputs) Opt { return optFunc(func(c *config) { c.outputs = o }) }

// minTimeout is below what any real cluster serves, and keeps nonsense out.
const minTimeout = 100 * time.Millisecond

// maxID is the longest transactional id that kgo takes, in bytes; Kafka's own
// limit is that of its strings, twice as much.
const maxID = 16382

func (c config) check(id string) error {
	switch {
	case strings.TrimSpace(id) == "":
		return usage("transactional id: empty")
	case len(id) > maxID:
		return usage("transactional id: longer than %d bytes", maxID)
	case !utf8.ValidString(id):
		return usage("transactional id: not UTF-8")
	case c.timeout < minTimeout || c.timeout > math.MaxInt32*time.Millisecond:
		return usage("TransactionTimeout: %v is not between %v and %v", c.timeout, minTimeout, math.MaxInt32*time.Millisecond)
	case c.margin < 0 || c.margin >= c.timeout:
		return usage("LockMargin: %v is not between 0 and the TransactionTimeout of %v", c.margin, c.timeout)
	case c.stage < 0:
		return usage("StageTimeout: %v is negative", c.stage)
	case c.resolve <= 0:
		return usage("ResolveTimeout: %v is not above 0", c.resolve)
	case c.close <= 0:
		return usage("CloseTimeout: %v is not above 0", c.close)
	}
	return nil
}

func usage(format string, args ...any) error {
	return &sharetxn.Error{Op: "New", Class: sharetxn.ClassUsage, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}
