package audit

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
)

// Row is one source partition and what is visible of its records.
type Row struct {
	Partition  int32 // -1: inputs that are on no source partition
	Inputs     int
	Accepted   int // with an enriched output
	Alerts     int
	Rejected   int // with a dead letter
	Missing    int // here and on the output topics
	Duplicates int // the same
	Conceded   int // of these
	Start, End int64
	Lag        int64
}

// Report is what was found. Its counts are of what is visible, not of what
// anybody reports.
type Report struct {
	Rows       []Row
	Input      int
	Accepted   int
	Rejected   int
	Alerts     int
	Outputs    int // records on all output topics, right or not
	Duplicates int
	Conceded   int            // duplicates that guarantee or profile allow
	Windows    map[string]int // the same, by what they say of them
	Missing    int
	Unexpected int // records that no input becomes
	Staged     int64
	Lag        int64
	Open       int      // transactions that have not ended
	Commits    int      // transactions with a commit marker on an output topic
	Aborts     int      // the same for aborts: fewer than aborts, where nothing reached a broker before
	Wrong      []string // every finding in words, sorted; empty if all is right

	rows map[int32]*Row
}

// OK tells whether everything is right.
func (r *Report) OK() bool { return len(r.Wrong) == 0 }

// Verdict is the report in two words.
func (r *Report) Verdict() string {
	switch {
	case !r.OK():
		return "WRONG"
	case r.Conceded > 0:
		return "at least once"
	}
	return "exactly once"
}

// legend says what the columns and counts mean that do not speak for themselves.
const legend = `start: the group's start offset as last written, which trails; end: of the log; lag: inputs not done yet
missing, duplicates: outputs; conceded: duplicates that guarantee or profile allow; unexpected: outputs that no input becomes
markers: an abort before anything was written leaves none
`

// Write prints the table and the verdict.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "partition\tinputs\taccepted\talerts\trejected\tmissing\tduplicates\tconceded\tstart\tend\tlag\t")
	inputs := 0
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", x.Partition, x.Inputs, x.Accepted, x.Alerts, x.Rejected, x.Missing, x.Duplicates, x.Conceded, x.Start, x.End, x.Lag)
		inputs += x.Inputs
	}
	fmt.Fprintf(t, "all\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\t\t%d\t\n", inputs, r.Accepted, r.Alerts, r.Rejected, r.Missing, r.Duplicates, r.Conceded, r.Lag)
	if err := t.Flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprint(w, legend); err != nil {
		return err
	}
	verdict := "audit: right. Each input's outputs are visible exactly once, each input is acknowledged, nothing is left open"
	switch {
	case !r.OK():
		verdict = "audit: WRONG"
	case r.Conceded > 0:
		verdict = "audit: right, but at least once. Each input's outputs are visible, more than once only where guarantee or profile concede it; each input is acknowledged, nothing is left open"
	}
	if _, err := fmt.Fprintf(w, "unexpected %d, staged %d, open transactions %d; markers on the output topics: %d of commits, %d of aborts\n%s\n", r.Unexpected, r.Staged, r.Open, r.Commits, r.Aborts, verdict); err != nil {
		return err
	}
	for _, window := range slices.Sorted(maps.Keys(r.Windows)) {
		if _, err := fmt.Fprintf(w, "  %d duplicates conceded: %s\n", r.Windows[window], window); err != nil {
			return err
		}
	}
	for _, x := range r.Wrong {
		if _, err := fmt.Fprintln(w, " ", x); err != nil {
			return err
		}
	}
	return nil
}
