package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/demo"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

const event = `{"id":"a","properties":{"mag":5,"type":"earthquake"}}`

// summary reads the one object on stdout.
func summary(t *testing.T, out io.Reader) (s demo.Summary) {
	t.Helper()
	d := json.NewDecoder(out)
	if err := d.Decode(&s); err != nil {
		t.Fatal(err)
	}
	if d.More() {
		t.Fatal("more than one object on stdout")
	}
	return s
}

// runDemoTo runs the demo to its end.
func runDemoTo(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) (code int, out, progress *bytes.Buffer) {
	t.Helper()
	out, progress = &bytes.Buffer{}, &bytes.Buffer{}
	code = run(ctx, append([]string{"demo"}, args...), stdin, out, progress, &left)
	return code, out, progress
}

// runJSON runs the demo to a good end.
func runJSON(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) demo.Summary {
	t.Helper()
	code, out, progress := runDemoTo(ctx, t, stdin, append([]string{"--json"}, args...)...)
	if code != exitOK {
		t.Fatalf("exit status %d\n%s\n%s", code, out.String(), progress.String())
	}
	return summary(t, out)
}

// bundled holds a summary against the figures of the bundled input.
func bundled(t *testing.T, s demo.Summary, guarantee string, each int) {
	t.Helper()
	if s.Input != 1707 || s.Accepted != 1679 || s.Alerts != 85 || s.Rejected != 28 || s.Outputs != 1679+85+28+s.Duplicates {
		t.Errorf("figures: %+v", s)
	}
	if s.Duplicates != s.Conceded || s.Missing != 0 || s.Unexpected != 0 || s.Staged != 0 || s.Lag != 0 || !s.Right || s.Wrong != nil {
		t.Errorf("not right: %+v", s)
	}
	if s.Transactions < 150 || s.Guarantee != guarantee {
		t.Errorf("run: %+v", s)
	}
	fired(t, s, each)
}

// fired checks that each kind of fault fired as planned.
func fired(t *testing.T, s demo.Summary, each int) {
	t.Helper()
	if len(s.Faults) != len(faults.Kinds()) {
		t.Errorf("faults: %v", s.Faults)
	}
	for k, f := range s.Faults {
		if f.Planned != each || f.Fired != each {
			t.Errorf("fault %s: %+v, want %d of each", k, f, each)
		}
	}
}

func TestDemoOff(t *testing.T) {
	ctx := testkit.Deadline(t, 100*time.Second)
	s := runJSON(ctx, t, nil, "--faults", "off")
	bundled(t, s, "staged", 0)
	if s.Duplicates != 0 || s.Aborts != 0 || s.Level != "off" || s.AckAfterCommit != nil {
		t.Errorf("%+v", s)
	}
}

// The runs with faults mostly wait, for locks and sessions to end.

func TestDemoHeavy(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	s := runJSON(ctx, t, nil, "--faults", "heavy")
	bundled(t, s, "staged", 3)
	// Those that were killed and the zombies.
	if s.Duplicates != 0 || s.Aborts < 6 || s.Seed != 1 || s.Profile != "draft95" || s.Level != "heavy" {
		t.Errorf("%+v", s)
	}
}

// With the ledger it is exactly once on what looks like stock Kafka, under the same
// faults: those between commit and acknowledgement, where ack-after-commit doubles.
func TestDemoLedger(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	s := runJSON(ctx, t, nil, "--guarantee", "ledger", "--compare")
	bundled(t, s, "ledger", 1)
	other := s.AckAfterCommit
	if s.Duplicates != 0 || s.Aborts < 1 || s.Profile != "none" || other == nil || other.Duplicates == 0 {
		t.Fatalf("%+v, and %+v", s, other)
	}
	if s.Ledger == nil || s.Ledger.Done == 0 || other.Ledger != nil {
		t.Errorf("ledger %+v, and %+v", s.Ledger, other.Ledger)
	}
}

