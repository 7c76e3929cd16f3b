// Package demo is sharetxn's main job end to end: real records through a share
// group, a transform and transactions on an embedded cluster or a real one, with
// faults on purpose, and an audit of what came of it; on demand beside it the same
// without exactly once.
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
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/processor"
)

// Config of a run.
type Config struct {
	Input   io.Reader // NDJSON; blank lines are passed over
	Bundled bool      // Input is long enough for all faults: one that does not fire is an error
	Seed    uint64
	Members int
	Batch   int // records a transaction at the most
	Faults  faults.Level

	Guarantee processor.Guarantee
	Profile   sharetxn.Profile // of Staged
	Compare   bool             // run it once more with AckAfterCommit

	Bootstrap []string // addresses of a cluster; none: the embedded one
	Keep      bool     // leave there what the run made

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

const (
	// stopTimeout is a member's at the end, auditLimit bounds the audit.
	stopTimeout = 5 * time.Second
	auditLimit  = 5 * time.Minute
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
	ours, err := run(ctx, cfg, logger, read)
	if err != nil {
		return err
	}
	results := []*result{ours}
	if cfg.Compare {
		again := func() ([][]byte, error) { return ours.input, nil }
		other := cfg
		other.Guarantee = processor.AckAfterCommit
		theirs, err := run(ctx, other, logger, again)
		if err != nil {
			return fmt.Errorf("%v: %w", other.Guarantee, err)
		}
		results = append(results, theirs)
	}
	return report(cfg, results)
}
