// Package demo is sharetxn's main job end to end: real records through a share
// group, a transform and transactions on an embedded cluster, with faults on
// purpose, and an audit of what came of it; on demand beside it the same without
// sharetxn's guarantee.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
)

// Config of a run.
type Config struct {
	Input   io.Reader // NDJSON; blank lines are passed over
	Bundled bool      // Input is long enough for all faults: one that does not fire is an error
	Seed    uint64
	Members int
	Batch   int // records a transaction at the most
	Faults  faults.Level
	Profile sharetxn.Profile
	Compare bool // run it once more with commit-then-ack in place of staging
	JSON    bool // a Summary instead of a table
	Verbose bool // logs of library and brokers on Stderr
	Stdout  io.Writer
	Stderr  io.Writer // progress
	// Dead counts what is left of killed processes when Run returns. It reaches
	// nobody and ends by itself; a program need not wait for it.
	Dead *sync.WaitGroup
}

// ErrWrong says that something is wrong with the result; what, was printed.
var ErrWrong = errors.New("the result is wrong")

var topics = audit.Topics{Source: "quakes", Enriched: "quakes.enriched", Alerts: "quakes.alerts", Dead: "quakes.dead"}

const (
	group      = "enrichers"
	partitions = 3
	brokers    = 3

	// Shortened for the demo; defaults are 30 s, 15 s, 2 s, 5 s and 45 s. A paused
	// member must lose its locks before its membership, so that its session is
	// the longest.
	lock       = 2 * time.Second
	txnTimeout = time.Second
	lockMargin = 300 * time.Millisecond
	heartbeat  = 250 * time.Millisecond
	session    = 3 * time.Second

	// deliveryLimit is the highest that Kafka allows: the faults cost deliveries.
	deliveryLimit = 10

	// stopTimeout is a member's at the end, auditLimit bounds the audit, stallLimit
	// the time without progress before it: a fault shows instead of hanging.
	stopTimeout = 5 * time.Second
	auditLimit  = 5 * time.Minute
	stallLimit  = 30 * time.Second
)

// Run runs the demo until the input has ended and is worked off, and audits it.
// ErrWrong: the result is wrong, or shows nothing; other errors: it could not be
// run, or ctx ended.
func Run(ctx context.Context, cfg Config) error {
	cfg.Stderr = &lines{w: cfg.Stderr}
	if cfg.Dead == nil {
		cfg.Dead = &sync.WaitGroup{}
		defer cfg.Dead.Wait()
	}
	logger := slog.New(slog.DiscardHandler)
	if cfg.Verbose {
		logger = slog.New(slog.NewTextHandler(cfg.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	read := func() ([][]byte, error) { return readLines(ctx, cfg.Input) }
	ours, err := run(ctx, cfg, staged, logger, read)
	if err != nil {
		return err
	}
	results := []*result{ours}
	if cfg.Compare {
		again := func() ([][]byte, error) { return ours.input, nil }
		theirs, err := run(ctx, cfg, commitThenAck, logger, again)
		if err != nil {
			return fmt.Errorf("%v: %w", commitThenAck, err)
		}
		results = append(results, theirs)
	}
	return report(cfg, results)
}
