// Package demo is sharetxn's main job end to end: real records through a share
// group, a transform and transactions on an embedded cluster, with aborts on
// purpose, and an audit of what came of it.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config of a run.
type Config struct {
	Input   io.Reader // NDJSON; blank lines are passed over
	Seed    uint64
	Members int
	Batch   int  // records a transaction at the most
	JSON    bool // a Summary instead of a table
	Verbose bool // logs of library and brokers on Stderr
	Stdout  io.Writer
	Stderr  io.Writer // progress
}

// ErrWrong says that the audit found something wrong; what, was printed.
var ErrWrong = errors.New("the audit found the result wrong")

var topics = audit.Topics{Source: "quakes", Enriched: "quakes.enriched", Alerts: "quakes.alerts", Dead: "quakes.dead"}

const (
	group      = "enrichers"
	partitions = 3
	brokers    = 3

	// Shortened for the demo; defaults are 30 s, 15 s and 2 s.
	lock       = 10 * time.Second
	txnTimeout = 6 * time.Second
	lockMargin = 500 * time.Millisecond

	// abortEvery: one batch in so many, drawn at random, fails, and so late
	// that its outputs, which kgo sends after 10 ms, have reached the brokers.
	abortEvery = 20
	abortAfter = 40 * time.Millisecond

	// auditLimit bounds the audit, stallLimit the time without progress before
	// it: a fault shows instead of hanging.
	auditLimit = 5 * time.Minute
	stallLimit = 30 * time.Second
)

// Run runs the demo until the input has ended and is worked off, and audits it.
// ErrWrong: the audit failed; other errors: it could not be run, or ctx ended.
func Run(ctx context.Context, cfg Config) error {
	logger := slog.New(slog.DiscardHandler)
	cfg.Stderr = &lines{w: cfg.Stderr}
	if cfg.Verbose {
		logger = slog.New(slog.NewTextHandler(cfg.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	b, err := start(logger)
	if err != nil {
		return err
	}
	defer b.Close()
	count := &counts{}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.ClientID("demo")), sharetxn.Logger(logger), sharetxn.WithHooks(count))
	if err != nil {
		return err
	}
	defer cl.Close()
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(cfg.Stderr, "embedded cluster: brokers %s, profile %s\n", strings.Join(b.Seeds(), ","), caps.Staging)
	fmt.Fprintf(cfg.Stderr, "%d members, %d records a transaction, seed %d; shortened: locks %v, transaction timeout %v\n", cfg.Members, cfg.Batch, cfg.Seed, lock, txnTimeout)

	input, err := readLines(ctx, cfg.Input)
	if err != nil {
		return err
	}
	if err := feed(ctx, cl, input); err != nil {
		return err
	}
	started := time.Now()
	p := &pipeline{cfg: cfg, cl: cl, count: count, input: len(input), stall: stallLimit, dice: newDice(cfg.Seed), log: logger}
	err = p.run(ctx)
	took := time.Since(started)
	fmt.Fprintln(cfg.Stderr, p.progress(took))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, auditLimit)
	defer cancel()
	rep, err := audit.Run(ctx, audit.Config{
		Seeds: b.Seeds(), Group: group, Topics: topics, Input: input, Commits: count.committed.Load(),
		Staged: func() (n int64) {
			for _, s := range b.PartitionStates(group) {
				n += s.Pending
			}
			return n
		},
	})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	if cfg.JSON {
		err = writeJSON(cfg, rep, count, caps.Staging.String(), took)
	} else {
		err = writeText(cfg, rep, count, took)
	}
	if err != nil {
		return err
	}
	if !rep.OK() {
		return ErrWrong
	}
	return nil
}

func start(logger *slog.Logger) (*broker.Cluster, error) {
	return broker.Start(broker.Config{
		Brokers: brokers, HeartbeatInterval: 500 * time.Millisecond, Logger: logger,
		Topics: map[string]int32{topics.Source: partitions, topics.Enriched: partitions, topics.Alerts: partitions, topics.Dead: partitions},
		GroupConfigs: map[string]map[string]string{group: {
			"share.auto.offset.reset":       "earliest",
			"share.isolation.level":         "read_committed",
			"share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds()),
		}},
	})
}
