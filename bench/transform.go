package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/bench/contender"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transform is the contest about records consumed, copied in transactions and
// acknowledged on a broker: what a guarantee costs. A run is one of the ways
// alone, with a group, an output and a ledger of its own.
type transform struct {
	Size       int `json:"size"`       // bytes of a value, at least valueNumber
	Txn        int `json:"txn"`        // records of a transaction, at most
	Records    int `json:"records"`    // a run
	Partitions int `json:"partitions"` // of the topics
	Batch      int `json:"batch"`      // bytes of the producer's batches, at most
}

func (c transform) title() string {
	return fmt.Sprintf("records of %d bytes consumed, copied and acknowledged, %d a transaction", c.Size, c.Txn)
}

// transformWays in the order of the table; all are held against each other.
var transformWays = []string{contender.Ledger, contender.AckAfterCommit, contender.KgoOne, contender.KgoTwo}

// recordsOf is a run of a few seconds with so many records a transaction.
func recordsOf(txn int) int {
	switch {
	case txn < 10:
		return 1500 * txn
	case txn < 500:
		return 400 * txn
	default:
		return 150 * txn
	}
}

// transformed is what the ways reached.
type transformed struct {
	Contest transform `json:"contest"`
	Ways    []string  `json:"ways"`
	Runs    [][]*run  `json:"runs"` // by way and round
}

// hold runs every way once in each round, in the order of turns. A way that fails
// ends it: what it promises is part of the figures.
func (c transform) hold(ctx context.Context, s *stage, profiles string, rounds int, progress io.Writer) (_ transformed, err error) {
	out := transformed{Contest: c, Ways: transformWays, Runs: make([][]*run, len(transformWays))}
	camp, err := newCamp(profiles)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, camp.strike()) }()
	topic := fmt.Sprintf("transform-%d-%d", c.Size, c.Txn)
	if err := s.topic(ctx, topic, c.Partitions); err != nil {
		return out, err
	}
	if err := s.fill(ctx, topic, c.Partitions, c.Records, c.Size, c.Batch); err != nil {
		return out, err
	}
	for round, nth := range turns(rounds, len(transformWays)) {
		who := transformWays[nth]
		one, err := c.run(ctx, s, camp, who, topic, fmt.Sprintf("%s-%d-%s", topic, round, who))
		if err != nil {
			return out, fmt.Errorf("%s: round %d, %s: %w", c.title(), round, who, err)
		}
		fmt.Fprintf(progress, "round %d, %s: %.0f a second, %.2f us a record\n", round, who, one.rate(), one.cost())
		if round > 0 {
			out.Runs[nth] = append(out.Runs[nth], one)
		}
	}
	return out, nil
}

func (c transform) run(ctx context.Context, s *stage, camp *camp, who, topic, group string) (_ *run, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runWait, fmt.Errorf("not done within %v", runWait))
	defer cancel()
	output := group + "-out"
	made := []string{output}
	if err := s.topic(ctx, output, c.Partitions); err != nil {
		return nil, err
	}
	if err := s.group(ctx, group, groupconfig.IsolationLevel(groupconfig.ReadCommitted)); err != nil {
		return nil, err
	}
	if who == contender.Ledger {
		if err := s.ledger(ctx, group, topic); err != nil {
			return nil, err
		}
		made = append(made, ledger.TopicName(group))
	}
	p, err := camp.call(ctx, entrant{Who: who}, topic)
	if err != nil {
		return nil, err
	}
	var before, after time.Duration
	report, err := p.Do(ctx, contender.Job{Seeds: s.seeds(), Topic: topic, Group: group, Records: c.Records, Output: output, Txn: c.Txn},
		func() { before = processorTime(s.broker()) })
	after = processorTime(s.broker())
	if err != nil {
		return nil, err
	}
	if report.Records != c.Records || report.First >= report.Records || report.Read <= 0 {
		return nil, fmt.Errorf("nothing was measured: %+v, of %d records", report, c.Records)
	}
	if err := s.copied(ctx, output, c.Records); err != nil {
		return nil, err
	}
	if err := s.drained(ctx, group, c.Partitions); err != nil {
		return nil, err
	}
	if err := errors.Join(s.drop(ctx, group), s.remove(ctx, made...)); err != nil {
		return nil, err
	}
	return &run{Report: report, Broker: after - before, Peak: peakMemory(p.PID())}, nil
}

// copied makes sure that readers of the committed see each of the records, which
// fill has numbered, once.
func (s *stage) copied(ctx context.Context, topic string, records int) error {
	ends, err := s.admin.ListCommittedOffsets(ctx, topic)
	if err := errors.Join(err, ends.Error()); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Seeds()...), kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords(), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer cl.Close()
	seen := make([]bool, records)
	left := make(map[int32]int64)
	for _, o := range ends[topic] {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	}
	count := 0
	var errs []string
	for len(left) > 0 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			return err
		}
		fs.EachRecord(func(r *kgo.Record) {
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
			if r.Attrs.IsControl() {
				return
			}
			count++
			n := numberOf(r.Value)
			if n >= uint64(records) || seen[n] {
				errs = append(errs, fmt.Sprintf("output %d-%d is of record %d, which is no input or has one already", r.Partition, r.Offset, n))
				return
			}
			seen[n] = true
		})
	}
	if len(errs) > 0 {
		return fmt.Errorf("%d wrong outputs: %s", len(errs), strings.Join(errs[:min(3, len(errs))], "; "))
	}
	if count != records {
		return fmt.Errorf("%d outputs of %d records", count, records)
	}
	return nil
}

// valueNumber is the size of the number at the beginning of a value.
const valueNumber = 8

// numbered is the value of the nth record, of that size; a shorter one than the
// number has no number.
func numbered(n, size int) []byte {
	v := make([]byte, size)
	if size >= valueNumber {
		binary.BigEndian.PutUint64(v, uint64(n))
	}
	return v
}

func numberOf(value []byte) uint64 {
	if len(value) < valueNumber {
		return 1<<64 - 1
	}
	return binary.BigEndian.Uint64(value)
}
