// Package demo is sharetxn's main job end to end: real records through a share
// group, a transform and transactions on an embedded cluster, with aborts on
// purpose, and an audit of what came of it.
package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	Batch   int // records a transaction at the most
	JSON    bool
	Stdout  io.Writer // table or JSON
	Stderr  io.Writer // progress
}

// ErrWrong says that the audit found something wrong.
var ErrWrong = errors.New("the audit found the result wrong")

var topics = audit.Topics{Source: "quakes", Enriched: "quakes.enriched", Alerts: "quakes.alerts", Dead: "quakes.dead"}

const (
	group      = "enrichers"
	partitions = 3
	brokers    = 3

	// Shortened for the demo; defaults are 30 s, 15 s and 2 s.
	lock       = 6 * time.Second
	txnTimeout = 4 * time.Second
	lockMargin = 500 * time.Millisecond

	// abortEvery: one batch in so many, drawn at random, fails.
	abortEvery = 20

	// runLimit bounds a run, so that a fault shows instead of hanging.
	runLimit = 2 * time.Minute
)

// maxLine is the longest record the embedded brokers take, less its framing.
const maxLine = 1_000_000

// Summary is the JSON object of --json.
type Summary struct {
	Input        int     `json:"input"`
	Accepted     int     `json:"accepted"`
	Rejected     int     `json:"rejected"`
	Outputs      int     `json:"outputs"`
	Alerts       int     `json:"alerts"`
	Duplicates   int     `json:"duplicates"`
	Missing      int     `json:"missing"`
	Unexpected   int     `json:"unexpected"`
	Staged       int64   `json:"staged"`
	Lag          int64   `json:"lag"`
	Transactions int64   `json:"transactions"`
	Aborts       int64   `json:"aborts"`
	Seed         uint64  `json:"seed"`
	Profile      string  `json:"profile"`
	Seconds      float64 `json:"seconds"`
	Right        bool    `json:"right"`
}

// Run runs the demo. ErrWrong: the audit failed; other errors: it could not be
// run.
func Run(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	lines, err := readLines(cfg.Input)
	if err != nil {
		return err
	}
	b, err := broker.Start(broker.Config{
		Brokers: brokers, MinLockDuration: time.Millisecond, HeartbeatInterval: 500 * time.Millisecond,
		Topics: map[string]int32{topics.Source: partitions, topics.Enriched: partitions, topics.Alerts: partitions, topics.Dead: partitions},
		GroupConfigs: map[string]map[string]string{group: {
			"share.auto.offset.reset":       "earliest",
			"share.isolation.level":         "read_committed",
			"share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds()),
		}},
	})
	if err != nil {
		return err
	}
	defer b.Close()
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.ClientID("demo")), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		return err
	}
	defer cl.Close()
	caps, err := cl.Capabilities(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(cfg.Stderr, "embedded cluster of %d brokers, staging %v; %d members, %d records a transaction, seed %d; shortened: lock %v, transaction timeout %v\n",
		brokers, caps.Staging, cfg.Members, cfg.Batch, cfg.Seed, lock, txnTimeout)
	if err := feed(ctx, cl, lines); err != nil {
		return err
	}
	p := newPipeline(cfg, cl)
	started := time.Now()
	if err := p.run(ctx, len(lines)); err != nil {
		return err
	}
	took := time.Since(started)
	rep, err := audit.Run(ctx, audit.Config{Seeds: b.Seeds(), Group: group, Topics: topics, Input: lines})
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	var pending int64
	for _, s := range b.PartitionStates(group) {
		pending += s.Pending
	}
	if cfg.JSON {
		err = json.NewEncoder(cfg.Stdout).Encode(Summary{
			Input: rep.Input, Accepted: rep.Accepted, Rejected: rep.Rejected, Outputs: rep.Outputs, Alerts: rep.Alerts,
			Duplicates: rep.Duplicates, Missing: rep.Missing, Unexpected: rep.Unexpected, Staged: pending, Lag: rep.Lag,
			Transactions: p.committed.Load(), Aborts: p.aborted.Load(), Seed: cfg.Seed, Profile: caps.Staging.String(),
			Seconds: took.Seconds(), Right: rep.OK() && pending == 0,
		})
	} else {
		err = rep.Write(cfg.Stdout)
		fmt.Fprintf(cfg.Stdout, "input %d: accepted %d, alerts %d, rejected %d; %d transactions committed, %d aborted, in %.1f s\n",
			rep.Input, rep.Accepted, rep.Alerts, rep.Rejected, p.committed.Load(), p.aborted.Load(), took.Seconds())
	}
	if err != nil {
		return err
	}
	if !rep.OK() || pending > 0 {
		return ErrWrong
	}
	return nil
}

func readLines(in io.Reader) (lines [][]byte, err error) {
	r := bufio.NewReader(in)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		line = bytes.TrimRight(line, "\r\n")
		if len(line) > maxLine {
			return nil, fmt.Errorf("line %d: %d bytes, at most %d fit into a record", n, len(line), maxLine)
		}
		if len(line) > 0 {
			lines = append(lines, line)
		}
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, fmt.Errorf("input: %w", err)
		}
	}
}

// feed gives the lines to the source topic, partition by partition in turn.
func feed(ctx context.Context, cl *sharetxn.Cluster, lines [][]byte) error {
	k, err := cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer k.Close()
	var failed error
	for i, line := range lines {
		k.Produce(ctx, &kgo.Record{Topic: topics.Source, Partition: int32(i % partitions), Value: line}, func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err // promises come one at a time
			}
		})
	}
	if err := k.Flush(ctx); err != nil {
		return err
	}
	return failed
}
