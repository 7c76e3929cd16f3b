package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
)

// Summary is the one JSON object of a run. Counts are the audit's, from what is
// visible and from the brokers.
type Summary struct {
	Input        int              `json:"input"`
	Accepted     int              `json:"accepted"`
	Rejected     int              `json:"rejected"`
	Outputs      int              `json:"outputs"`
	Alerts       int              `json:"alerts"`
	Duplicates   int              `json:"duplicates"`
	Conceded     int              `json:"conceded"`          // of the duplicates: allowed by guarantee or profile
	Windows      map[string]int   `json:"windows,omitempty"` // the same, by what it says of them
	Missing      int              `json:"missing"`
	Unexpected   int              `json:"unexpected"`
	Staged       int64            `json:"staged"`
	Lag          int64            `json:"lag"`
	Transactions int              `json:"transactions"`
	Aborts       int              `json:"aborts"`
	Seed         uint64           `json:"seed"`
	Profile      string           `json:"profile"`
	Guarantee    string           `json:"guarantee"`
	Level        string           `json:"level"`
	Faults       map[string]Fault `json:"faults"`           // by kind
	Ledger       *Ledger          `json:"ledger,omitempty"` // with guarantee ledger
	Seconds      float64          `json:"seconds"`
	Right        bool             `json:"right"`
	Wrong        []string         `json:"wrong,omitempty"` // in words

	AckAfterCommit *Summary `json:"ackAfterCommit,omitempty"` // the other half of a comparison
}

// Fault is how often a kind was planned, and hit the window it is aimed at.
type Fault struct {
	Planned int `json:"planned"`
	Fired   int `json:"fired"`
}

// Ledger is what the commit ledger kept from being done twice, as members report
// it.
type Ledger struct {
	Done     int64 `json:"done"`     // records redelivered, and found committed
	Waited   int64 `json:"waited"`   // records redelivered while their transaction was undecided
	Refusals int64 `json:"refusals"` // partitions of transactions that were not allowed to commit
}

func (r *result) summary(cfg Config) *Summary {
	a := r.audit
	s := &Summary{
		Input: a.Input, Accepted: a.Accepted, Rejected: a.Rejected, Outputs: a.Outputs, Alerts: a.Alerts,
		Duplicates: a.Duplicates, Conceded: a.Conceded, Windows: a.Windows, Missing: a.Missing, Unexpected: a.Unexpected, Staged: a.Staged, Lag: a.Lag,
		Transactions: a.Commits, Aborts: r.aborts, Seed: cfg.Seed, Profile: r.profile, Guarantee: r.guarantee.String(),
		Level: cfg.Faults.String(), Faults: make(map[string]Fault), Seconds: r.took.Seconds(), Wrong: r.wrong(), Ledger: r.ledger,
	}
	s.Right = len(s.Wrong) == 0
	for k, x := range r.tally {
		s.Faults[faults.Kind(k).String()] = Fault{Planned: x.Planned, Fired: x.Fired}
	}
	return s
}

// wrong is what the audit found, and what did not go wrong that had to.
func (r *result) wrong() []string {
	out := r.audit.Wrong
	for _, u := range r.unfired {
		out = append(out, "fault "+u+" fired in its window")
	}
	return out
}

// proves tells whether the results show what they are to show: the first right,
// and if there is another, that it is not. There every fault must have struck
// too.
func proves(results []*result) bool {
	right := len(results[0].wrong()) == 0
	for _, other := range results[1:] {
		right = right && other.audit.Duplicates > 0 && len(other.unfired) == 0
	}
	return right
}

// report prints the results; the error is ErrWrong or of the printing.
func report(cfg Config, results []*result) error {
	err := error(nil)
	if cfg.JSON {
		s := results[0].summary(cfg)
		for _, other := range results[1:] {
			s.AckAfterCommit = other.summary(cfg)
		}
		err = json.NewEncoder(cfg.Stdout).Encode(s)
	} else {
		err = writeText(cfg, results)
	}
	switch {
	case err != nil:
		return err
	case !proves(results):
		return ErrWrong
	}
	return nil
}

func writeText(cfg Config, results []*result) error {
	r := results[0]
	if err := r.audit.Write(cfg.Stdout); err != nil {
		return err
	}
	if len(r.unfired) > 0 {
		if _, err := fmt.Fprintf(cfg.Stdout, "WRONG: faults that did not fire in their window: %s\n", strings.Join(r.unfired, ", ")); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(cfg.Stdout, "faults fired/planned: %v\ninput %d: accepted %d, alerts %d, rejected %d; %d transactions committed, %d aborted, in %.1f s\n",
		r.tally, r.audit.Input, r.audit.Accepted, r.audit.Alerts, r.audit.Rejected, r.audit.Commits, r.aborts, r.took.Seconds()); err != nil {
		return err
	}
	if l := r.ledger; l != nil {
		if _, err := fmt.Fprintf(cfg.Stdout, "ledger: %d records came again and were found done, %d waited for a transaction that was undecided, %d commits were refused\n", l.Done, l.Waited, l.Refusals); err != nil {
			return err
		}
	}
	if len(results) == 1 {
		return nil
	}
	return writeComparison(cfg.Stdout, results)
}

// writeComparison prints both audits side by side.
func writeComparison(w io.Writer, results []*result) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, value func(*result) any) {
		fmt.Fprint(t, name)
		for _, r := range results {
			fmt.Fprintf(t, "\t%v", value(r))
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(t)
	row("same input, same faults", func(r *result) any { return r.guarantee })
	row("accepted", func(r *result) any { return r.audit.Accepted })
	row("alerts", func(r *result) any { return r.audit.Alerts })
	row("rejected", func(r *result) any { return r.audit.Rejected })
	row("outputs visible", func(r *result) any { return r.audit.Outputs })
	row("duplicates", func(r *result) any { return r.audit.Duplicates })
	row("of these conceded", func(r *result) any { return r.audit.Conceded })
	row("missing", func(r *result) any { return r.audit.Missing })
	row("unexpected", func(r *result) any { return r.audit.Unexpected })
	row("lag", func(r *result) any { return r.audit.Lag })
	row("transactions", func(r *result) any { return r.audit.Commits })
	row("aborts", func(r *result) any { return r.aborts })
	for _, k := range faults.Kinds() {
		row("fault "+k.String(), func(r *result) any { return r.tally[k].Fired })
	}
	row("audit", func(r *result) any { return r.audit.Verdict() })
	if err := t.Flush(); err != nil {
		return err
	}
	if results[1].audit.Duplicates > 0 {
		return nil
	}
	_, err := fmt.Fprintf(w, "WRONG: %v shows no duplicate, so that nothing is compared\n", results[1].guarantee)
	return err
}

// lines lets progress and logs share a writer.
type lines struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
