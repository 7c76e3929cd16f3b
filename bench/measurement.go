package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
)

// measurement is all that is measured.
type measurement struct {
	held         []string // contests
	rounds       int
	transactions int               // a run
	heartbeat    time.Duration     // of share groups
	consume      consumption       // but for the size
	sizes        []int             // of consume and ctp
	txns         []int             // of ctp
	perRun       func(txn int) int // records of a run of ctp
	who          []string          // of consume and start
	best         []bool            // settings of consume
	copies       []copies
	profiles     string // folder; empty: none
	json         string // file; empty: none
}

type copies struct{ records, perTxn int }

// results is what was measured.
type results struct {
	Conditions string        `json:"conditions"`
	Missing    string        `json:"missing,omitempty"` // why there is no real Kafka
	Standings  []standing    `json:"standings"`
	Races      []race        `json:"races"`
	Starting   *starting     `json:"starting,omitempty"`
	Transforms []transformed `json:"transforms"`
}

// take measures and prints; progress tells what goes on.
func (m measurement) take(ctx context.Context, out, progress io.Writer) error {
	r := results{Conditions: fmt.Sprintf("%s %s/%s, %d processors, load %s before; %d rounds",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0), load(), m.rounds)}
	if err := m.onKafka(ctx, &r, progress); errors.Is(err, kafka.ErrUnavailable) {
		r.Missing = err.Error()
	} else if err != nil {
		return err
	}
	if err := m.embedded(ctx, &r, progress); err != nil {
		return err
	}
	r.write(out)
	return m.keep(r)
}

// write prints everything as one table.
func (r results) write(out io.Writer) {
	fmt.Fprintf(out, "%s; medians, and ratios within a round\n", r.Conditions)
	if r.Missing != "" {
		fmt.Fprintf(out, "Nothing was measured on real Kafka, which needs Java and Maven: %s\n", r.Missing)
	}
	if len(r.Standings) > 0 {
		write(out, r.Standings)
	}
	for _, race := range r.Races {
		race.write(out)
	}
	if r.Starting != nil {
		r.Starting.write(out)
	}
	for _, t := range r.Transforms {
		t.write(out)
	}
}

func (m measurement) keep(r results) error {
	if m.json == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(m.json, append(text, '\n'), 0o644)
}

func (m measurement) holds(contest string) bool { return slices.Contains(m.held, contest) }

// onKafka is the part on stock Kafka; kafka.ErrUnavailable if there is none here.
func (m measurement) onKafka(ctx context.Context, r *results, progress io.Writer) (err error) {
	if !m.holds("transactions") && !m.holds("consume") && !m.holds("start") && !m.holds("ctp") {
		return nil
	}
	s, err := openStage(ctx, m.heartbeat, progress)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if m.holds("transactions") {
		const topic = "transactions"
		if err := s.topic(ctx, topic, 1); err != nil {
			return err
		}
		c := transactions(s.cluster.Seeds(), topic, m.transactions)
		fmt.Fprintln(progress, c.title)
		standing, err := c.hold(ctx, m.rounds)
		if err != nil {
			return err
		}
		r.Standings = append(r.Standings, standing)
	}
	if m.holds("consume") {
		for _, size := range m.sizes {
			if err := m.race(ctx, s, size, r, progress); err != nil {
				return err
			}
		}
	}
	if m.holds("start") {
		if err := m.starts(ctx, s, r, progress); err != nil {
			return err
		}
	}
	if m.holds("ctp") {
		return m.transform(ctx, s, r, progress)
	}
	return nil
}

func (m measurement) transform(ctx context.Context, s *stage, r *results, progress io.Writer) error {
	for _, size := range m.sizes {
		for _, txn := range m.txns {
			c := transform{Size: size, Txn: txn, Records: m.perRun(txn), Partitions: m.consume.Partitions, Batch: m.consume.Batch}
			fmt.Fprintln(progress, c.title())
			t, err := c.hold(ctx, s, m.profiles, m.rounds, progress)
			if err != nil {
				return err
			}
			r.Transforms = append(r.Transforms, t)
		}
	}
	return nil
}

// race has processes of its own, so that what one contest left in them is not in
// the figures of the next.
func (m measurement) race(ctx context.Context, s *stage, size int, r *results, progress io.Writer) (err error) {
	camp, err := newCamp(m.profiles)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, camp.strike()) }()
	c := m.consume
	c.Size = size
	fmt.Fprintln(progress, c.title())
	race, err := c.hold(ctx, s, camp, field(m.who, m.best...), m.rounds, progress)
	if err != nil {
		return err
	}
	r.Races = append(r.Races, race)
	return nil
}

// starts has defaults only, and no floor: that joins no group.
func (m measurement) starts(ctx context.Context, s *stage, r *results, progress io.Writer) (err error) {
	camp, err := newCamp("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, camp.strike()) }()
	entrants := slices.DeleteFunc(field(m.who, false), func(e entrant) bool { return e.Who == floor })
	starting, err := holdStarts(ctx, s, camp, entrants, m.rounds, progress)
	r.Starting = &starting
	return err
}

// embedded is the part on the embedded broker.
func (m measurement) embedded(ctx context.Context, r *results, progress io.Writer) (err error) {
	if !m.holds("copies") {
		return nil
	}
	if m.profiles != "" {
		if err := os.MkdirAll(m.profiles, 0o755); err != nil {
			return err
		}
		f, err := os.Create(filepath.Join(m.profiles, "copies.prof"))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	for _, n := range m.copies {
		c := copying(n.records, n.perTxn)
		fmt.Fprintln(progress, c.title)
		s, err := c.hold(ctx, m.rounds)
		if err != nil {
			return err
		}
		r.Standings = append(r.Standings, s)
	}
	return nil
}
