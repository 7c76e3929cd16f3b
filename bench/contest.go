package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// contest is one piece of work and the ways to do it. What the others are held
// against is the first.
type contest struct {
	title string
	ways  []way
}

type way struct {
	name string
	// run does the work and says how much of it was done in what time.
	run func(ctx context.Context) (lap, error)
}

// lap is work done in a time.
type lap struct {
	done int
	took time.Duration
}

// rate is the work of a second.
func (l lap) rate() float64 { return float64(l.done) / l.took.Seconds() }

// standing is what the ways of a contest reached, round by round.
type standing struct {
	contest
	rates [][]float64 // by way and round
}

// hold runs every way once in each round, in the order of turns.
func (c contest) hold(ctx context.Context, rounds int) (standing, error) {
	s := standing{contest: c, rates: make([][]float64, len(c.ways))}
	for round, nth := range turns(rounds, len(c.ways)) {
		l, err := c.ways[nth].run(ctx)
		switch {
		case err != nil:
			return s, fmt.Errorf("%s: %s: %w", c.title, c.ways[nth].name, err)
		case l.done < 1 || l.took <= 0:
			return s, fmt.Errorf("%s: %s: did %d in %v, so nothing was measured", c.title, c.ways[nth].name, l.done, l.took)
		case round > 0:
			s.rates[nth] = append(s.rates[nth], l.rate())
		}
	}
	return s, nil
}

// MarshalJSON gives the rates round by round.
func (s standing) MarshalJSON() ([]byte, error) {
	type row struct {
		Name  string    `json:"name"`
		Rates []float64 `json:"rates"` // a second, by round
	}
	out := struct {
		Title string `json:"title"`
		Ways  []row  `json:"ways"`
	}{Title: s.title}
	for nth, w := range s.ways {
		out.Ways = append(out.Ways, row{w.name, s.rates[nth]})
	}
	return json.Marshal(out)
}

// ratios are a way's rates over those of the first, each within its round.
func (s standing) ratios(nth int) []float64 {
	out := make([]float64, len(s.rates[nth]))
	for round, rate := range s.rates[nth] {
		out[round] = rate / s.rates[0][round]
	}
	return out
}