// In profile KIP93 what is staged when its leader moves is delivered, and
// published, once more: the text says so, and so does the audit.
func TestDemoKIP93(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	s := runJSON(ctx, t, nil, "--faults", "heavy", "--profile", "kip93")
	bundled(t, s, "staged", 3)
	if s.Profile != "kip93" || s.Conceded == 0 {
		t.Fatalf("%+v", s)
	}
	sum := 0
	for window, n := range s.Windows {
		sum += n
		if !strings.Contains(window, "leader or broker was lost while it was staged") && !strings.Contains(window, "lock ended while it was staged") {
			t.Errorf("%d duplicates conceded by %q", n, window)
		}
	}
	if sum != s.Conceded {
		t.Errorf("%d conceded, %v", s.Conceded, s.Windows)
	}
}

// The same input and the same faults without exactly once double outputs; what
// goes wrong by default is light.
func TestDemoCompare(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	s := runJSON(ctx, t, nil, "--compare", "--seed", "7")
	bundled(t, s, "staged", 1)
	other := s.AckAfterCommit
	if s.Duplicates != 0 || s.Aborts < 2 || s.Seed != 7 || s.Level != "light" || other == nil {
		t.Fatalf("%+v", s)
	}
	if other.Guarantee != "ack-after-commit" || other.Profile != "none" || other.Input != 1707 || !other.Right || other.Duplicates == 0 || other.Conceded != other.Duplicates || other.Missing != 0 || other.Lag != 0 {
		t.Errorf("ack-after-commit: %+v", other)
	}
	fired(t, *other, 1)
}

