package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// elsewhere is a cluster that the demo has not started, with somebody else's topic
// and open transaction on it.
type elsewhere struct {
	*broker.Cluster
	admin *kadm.Client
}

func startElsewhere(ctx context.Context, t *testing.T, cfg broker.Config) *elsewhere {
	t.Helper()
	cfg.Topics, cfg.SessionTimeout, cfg.HeartbeatInterval = map[string]int32{"theirs": 1}, time.Second, 100*time.Millisecond
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	k, err := kgo.NewClient(kgo.SeedBrokers(b.Seeds()...), kgo.TransactionalID("theirs"), kgo.MetadataMinAge(10*time.Millisecond), kgo.DisableClientMetrics()) // topics are listed anew
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	if err := k.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := k.ProduceSync(ctx, &kgo.Record{Topic: "theirs"}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return &elsewhere{b, kadm.NewClient(k)}
}

func (e *elsewhere) bootstrap() string { return strings.Join(e.Seeds(), ",") }

// holds lists the topics and groups there.
func (e *elsewhere) holds(ctx context.Context, t *testing.T) (topics, groups []string) {
	t.Helper()
	all, err := e.admin.ListTopics(ctx)
	if err != nil {
		t.Fatal(err)
	}
	listed, err := e.admin.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return all.Names(), slices.Sorted(maps.Keys(listed))
}

// empty checks that nothing of the demo is left there.
func (e *elsewhere) empty(ctx context.Context, t *testing.T) {
	t.Helper()
	topics, groups := e.holds(ctx, t)
	if !slices.Equal(topics, []string{"theirs"}) || len(groups) > 0 {
		t.Errorf("left: topics %q, groups %q", topics, groups)
	}
}

// On a cluster that was there before the demo has the same figures and faults,
// and leaves nothing.
func TestDemoBootstrap(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	e := startElsewhere(ctx, t, broker.Config{Brokers: 3})
	s := runJSON(ctx, t, nil, "--bootstrap", e.bootstrap())
	bundled(t, s, "staged", 1)
	if s.Duplicates != 0 || s.Profile != "draft95" || s.Aborts == 0 {
		t.Errorf("%+v", s)
	}
	e.empty(ctx, t)
}

// On one broker that looks like stock Kafka no leader moves, which is said; with
// --keep what was made stays, and is named.
func TestDemoKeep(t *testing.T) {
	t.Parallel()
	ctx := testkit.Deadline(t, 200*time.Second)
	e := startElsewhere(ctx, t, broker.Config{Stock44: true})
	code, out, progress := runDemoTo(ctx, t, nil, "--bootstrap", e.bootstrap(), "--guarantee", "ledger", "--keep")
	if code != exitOK || !strings.Contains(out.String(), "audit: right. Each input's outputs are visible exactly once") || strings.Contains(out.String(), "leader-move") {
		t.Fatalf("exit status %d\n%s\n%s", code, out.String(), progress.String())
	}
	if !strings.Contains(progress.String(), "fault leader-move is left out: the cluster has one broker") {
		t.Errorf("told %s", progress.String())
	}
	topics, groups := e.holds(ctx, t)
	if len(topics) != 6 || len(groups) != 1 {
		t.Fatalf("kept: topics %q, groups %q", topics, groups)
	}
	_, kept, _ := strings.Cut(progress.String(), "kept: ")
	for _, name := range slices.Concat(topics, groups) {
		if name != "theirs" && (!strings.HasPrefix(strings.TrimPrefix(name, "__sharetxn_ledger."), "demo-") || !strings.Contains(kept, name)) {
			t.Errorf("kept %q, told %q", name, kept)
		}
	}
}

// Whatever ends the demo early, nothing is left. Where staging is not proven it
// begins nothing, and says what to do.
func TestDemoBootstrapEndsEarly(t *testing.T) {
	t.Parallel()
	t.Run("no staging", func(t *testing.T) {
		ctx := testkit.Deadline(t, 60*time.Second)
		e := startElsewhere(ctx, t, broker.Config{Stock44: true})
		code, out, progress := runDemoTo(ctx, t, strings.NewReader(event), "--bootstrap", e.bootstrap(), "--keep", "-")
		if code != exitWrong || out.Len() > 0 || !strings.Contains(progress.String(), "does not advertise key 95") || !strings.Contains(progress.String(), "use --guarantee=ledger") {
			t.Errorf("exit status %d, stdout %q, stderr %q", code, out.String(), progress.String())
		}
		e.empty(ctx, t)
	})
	t.Run("no input", func(t *testing.T) {
		ctx := testkit.Deadline(t, 60*time.Second)
		e := startElsewhere(ctx, t, broker.Config{})
		if code, _, progress := runDemoTo(ctx, t, strings.NewReader(""), "--bootstrap", e.bootstrap(), "-"); code != exitWrong || !strings.Contains(progress.String(), "input: no record") {
			t.Errorf("exit status %d, stderr %q", code, progress.String())
		}
		e.empty(ctx, t)
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx := testkit.Deadline(t, 60*time.Second)
		e := startElsewhere(ctx, t, broker.Config{Brokers: 3, Stock44: true})
		d := begin(ctx, t, "demo", "--bootstrap", e.bootstrap(), "--guarantee", "ledger")
		d.next(t, "fault killed 1 of 1")
		if topics, groups := e.holds(ctx, t); len(topics) != 6 || len(groups) != 1 {
			t.Errorf("at work: topics %q, groups %q", topics, groups)
		}
		d.stop(errSignal)
		d.next(t, "removed: topics demo-")
		d.next(t, "stopped before the end: interrupt signal received")
		d.exit(t, exitInterrupted)
		e.empty(ctx, t)
	})
	t.Run("nobody there", func(t *testing.T) {
		ctx := testkit.Deadline(t, 60*time.Second)
		if code, _, progress := runDemoTo(ctx, t, strings.NewReader(event), "--bootstrap", "127.0.0.1:1", "-"); code != exitWrong || !strings.Contains(progress.String(), "127.0.0.1:1") {
			t.Errorf("exit status %d, stderr %q", code, progress.String())
		}
	})
}
