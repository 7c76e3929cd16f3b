package main

import (
	"fmt"
	"io"

	"github.com/sharetxn/sharetxn/bench/contender"
)

// write prints what the ways reached, and what the ledger did beside each other,
// round by round.
func (t transformed) write(w io.Writer) {
	c := t.Contest
	fmt.Fprintf(w, "\n%s: %d a run, %d partitions, producer batches of up to %d bytes\n", c.title(), c.Records, c.Partitions, c.Batch)
	const row = "  %-30s %9s %9s %9s  %9s %9s %7s  %7s\n"
	fmt.Fprintf(w, row, "", "a second", "min", "max", "client us", "broker us", "cores", "peak MB")
	for nth, who := range t.Ways {
		of := func(figure func(*run) float64) spread { return spreadOf(figures(t.Runs[nth], figure)) }
		rate := of((*run).rate)
		fmt.Fprintf(w, row, transformNames[who], whole(rate.median), whole(rate.min), whole(rate.max),
			hundredths(of((*run).cost).median), hundredths(of((*run).brokerCost).median), hundredths(of((*run).cores).median),
			whole(of(func(r *run) float64 { return float64(r.Peak) / (1 << 20) }).max))
	}
	const ratio = "  %-40s %9s %6s %6s  %9s %6s %6s\n"
	fmt.Fprintf(w, ratio, "ratios within a round", "a second", "min", "max", "client us", "min", "max")
	for nth, who := range t.Ways[1:] {
		p := pair{oursRuns: t.Runs[0], otherRuns: t.Runs[nth+1]}
		rate, cost := p.ratios((*run).rate), p.ratios((*run).cost)
		fmt.Fprintf(w, ratio, t.Ways[0]+" : "+transformNames[who], hundredths(rate.median), hundredths(rate.min), hundredths(rate.max),
			hundredths(cost.median), hundredths(cost.min), hundredths(cost.max))
	}
}

var transformNames = map[string]string{
	contender.Ledger:         "Processor, Ledger",
	contender.AckAfterCommit: "Processor, AckAfterCommit",
	contender.KgoOne:         "kgo, one transactional id",
	contender.KgoTwo:         "kgo, two in turn",
}
