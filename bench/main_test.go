package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// once is `make bench` at its least: everything runs, and each run checks what
// it did. At least two transactions are needed, since the first starts the clock.
var once = measurement{rounds: 1, transactions: 1, copies: []copies{{2, 1}, {200, 100}, {2000, 1000}}}

var (
	namesOnKafka  = []string{"transactions of one record, on Kafka " + kafka.Version(), "kgo: ", "producer, one", "producer, AlternateIDs(2)"}
	namesEmbedded = []string{"1 a transaction, on the embedded", "100 a transaction", "1000 a transaction", "CommitSync", "CommitAsync", "Processor, Handler", "Processor, BatchHandler"}
)

const missing = "Nothing was measured on real Kafka, which needs Java and Maven"

// Everything that `make bench` runs, once: it must not rot between two looks at
// the figures.
func TestOnce(t *testing.T) {
	ctx := testkit.Deadline(t, 5*time.Minute)
	m := once
	m.profile = filepath.Join(t.TempDir(), "cpu")
	var out, progress bytes.Buffer
	if err := m.take(ctx, &out, &progress); err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	want := namesEmbedded
	// Where Kafka can be had it is not left out, and in CI it can.
	if !strings.Contains(out.String(), missing) || os.Getenv("CI") == "true" {
		want = append(namesOnKafka, namesEmbedded...)
	}
	wantText(t, out.String(), want...)
	if s, err := os.Stat(m.profile); err != nil || s.Size() == 0 {
		t.Errorf("the profile: %v, %v", s, err)
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
