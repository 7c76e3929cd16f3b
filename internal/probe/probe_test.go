package probe_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
)

func start(t *testing.T, cfg broker.Config) (*broker.Cluster, *kgo.Client) {
	t.Helper()
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	c := core.New(core.Config{Kafka: []kgo.Opt{kgo.SeedBrokers(b.Seeds()...)}, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	cl, err := c.NewClient()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return b, cl
}

func prover() *probe.Prover { return probe.New(slog.New(slog.DiscardHandler), wire.KIP93) }

// kgo holds for the life of a connection what a broker spoke when it was made.
// Its words for that are what Behind looks for; an answer of 35 or a connection
// that fails is not that.
func TestBehind(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	b, cl := start(t, broker.Config{Profile: wire.KIP93})
	if err := b.SetFeature("share.version", 1); err != nil {
		t.Fatal(err)
	}
	if err := cl.Ping(ctx); err != nil {
		t.Fatal(err)
	}
	ask := func(ctx context.Context) error {
		_, err := cl.Broker(0).Request(ctx, wire.NewHandshake(wire.KIP93))
		return err
	}
	p := prover()
	if rep, err := p.Report(ctx, cl); err != nil || rep.Staging != wire.None {
		t.Fatalf("below the level: %+v, %v", rep, err)
	}
	if err := b.SetFeature("share.version", 2); err != nil {
		t.Fatal(err)
	}
	if err := ask(ctx); !probe.Behind(err) {
		t.Errorf("on an old connection: %v", err)
	}
	if _, err := p.Report(ctx, cl); !errors.Is(err, probe.ErrBehind) {
		t.Errorf("Report on an old connection: %v", err)
	}
	if _, err := p.Prove(ctx, cl, 0); !errors.Is(err, probe.ErrBehind) || errors.Is(err, probe.ErrNotProven) {
		t.Errorf("Prove on an old connection: %v", err)
	}
	if n := b.Traffic(93).Requests; n != 0 {
		t.Errorf("%d requests were sent", n)
	}
	if err := b.RestartNode(0); err != nil { // and so a new one
		t.Fatal(err)
	}
	// kgo finds a connection cut only when it writes to it.
	testkit.Eventually(ctx, t, "a new connection", func() bool { return cl.Ping(ctx) == nil && ask(ctx) == nil })
	b.StopNode(0)
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := ask(short); err == nil || probe.Behind(err) {
		t.Errorf("without a broker: %v", err)
	}
	if probe.Behind(nil) {
		t.Error("nil")
	}
}

// What all have proven stands until one of them denies it: by what it advertises,
// or by an answer. A broker that joined later denies nothing of the others.
func TestWhole(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	const joined = 3
	b, cl := start(t, broker.Config{Profile: wire.KIP93, Brokers: 3, LacksStaging: []int32{joined}})
	p := prover()
	report := func(want wire.Profile) probe.Report {
		t.Helper()
		rep, err := p.Report(ctx, cl)
		if err != nil || rep.Staging != want {
			t.Fatalf("%+v, %v", rep, err)
		}
		return rep
	}
	if p.Whole() {
		t.Fatal("before anybody was asked")
	}
	report(wire.KIP93)
	if !p.Whole() {
		t.Fatal("all have proven it")
	}
	for node := range int32(3) {
		if _, err := p.Prove(ctx, cl, node); err != nil {
			t.Error(err)
		}
	}
	if n := b.Traffic(93).Requests; n != 3 {
		t.Errorf("%d handshakes, want 3", n)
	}
	// By an answer.
	p.Deny(1)
	if p.Whole() {
		t.Error("one has denied it")
	}
	report(wire.KIP93)
	if n := b.Traffic(93).Requests; n != 4 || !p.Whole() {
		t.Errorf("%d handshakes, want one more for the one that denied it; whole %v", n, p.Whole())
	}
	// By what it advertises.
	if err := b.SetFeature("share.version", 1); err != nil {
		t.Fatal(err)
	}
	if rep := report(wire.None); rep.ShareVersion != 1 || p.Whole() {
		t.Errorf("lowered: %+v, whole %v", rep, p.Whole())
	}
	if _, err := p.Prove(ctx, cl, 0); !errors.Is(err, probe.ErrNotProven) {
		t.Errorf("Prove of a broker that was lowered: %v", err)
	}
	if err := b.SetFeature("share.version", 2); err != nil {
		t.Fatal(err)
	}
	report(wire.KIP93)
	// Not by one that was not among them.
	if node, err := b.AddNode(); err != nil || node != joined {
		t.Fatal(node, err)
	}
	testkit.Eventually(ctx, t, "the broker that joined is found", func() bool {
		rep, err := p.Report(ctx, cl)
		return err == nil && len(rep.Brokers) == 4 && rep.Staging == wire.None
	})
	if !p.Whole() {
		t.Error("a broker that joined took the others' proof")
	}
	if _, err := p.Prove(ctx, cl, joined); !errors.Is(err, probe.ErrNotProven) {
		t.Errorf("Prove of the one that joined: %v", err)
	}
	if _, err := p.Prove(ctx, cl, 2); err != nil {
		t.Errorf("Prove of one of the others: %v", err)
	}
}
