package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

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
	fmt.Fprintln(w, "  requests a transaction, all together")
	for nth, who := range t.Ways {
		fmt.Fprintf(w, "  %-30s %s\n", transformNames[who], perTransaction(t.Runs[nth]))
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

// perTransaction is how many requests of each kind the runs had for a transaction,
// those most often sent first.
func perTransaction(runs []*run) string {
	transactions, sent := 0, make(map[string]int)
	for _, r := range runs {
		transactions += r.Polls - 1 // what comes before the first has ended is not counted
		for name, n := range r.Requests {
			sent[name] += n
		}
	}
	var all []string
	for _, name := range slices.SortedFunc(maps.Keys(sent), func(a, b string) int { return cmp.Or(cmp.Compare(sent[b], sent[a]), cmp.Compare(a, b)) }) {
		if each := float64(sent[name]) / float64(max(1, transactions)); each >= 0.005 {
			all = append(all, fmt.Sprintf("%s %s", name, hundredths(each)))
		}
	}
	return strings.Join(all, ", ")
}
