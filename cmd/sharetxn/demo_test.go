package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/demo"
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

// runJSON runs the demo to a good end.
func runJSON(ctx context.Context, t *testing.T, stdin io.Reader, args ...string) demo.Summary {
	t.Helper()
	var out, progress bytes.Buffer
	if code := run(ctx, append([]string{"demo", "--json"}, args...), stdin, &out, &progress); code != exitOK {
		t.Fatalf("exit status %d\n%s\n%s", code, out.String(), progress.String())
	}
	return summary(t, &out)
}

func TestDemoBundled(t *testing.T) {
	ctx := testkit.Deadline(t, 100*time.Second)
	s := runJSON(ctx, t, nil, "--seed", "7")
	if s.Input != 1707 || s.Accepted != 1679 || s.Alerts != 85 || s.Rejected != 28 || s.Outputs != 1679+85+28 {
		t.Errorf("figures: %+v", s)
	}
	if s.Duplicates != 0 || s.Missing != 0 || s.Unexpected != 0 || s.Staged != 0 || s.Lag != 0 || !s.Right || s.Wrong != nil {
		t.Errorf("not right: %+v", s)
	}
	if s.Transactions < 150 || s.Aborts < 5 || s.Seed != 7 || s.Profile != "draft95" {
		t.Errorf("run: %+v", s)
	}
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
		"empty":                        {args: []string{"-"}},
		"more members than partitions": {args: []string{"--members", "5", "--batch", "1", "-"}, stdin: strings.Repeat(event+"\n", 20), input: 20, accepted: 20, alerts: 20},
		"one batch for all":            {args: []string{"--members", "1", "--batch", "10000", "-"}, stdin: strings.Repeat(event+"\n", 20), input: 20, accepted: 20, alerts: 20},
		"long lines":                   {args: []string{"-"}, stdin: long, input: 4, accepted: 1, alerts: 1, rejected: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := runJSON(ctx, t, strings.NewReader(c.stdin), c.args...)
			if s.Input != c.input || s.Accepted != c.accepted || s.Alerts != c.alerts || s.Rejected != c.rejected || !s.Right {
				t.Fatalf("%+v", s)
			}
		})
	}
}

func TestDemoText(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	var out, progress bytes.Buffer
	if code := run(ctx, []string{"demo", "--verbose", "-"}, strings.NewReader(event), &out, &progress); code != exitOK {
		t.Fatalf("exit status %d\n%s\n%s", code, out.String(), progress.String())
	}
	for _, want := range []string{"partition", "audit: right", "input 1: accepted 1, alerts 1, rejected 0; 1 transactions committed"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("not on stdout: %q\n%s", want, out.String())
		}
	}
	if !strings.Contains(progress.String(), "level=DEBUG") {
		t.Errorf("--verbose logs nothing: %s", progress.String())
	}
}

// brokers of the running demo.
func (c *command) brokers(t *testing.T) []string {
	t.Helper()
	_, rest, _ := strings.Cut(c.next(t, "embedded cluster: brokers "), "brokers ")
	seeds, _, _ := strings.Cut(rest, ", profile")
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
			d := begin(ctx, t, "demo", "--json", "-")
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

// What cannot be read is told, and is not a run.
func TestDemoUnreadable(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var out, errs bytes.Buffer
	if code := run(ctx, []string{"demo", t.TempDir()}, nil, &out, &errs); code != exitWrong || out.Len() > 0 || !strings.Contains(errs.String(), "input: ") {
		t.Errorf("exit status %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}
