// Package audit proves, or disproves, a run of the demo from what the brokers
// hold: it reads every topic read_committed with plain kgo, recomputes the
// expected outputs from the input, and asks the brokers for lag, transactions
// and last stable offsets. It imports nothing of producer, shareconsumer or
// txnmanager, and believes nothing that they say; a test holds that.
package audit

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/quake"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Topics of a run.
type Topics struct{ Source, Enriched, Alerts, Dead string }

func (t Topics) all() []string { return []string{t.Source, t.Enriched, t.Alerts, t.Dead} }

// Config of an audit.
type Config struct {
	Seeds  []string
	Group  string
	Topics Topics
	Input  [][]byte // what was fed, a record each
}

// Row is one source partition.
type Row struct {
	Partition                  int32
	Inputs, Accepted, Rejected int
	Outputs, Alerts, Dead      int
	Start, End, Lag            int64
}

// Report is what was found.
type Report struct {
	Rows       []Row
	Input      int
	Accepted   int // inputs with an enriched output
	Rejected   int // inputs with a copy on the dead topic
	Outputs    int // records on all output topics
	Alerts     int
	Duplicates int
	Missing    int
	Unexpected int
	Staged     int64 // offsets acquired or staged and not done: lag of the group
	Lag        int64
	Open       int      // transactions that have not ended
	Wrong      []string // every finding in words; empty if all is right
}

// OK tells whether everything is right.
func (r *Report) OK() bool { return len(r.Wrong) == 0 }

func (r *Report) wrong(format string, args ...any) {
	r.Wrong = append(r.Wrong, fmt.Sprintf(format, args...))
}

// Run audits. An error means that the brokers could not be asked.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(cfg.Seeds...))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	facts, err := gather(ctx, cfg, cl)
	if err != nil {
		return nil, err
	}
	return Judge(cfg, facts), nil
}

// Record is one record as a read_committed reader sees it.
type Record struct {
	Partition int32
	Value     string
	Reason    string // of a dead letter
}

// Facts are what the brokers hold.
type Facts struct {
	Records map[string][]Record // by topic
	Stable  map[string]bool     // last stable offset = high watermark on all partitions
	Lag     map[int32]Progress  // of the group, by source partition
	Open    int                 // transactions under way
}

// Progress is a share partition.
type Progress struct{ Start, End, Lag int64 }

// Judge is pure: it holds facts against what the input must become.
func Judge(cfg Config, f Facts) *Report {
	r := &Report{Input: len(cfg.Input), Open: f.Open}
	source := counts(f.Records[cfg.Topics.Source])
	fed := make(map[string]int)
	for _, line := range cfg.Input {
		fed[string(line)]++
	}
	compare(r, cfg.Topics.Source, fed, source)

	expected := map[string]map[string]int{cfg.Topics.Enriched: {}, cfg.Topics.Alerts: {}, cfg.Topics.Dead: {}}
	home := make(map[string]int32) // source partition of an expected output
	rows := make(map[int32]*Row)
	if len(f.Lag) == 0 && len(cfg.Input) > 0 {
		r.wrong("the share group %s is not known to the brokers", cfg.Group)
	}
	for p, at := range f.Lag {
		rows[p] = &Row{Partition: p, Start: at.Start, End: at.End, Lag: at.Lag}
		r.Lag += max(at.Lag, 0)
		if at.Lag != 0 && (at.Lag > 0 || at.End > 0) {
			r.wrong("partition %d: %d of %d records are not done for the group (start offset %d)", p, at.Lag, at.End, at.Start)
		}
	}
	row := func(p int32) *Row {
		if rows[p] == nil {
			rows[p] = &Row{Partition: p}
		}
		return rows[p]
	}
	for _, rec := range f.Records[cfg.Topics.Source] {
		row(rec.Partition).Inputs++
		res := quake.Transform([]byte(rec.Value))
		add := func(topic, value string) {
			expected[topic][value]++
			home[topic+value] = rec.Partition
		}
		if res.Rejected() {
			add(cfg.Topics.Dead, dead(rec.Value, res.Reason))
			continue
		}
		add(cfg.Topics.Enriched, string(res.Enriched))
		if res.Alert != nil {
			add(cfg.Topics.Alerts, string(res.Alert))
		}
	}
	for topic, want := range expected {
		got := counts(f.Records[topic])
		compare(r, topic, want, got)
		for value, n := range got {
			p, known := home[topic+value]
			if !known {
				continue
			}
			n := min(n, want[value])
			switch topic {
			case cfg.Topics.Enriched:
				row(p).Accepted += n
				row(p).Outputs += n
				r.Accepted += n
			case cfg.Topics.Alerts:
				row(p).Alerts += n
				r.Alerts += n
			case cfg.Topics.Dead:
				row(p).Dead += n
				row(p).Rejected += n
				r.Rejected += n
			}
		}
		r.Outputs += len(f.Records[topic])
	}
	r.Staged = r.Lag
	for topic, stable := range f.Stable {
		if !stable {
			r.wrong("topic %s: the last stable offset is below the high watermark: a transaction hangs", topic)
		}
	}
	if f.Open > 0 {
		r.wrong("%d transactions are still open", f.Open)
	}
	for _, row := range rows {
		r.Rows = append(r.Rows, *row)
	}
	slices.SortFunc(r.Rows, func(a, b Row) int { return int(a.Partition - b.Partition) })
	slices.Sort(r.Wrong)
	return r
}

