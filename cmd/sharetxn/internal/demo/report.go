package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
)

// Summary is the one JSON object of a run. Counts are the audit's, from what is
// visible and from the brokers; only Aborts is the members' own, since an abort
// before anything reached a broker leaves no trace there. Transactions is both:
// the audit fails unless they agree.
type Summary struct {
	Input        int      `json:"input"`
	Accepted     int      `json:"accepted"`
	Rejected     int      `json:"rejected"`
	Outputs      int      `json:"outputs"`
	Alerts       int      `json:"alerts"`
	Duplicates   int      `json:"duplicates"`
	Missing      int      `json:"missing"`
	Unexpected   int      `json:"unexpected"`
	Staged       int64    `json:"staged"`
	Lag          int64    `json:"lag"`
	Transactions int      `json:"transactions"`
	Aborts       int64    `json:"aborts"`
	Seed         uint64   `json:"seed"`
	Profile      string   `json:"profile"`
	Seconds      float64  `json:"seconds"`
	Right        bool     `json:"right"`
	Wrong        []string `json:"wrong,omitempty"` // what the audit found, in words
}

func writeJSON(cfg Config, rep *audit.Report, count *counts, profile string, took time.Duration) error {
	return json.NewEncoder(cfg.Stdout).Encode(Summary{
		Input: rep.Input, Accepted: rep.Accepted, Rejected: rep.Rejected, Outputs: rep.Outputs, Alerts: rep.Alerts,
		Duplicates: rep.Duplicates, Missing: rep.Missing, Unexpected: rep.Unexpected, Staged: rep.Staged, Lag: rep.Lag,
		Transactions: rep.Commits, Aborts: count.aborted.Load(), Seed: cfg.Seed, Profile: profile,
		Seconds: took.Seconds(), Right: rep.OK(), Wrong: rep.Wrong,
	})
}

func writeText(cfg Config, rep *audit.Report, count *counts, took time.Duration) error {
	if err := rep.Write(cfg.Stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(cfg.Stdout, "input %d: accepted %d, alerts %d, rejected %d; %d transactions committed, %d aborted, in %.1f s\n",
		rep.Input, rep.Accepted, rep.Alerts, rep.Rejected, rep.Commits, count.aborted.Load(), took.Seconds())
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
