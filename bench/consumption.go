package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sharetxn/sharetxn/bench/contender"
)

// consumption is the contest about records read and acknowledged from a broker,
// nothing else: a run is one entrant alone with a group of its own.
type consumption struct {
	Size       int `json:"size"`       // bytes of a value
	Records    int `json:"records"`    // a run
	Partitions int `json:"partitions"` // of the topic
	Batch      int `json:"batch"`      // bytes of the producer's batches, at most
	Fetch      int `json:"fetch"`      // records that a fetch or a poll takes at best settings
}

func (c consumption) title() string {
	return fmt.Sprintf("records of %d bytes read and acknowledged", c.Size)
}

// run is one run that read and acknowledged everything.
type run struct {
	contender.Report
	Broker time.Duration `json:"broker"` // processor time of the broker while the clock ran, in nanoseconds
	Peak   int64         `json:"peak"`   // bytes, of the entrant's process so far
}

func (r *run) counted() float64 { return float64(r.Records - r.First) }

// rate is the records of a second, until all are acknowledged.
func (r *run) rate() float64 { return r.counted() / r.Acked.Seconds() }

// reading is the records of a second until the last was handed out: the rate of a
// stream that does not end.
func (r *run) reading() float64 { return r.counted() / r.Read.Seconds() }

// cost is the entrant's processor time for a record, in microseconds.
func (r *run) cost() float64 { return r.CPU.Seconds() * 1e6 / r.counted() }

// brokerCost is the broker's.
func (r *run) brokerCost() float64 { return r.Broker.Seconds() * 1e6 / r.counted() }

// cores is how many processors the entrant and the broker kept busy.
func (r *run) cores() float64 { return (r.CPU + r.Broker).Seconds() / r.Acked.Seconds() }

// race is what entrants reached.
type race struct {
	Contest  consumption `json:"contest"`
	Entrants []entrant   `json:"entrants"`
	Runs     [][]*run    `json:"runs"`   // by entrant and round; nil: it failed
	Failed   []string    `json:"failed"` // why
}

// runWait bounds one run.
const runWait = 3 * time.Minute

// hold runs every entrant once in each round, in the order of turns. A run that
// fails is told and counts for nothing; err is that nothing can run.
func (c consumption) hold(ctx context.Context, s *stage, camp *camp, entrants []entrant, rounds int, progress io.Writer) (race, error) {
	r := race{Contest: c, Entrants: entrants, Runs: make([][]*run, len(entrants))}
	topic := fmt.Sprintf("consume-%d", c.Size)
	if err := s.topic(ctx, topic, c.Partitions); err != nil {
		return r, err
	}
	if err := s.fill(ctx, topic, c.Partitions, c.Records, c.Size, c.Batch); err != nil {
		return r, err
	}
	for round, nth := range turns(rounds, len(entrants)) {
		e := entrants[nth]
		one, err := c.run(ctx, s, camp, e, topic, fmt.Sprintf("%s-%d-%d", topic, round, nth))
		switch {
		case ctx.Err() != nil:
			return r, context.Cause(ctx)
		case err != nil:
			camp.dismiss(e)
			text := fmt.Sprintf("round %d, %v: %v", round, e, err)
			fmt.Fprintln(progress, text)
			r.Failed = append(r.Failed, text)
		default:
			fmt.Fprintf(progress, "round %d, %v: %.0f a second, %.2f us a record\n", round, e, one.rate(), one.cost())
		}
		if round > 0 {
			r.Runs[nth] = append(r.Runs[nth], one)
		}
	}
	return r, nil
}

// run gives nil with an error.
func (c consumption) run(ctx context.Context, s *stage, camp *camp, e entrant, topic, group string) (*run, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runWait, fmt.Errorf("not done within %v", runWait))
	defer cancel()
	if err := s.group(ctx, group, e.groupSettings()...); err != nil {
		return nil, err
	}
	p, err := camp.call(ctx, e, topic)
	if err != nil {
		return nil, err
	}
	var before, after time.Duration
	j := contender.Job{Seeds: s.seeds(), Topic: topic, Group: group, Records: c.Records}
	if e.Best {
		j.Fetch = c.Fetch
	}
	report, err := p.Do(ctx, j, func() { before = processorTime(s.broker()) })
	after = processorTime(s.broker())
	if err != nil {
		return nil, err
	}
	if err := c.judge(e, report); err != nil {
		return nil, err
	}
	if err := s.drained(ctx, group, c.Partitions); err != nil {
		return nil, err
	}
	if err := s.drop(ctx, group); err != nil {
		return nil, err
	}
	return &run{Report: report, Broker: after - before, Peak: peakMemory(p.PID())}, nil
}

// judge makes sure that what was measured is what was to be done.
func (c consumption) judge(e entrant, r contender.Report) error {
	want := int64(c.Records) * int64(c.Size)
	switch {
	case r.Records != c.Records:
		return fmt.Errorf("%d records were handed out, %d are there", r.Records, c.Records)
	case e.Who != floor && r.Bytes != want:
		return fmt.Errorf("values of %d bytes were handed out, %d are there", r.Bytes, want)
	case r.First >= r.Records || r.Read <= 0 || r.Acked < r.Read:
		return fmt.Errorf("nothing was measured: %+v", r)
	}
	return nil
}
