package main

import (
	"fmt"
	"io"
	"math"
	"slices"
)

// write prints the standings as one table. Nothing in it judges.
func write(w io.Writer, standings []standing) {
	const row = "  %-50s %10s %10s %10s   %6s %6s %6s\n"
	fmt.Fprintf(w, row, "", "a second", "min", "max", "ratio", "min", "max")
	for _, s := range standings {
		fmt.Fprintf(w, "\n%s\n", s.title)
		for nth, way := range s.ways {
			rate, ratio := spreadOf(s.rates[nth]), spreadOf(s.ratios(nth))
			fmt.Fprintf(w, row, way.name, whole(rate.median), whole(rate.min), whole(rate.max),
				hundredths(ratio.median), hundredths(ratio.min), hundredths(ratio.max))
		}
	}
}

func whole(f float64) string { return fmt.Sprintf("%.0f", f) }

func hundredths(f float64) string { return fmt.Sprintf("%.2f", f) }

// spread of some figures.
type spread struct{ median, min, max float64 }

// spreadOf no figures is all NaN, which prints as that.
func spreadOf(figures []float64) spread {
	if len(figures) == 0 {
		return spread{math.NaN(), math.NaN(), math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(figures))
	n := len(sorted)
	return spread{median: (sorted[(n-1)/2] + sorted[n/2]) / 2, min: sorted[0], max: sorted[n-1]}
}
