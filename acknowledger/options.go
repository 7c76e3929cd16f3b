package acknowledger

import (
	"fmt"
	"os"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/producer"
)

// Opt is an option of New.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	instance *string // nil: the host's name
	close    time.Duration
	producer []producer.Opt
}

func defaults() config { return config{close: 5 * time.Second} }

func forward(o producer.Opt) Opt {
	return optFunc(func(c *config) { c.producer = append(c.producer, o) })
}

// Instance tells processes with the same prefix apart: it is part of the
// transactional id. Default: the host's name. Of two that run at the same time
// with the same prefix and instance the newer fences the older. It should be
// the same again after a restart, so that what a crash left open is aborted at
// once and not only when the transaction timeout has passed.
func Instance(name string) Opt { return optFunc(func(c *config) { c.instance = &name }) }

// TransactionTimeout is how long the broker lets a transaction stay open before
// it aborts it. Default 15 s: with the broker's scan of 10 s it stays below the
// default acquisition lock of 30 s, so that a process that was paused cannot
// commit after its records went to another. At least 100 ms.
func TransactionTimeout(d time.Duration) Opt { return forward(producer.TransactionTimeout(d)) }

// LockMargin is how long before the earliest acquisition lock ends a commit is
// refused. Default 2 s; below the TransactionTimeout.
func LockMargin(d time.Duration) Opt { return forward(producer.LockMargin(d)) }

// StageTimeout bounds the staging of acknowledgements. Default 0: what their
// locks and the transaction timeout leave; it never extends that.
func StageTimeout(d time.Duration) Opt { return forward(producer.StageTimeout(d)) }

// ResolveTimeout bounds the end of a transaction, resolving an outcome without
// an answer included, and each initialisation. Default 30 s.
func ResolveTimeout(d time.Duration) Opt { return forward(producer.ResolveTimeout(d)) }

// CloseTimeout bounds Close. Default 5 s.
func CloseTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.close = d }) }

// transactionalID is <prefix>-<instance>-0: one id is enough for one
// transaction at a time.
func (c config) transactionalID(prefix string) (string, error) {
	if prefix == "" {
		return "", usage("transactional id prefix: empty")
	}
	if c.instance == nil {
		host, err := os.Hostname()
		if err != nil {
			return "", usage("Instance: not given, and the host's name cannot be read: %w", err)
		}
		c.instance = &host
	}
	if *c.instance == "" {
		return "", usage("Instance: empty")
	}
	return prefix + "-" + *c.instance + "-0", nil
}

func usage(format string, args ...any) error {
	return &sharetxn.Error{
		Op: "New", Class: sharetxn.ClassUsage,
		Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...),
	}
}