func TestDemoInputs(t *testing.T) {
	ctx := testkit.Deadline(t, 100*time.Second)
	file := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(file, []byte(event+"\n\nnot json\n"+event), 0o600); err != nil {
		t.Fatal(err)
	}
	// As long as a line may be: the copy on the dead topic has a key and a
	// reason as well, the place of an event grows in its output.
	type props struct {
		Mag   float64 `json:"mag"`
		Type  string  `json:"type"`
		Place string  `json:"place"`
	}
	line := func(id string, p props) string {
		b, err := json.Marshal(map[string]any{"id": id, "properties": p})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	long := strings.Join([]string{
		line(strings.Repeat("i", 899_000), props{Mag: 5, Type: "earthquake"}),
		line("b", props{Mag: 5, Type: strings.Repeat("t", 899_000)}),
		line("c", props{Mag: 5, Type: "earthquake", Place: strings.Repeat("<", 149_000)}),
		strings.Repeat("x", 900_000),
	}, "\n")
	for name, c := range map[string]struct {
		args                              []string
		stdin                             string
		input, accepted, alerts, rejected int
	}{
		"a file, no newline at the end, twice the same": {args: []string{file}, input: 3, accepted: 2, alerts: 2, rejected: 1},
		"stdin":                        {args: []string{"-"}, stdin: event + "\r\n", input: 1, accepted: 1, alerts: 1},
		"more members than partitions": {args: []string{"--members", "5", "--batch", "1", "-"}, stdin: strings.Repeat(event+"\n", 20), input: 20, accepted: 20, alerts: 20},
		"one batch for all":            {args: []string{"--members", "1", "--batch", "10000", "-"}, stdin: strings.Repeat(event+"\n", 20), input: 20, accepted: 20, alerts: 20},
		"long lines":                   {args: []string{"-"}, stdin: long, input: 4, accepted: 1, alerts: 1, rejected: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := runJSON(ctx, t, strings.NewReader(c.stdin), append([]string{"--faults", "off"}, c.args...)...)
			if s.Input != c.input || s.Accepted != c.accepted || s.Alerts != c.alerts || s.Rejected != c.rejected || !s.Right {
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestDemoText(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 100*time.Second)
	code, out, progress := runDemoTo(ctx, t, strings.NewReader(strings.Repeat(event+"\n", 300)), "--compare", "--verbose", "--batch", "2", "-")
	if code != exitOK {
		t.Fatalf("exit status %d\n%s", code, out.String())
	}
	for _, want := range []string{
		"partition", "lag: inputs not done yet", "conceded: duplicates that guarantee or profile allow", "unexpected: outputs that no input becomes", "audit: right", "input 300: accepted 300, alerts 300, rejected 0; ", "faults fired/planned: handler-error 1/1, ",
		"same input, same faults   staged        ack-after-commit\n", "accepted                  300           300\n", "audit                     exactly once  at least once\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not on stdout: %q\n%s", want, out.String())
		}
	}
	told := regexp.MustCompile(`300 of 300 records, (\d+) transactions committed, (\d+) aborted`).FindAllStringSubmatch(progress.String(), -1)
	if len(told) < 2 { // one for each half, and those in between
		t.Fatalf("progress: %s", progress.String())
	}
	if last := told[len(told)-1]; !regexp.MustCompile(`\ntransactions +\d+ +` + last[1] + `\naborts +\d+ +` + last[2] + `\n`).MatchString(out.String()) {
		t.Errorf("progress ends with %v, the summary is\n%s", last, out.String())
	}
	for _, want := range []string{"level=DEBUG", "fault killed 1 of 1: process p", "locks 2s, transaction timeout 1s, sessions 3s", "300 of 300 records"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("not told: %q", want)
		}
	}
}

// brokers of the running demo.
func (c *command) brokers(t *testing.T) []string {
	t.Helper()
	_, rest, _ := strings.Cut(c.next(t, "embedded cluster: brokers "), "brokers ")
	seeds, _, _ := strings.Cut(rest, "; profile")
	return strings.Split(seeds, ",")
}

// Who meddles with the topics of a running demo, over the wire, is found out.
func TestDemoWrong(t *testing.T) {
	for name, c := range map[string]struct {
		opts []kgo.Opt
		says string
	}{
		"an alert from elsewhere": {says: "topic quakes.alerts: 1 unexpected"},
		"a transaction that hangs": {
			opts: []kgo.Opt{kgo.TransactionalID("meddler")},
			says: "1 transactions are still open",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := testkit.Deadline(t, 60*time.Second)
			d := begin(ctx, t, "demo", "--json", "--faults", "off", "-")
			cl, err := kgo.NewClient(append(c.opts, kgo.SeedBrokers(d.brokers(t)...))...)
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			if c.opts != nil {
				if err := cl.BeginTransaction(); err != nil {
					t.Fatal(err)
				}
			}
			if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "quakes.alerts", Value: []byte("flood")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(d.stdin, event)
			_ = d.stdin.Close()
			d.exit(t, exitWrong)
			s := summary(t, d.stdout)
			if s.Right || !slices.Contains(s.Wrong, c.says) || s.Accepted != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// An interrupted demo ends soon and clean, and claims nothing.
func TestDemoInterrupted(t *testing.T) {
	t.Run("while reading", func(t *testing.T) {
		ctx := testkit.Deadline(t, 30*time.Second)
		d := begin(ctx, t, "demo", "-")
		d.next(t, "members")
		d.stop(errSignal)
		d.next(t, "stopped before the end: interrupt signal received")
		d.exit(t, exitInterrupted)
	})
	t.Run("while working", func(t *testing.T) {
		ctx := testkit.Deadline(t, 60*time.Second)
		d := begin(ctx, t, "demo", "--json", "--batch", "1", "-")
		d.next(t, "members")
		fmt.Fprint(d.stdin, strings.Repeat(event+"\n", 20_000))
		_ = d.stdin.Close()
		d.next(t, "of 20000 records")
		d.stop(errSignal)
		d.next(t, "stopped before the end: interrupt signal received")
		d.exit(t, exitInterrupted)
		if d.stdout.Len() > 0 {
			t.Errorf("printed %q", d.stdout.String())
		}
	})
}

// What cannot be read, or has nothing to audit, is told, and is not a run.
func TestDemoUnreadable(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for name, c := range map[string]struct{ file, stdin, says string }{
		"a folder":    {t.TempDir(), "", "input: read "},
		"empty":       {"-", "", "input: no record, so that there is nothing to audit"},
		"blank lines": {"-", "\n\r\n\n", "input: no record, so that there is nothing to audit"},
	} {
		t.Run(name, func(t *testing.T) {
			if code, out, errs := runDemoTo(ctx, t, strings.NewReader(c.stdin), c.file); code != exitWrong || out.Len() > 0 || !strings.Contains(errs.String(), c.says) {
				t.Errorf("exit status %d, stdout %q, stderr %q", code, out.String(), errs.String())
			}
		})
	}
}
