package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// once is `make bench` at its least: everything runs, and each run checks what
// it did. At least two transactions are needed, since the first starts the clock,
// and more records than a first poll gives. Default settings run in the contest of
// first records.
var once = measurement{
	held: contests, rounds: 1, transactions: 1, heartbeat: 500 * time.Millisecond,
	consume: consumption{Records: 20_000, Partitions: 2, Batch: 16 << 10, Fetch: 4000}, sizes: []int{100}, txns: []int{50}, perRun: func(int) int { return 1000 }, who: contenders, best: []bool{true},
	copies: []copies{{2, 1}, {200, 100}, {2000, 1000}},
}

var (
	namesOnKafka = []string{
		"transactions of one record, on Kafka " + kafka.Version(), "kgo: ", "producer, one", "producer, AlternateIDs(2)",
		"records of 100 bytes read", "ours, best ", "kgo, best ", "java, best ", "floor, best ",
		"ours, best : kgo", "ours, best : java", "ours, best : floor",
		"to the first record", "ours, default ", "kgo, default ", "java, default ",
		"50 a transaction: 1000 a run", "Processor, Ledger ", "Processor, AckAfterCommit ", "kgo, one transactional id ", "kgo, two in turn ",
		"ledger : Processor, AckAfterCommit", "ledger : kgo, one", "ledger : kgo, two",
	}
	namesEmbedded = []string{"1 a transaction, on the embedded", "100 a transaction", "1000 a transaction", "CommitSync", "CommitAsync", "Processor, Handler", "Processor, BatchHandler"}
)

const missing = "Nothing was measured on real Kafka, which needs Java and Maven"

// Everything that `make bench` runs, once: it must not rot between two looks at
// the figures.
func TestOnce(t *testing.T) {
	ctx := testkit.Deadline(t, 8*time.Minute)
	m := once
	m.profiles = filepath.Join(t.TempDir(), "profiles")
	m.json = filepath.Join(t.TempDir(), "figures.json")
	var out, progress bytes.Buffer
	if err := m.take(ctx, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	profiles := []string{"copies.prof"}
	want := namesEmbedded
	// Where Kafka can be had it is not left out, and in CI it can.
	if onKafka := !strings.Contains(out.String(), missing) || os.Getenv("CI") == "true"; onKafka {
		want = append(namesOnKafka, namesEmbedded...)
		for _, e := range field([]string{ours, kgos, floor}, true) {
			profiles = append(profiles, profileName("consume-100", e))
		}
		for _, who := range transformWays {
			profiles = append(profiles, profileName("transform-100-50", entrant{Who: who}))
		}
		checkFigures(t, m.json, &progress)
	}
	wantText(t, out.String(), want...)
	for _, name := range profiles {
		if s, err := os.Stat(filepath.Join(m.profiles, name)); err != nil || s.Size() == 0 {
			t.Errorf("the profile: %v, %v", s, err)
		}
	}
}

// checkFigures looks for what every run must have told.
func checkFigures(t *testing.T, file string, progress *bytes.Buffer) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Standings  []struct{ Ways []struct{ Rates []float64 } }
		Races      []race
		Starting   starting
		Transforms []transformed
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Standings) != 4 || len(got.Standings[0].Ways) != 3 || len(got.Standings[0].Ways[0].Rates) != 1 {
		t.Errorf("standings %+v, want 4, with 3 ways of one round in the first", got.Standings)
	}
	if len(got.Races) != 1 || len(got.Races[0].Failed) > 0 {
		t.Fatalf("races %+v, want one where nothing failed\n%s", got.Races, progress)
	}
	for nth, e := range got.Races[0].Entrants {
		rs := got.Races[0].Runs[nth]
		if len(rs) != 1 || rs[0] == nil {
			t.Fatalf("%v: %d runs, want one", e, len(rs))
		}
		if r := rs[0]; r.Records != 20_000 || r.Start <= 0 || r.Acked <= 0 || r.CPU <= 0 {
			t.Errorf("%v: %+v", e, r)
		}
	}
	if len(got.Transforms) != 1 || len(got.Transforms[0].Runs) != len(transformWays) {
		t.Fatalf("transforms %+v, want one with every way", got.Transforms)
	}
	for nth, who := range transformWays {
		if rs := got.Transforms[0].Runs[nth]; len(rs) != 1 || rs[0].Records != 1000 || rs[0].Acked <= 0 || rs[0].CPU <= 0 {
			t.Errorf("%s: %+v", who, rs)
		}
	}
	for nth, e := range got.Starting.Entrants {
		if w := got.Starting.Waits[nth]; len(w) != 1 || w[0] <= 0 {
			t.Errorf("%v: waited %v for its first record", e, w)
		}
	}
}

// Without Java the table says so, and has the rest.
func TestWithoutJava(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	t.Setenv("PATH", t.TempDir())
	var out, progress bytes.Buffer
	if err := once.take(ctx, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	wantText(t, out.String(), append([]string{missing, "java"}, namesEmbedded...)...)
	if strings.Contains(out.String(), namesOnKafka[0]) {
		t.Errorf("figures of a Kafka that cannot run:\n%s", &out)
	}
}

func wantText(t *testing.T, got string, want ...string) {
	t.Helper()
	for _, w := range want {
		if !strings.Contains(got, w) {
			t.Errorf("%q is not in the output:\n%s", w, got)
		}
	}
}
