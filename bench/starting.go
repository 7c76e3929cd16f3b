package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sharetxn/sharetxn/bench/contender"
)

// starting is how soon a member that starts has its first record: from making
// the client to the first poll that gives some, on a topic that is there.
type starting struct {
	Entrants []entrant         `json:"entrants"`
	Waits    [][]time.Duration `json:"waits"` // by entrant and round
}

// holdStarts runs every entrant once in each round, in the order of turns, each
// time with a new client and a new group.
func holdStarts(ctx context.Context, s *stage, camp *camp, entrants []entrant, rounds int, progress io.Writer) (starting, error) {
	out := starting{Entrants: entrants, Waits: make([][]time.Duration, len(entrants))}
	const topic, partitions, records, size, batch = "start", 4, 4000, 100, 16 << 10
	if err := s.topic(ctx, topic, partitions); err != nil {
		return out, err
	}
	if err := s.fill(ctx, topic, partitions, records, size, batch); err != nil {
		return out, err
	}
	for round, nth := range turns(rounds, len(entrants)) {
		e := entrants[nth]
		wait, err := start(ctx, s, camp, e, topic, fmt.Sprintf("%s-%d-%d", topic, round, nth))
		if err != nil {
			return out, fmt.Errorf("first record, round %d, %v: %w", round, e, err)
		}
		fmt.Fprintf(progress, "round %d, %v: first record after %v\n", round, e, wait.Round(time.Millisecond))
		if round > 0 {
			out.Waits[nth] = append(out.Waits[nth], wait)
		}
	}
	return out, nil
}

func start(ctx context.Context, s *stage, camp *camp, e entrant, topic, group string) (time.Duration, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runWait, fmt.Errorf("not done within %v", runWait))
	defer cancel()
	if err := s.group(ctx, group); err != nil {
		return 0, err
	}
	p, err := camp.call(ctx, e, topic)
	if err != nil {
		return 0, err
	}
	r, err := p.Do(ctx, contender.Job{Seeds: s.seeds(), Topic: topic, Group: group, Records: 1}, func() {})
	if err != nil {
		return 0, err
	}
	return r.Start, s.drop(ctx, group)
}