// dead is a dead letter in one text: its value and its reason.
func dead(value, reason string) string { return reason + "\x00" + value }

func counts(rs []Record) map[string]int {
	m := make(map[string]int)
	for _, r := range rs {
		v := r.Value
		if r.Reason != "" {
			v = dead(r.Value, r.Reason)
		}
		m[v]++
	}
	return m
}

// compare holds what is visible against what must be.
func compare(r *Report, topic string, want, got map[string]int) {
	var missing, duplicates, unexpected int
	for v, n := range want {
		missing += max(0, n-got[v])
		duplicates += max(0, got[v]-n)
	}
	for v, n := range got {
		if want[v] == 0 {
			unexpected += n
		}
	}
	r.Missing += missing
	r.Duplicates += duplicates
	r.Unexpected += unexpected
	for what, n := range map[string]int{"missing": missing, "duplicate": duplicates, "unexpected": unexpected} {
		if n > 0 {
			r.wrong("topic %s: %d %s records", topic, n, what)
		}
	}
}

// Write prints the table and the verdict.
func (r *Report) Write(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "partition\tinputs\taccepted\trejected\toutputs\talerts\tdead\tstart\tend\tlag\t")
	sum := Row{}
	for _, x := range r.Rows {
		fmt.Fprintf(t, "%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t\n", x.Partition, x.Inputs, x.Accepted, x.Rejected, x.Outputs, x.Alerts, x.Dead, x.Start, x.End, x.Lag)
		sum.Inputs += x.Inputs
		sum.Accepted += x.Accepted
		sum.Rejected += x.Rejected
		sum.Outputs += x.Outputs
		sum.Alerts += x.Alerts
		sum.Dead += x.Dead
		sum.Lag += x.Lag
	}
	fmt.Fprintf(t, "all\t%d\t%d\t%d\t%d\t%d\t%d\t\t\t%d\t\n", sum.Inputs, sum.Accepted, sum.Rejected, sum.Outputs, sum.Alerts, sum.Dead, sum.Lag)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "duplicates %d, missing %d, unexpected %d, open transactions %d\n", r.Duplicates, r.Missing, r.Unexpected, r.Open)
	for _, x := range r.Wrong {
		fmt.Fprintln(w, "WRONG:", x)
	}
	if r.OK() {
		fmt.Fprintln(w, "audit: right; every input's outputs are visible exactly once, every input is done")
	}
	return nil
}
