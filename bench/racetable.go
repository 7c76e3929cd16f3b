package main

import (
	"fmt"
	"io"
	"time"
)

// write prints what entrants reached, and what ours did beside each of the others
// with the same kind of settings, round by round.
func (r race) write(w io.Writer) {
	c := r.Contest
	fmt.Fprintf(w, "\n%s: %d a run, %d partitions, producer batches of up to %d bytes\n", c.title(), c.Records, c.Partitions, c.Batch)
	fmt.Fprintf(w, "  default is each client's own; best is %d records a fetch or poll, and a group with %d locks a partition\n", c.Fetch, bestLocks)
	const row = "  %-16s %9s %9s %9s  %9s  %9s %9s %7s  %7s %8s %8s\n"
	fmt.Fprintf(w, row, "", "a second", "min", "max", "reading", "client us", "broker us", "cores", "peak MB", "first ms", "last ack")
	for nth, e := range r.Entrants {
		of := func(figure func(*run) float64) spread { return spreadOf(figures(r.Runs[nth], figure)) }
		rate := of((*run).rate)
		fmt.Fprintf(w, row, e, whole(rate.median), whole(rate.min), whole(rate.max), whole(of((*run).reading).median),
			hundredths(of((*run).cost).median), hundredths(of((*run).brokerCost).median), hundredths(of((*run).cores).median),
			whole(of(func(r *run) float64 { return float64(r.Peak) / (1 << 20) }).max),
			whole(of(func(r *run) float64 { return ms(r.Start) }).median),
			whole(of(func(r *run) float64 { return ms(r.Acked - r.Read) }).median))
	}
	const pair = "  %-30s %9s %6s %6s  %9s %6s %6s  %9s %6s %6s\n"
	fmt.Fprintf(w, pair, "ratios within a round", "a second", "min", "max", "reading", "min", "max", "client us", "min", "max")
	for _, p := range r.pairs() {
		rate, reading, cost := p.ratios((*run).rate), p.ratios((*run).reading), p.ratios((*run).cost)
		fmt.Fprintf(w, pair, fmt.Sprintf("%v : %v", p.ours, p.other.Who), hundredths(rate.median), hundredths(rate.min), hundredths(rate.max),
			hundredths(reading.median), hundredths(reading.min), hundredths(reading.max),
			hundredths(cost.median), hundredths(cost.min), hundredths(cost.max))
	}
	for _, text := range r.Failed {
		fmt.Fprintf(w, "  failed: %s\n", text)
	}
}

func ms(d time.Duration) float64 { return d.Seconds() * 1e3 }

// figures of the runs that did not fail.
func figures(runs []*run, figure func(*run) float64) (out []float64) {
	for _, r := range runs {
		if r != nil {
			out = append(out, figure(r))
		}
	}
	return out
}

// pair is ours and another, with the same kind of settings.
type pair struct {
	ours, other         entrant
	oursRuns, otherRuns []*run
}

func (r race) pairs() (ps []pair) {
	for i, mine := range r.Entrants {
		for k, other := range r.Entrants {
			if mine.Who == ours && other.Who != ours && mine.Best == other.Best {
				ps = append(ps, pair{mine, other, r.Runs[i], r.Runs[k]})
			}
		}
	}
	return ps
}

// ratios are ours over the other's, each within its round.
func (p pair) ratios(figure func(*run) float64) spread {
	var out []float64
	for round, mine := range p.oursRuns {
		if other := p.otherRuns[round]; mine != nil && other != nil {
			out = append(out, figure(mine)/figure(other))
		}
	}
	return spreadOf(out)
}

// write prints how soon first records came.
func (s starting) write(w io.Writer) {
	const row = "  %-16s %9s %9s %9s\n"
	fmt.Fprintf(w, "\nms from making the client to the first record\n")
	fmt.Fprintf(w, row, "", "median", "min", "max")
	for nth, e := range s.Entrants {
		var waits []float64
		for _, d := range s.Waits[nth] {
			waits = append(waits, ms(d))
		}
		of := spreadOf(waits)
		fmt.Fprintf(w, row, e, whole(of.median), whole(of.min), whole(of.max))
	}
}
