package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// output refuses the first write of each of some lines.
type output struct {
	mu      sync.Mutex
	refuse  map[string]bool
	refused int
	lines   map[string]int
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	line := string(p)
	if o.refuse[line] {
		delete(o.refuse, line)
		o.refused++
		return 0, errors.New("on purpose")
	}
	o.lines[line]++
	return len(p), nil
}

func client(t *testing.T, b *broker.Cluster, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	k, err := kgo.NewClient(append(opts, kgo.SeedBrokers(b.Seeds()...), kgo.DisableClientMetrics())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func report(mag float64, place string) *kgo.Record {
	return &kgo.Record{Topic: "quakes", Value: fmt.Appendf(nil, `{"properties":{"mag":%v,"place":%q}}`, mag, place)}
}

// On a stock Kafka and from the start of the topic: what is strong is printed
// once, also what fails the first time; what is unreadable is rejected, and what was
// aborted is not seen. When told to stop, it ends without an error.
func TestConsumer(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	b, err := broker.Start(broker.Config{Brokers: 3, Topics: map[string]int32{"quakes": 3}, HeartbeatInterval: 500 * time.Millisecond, Stock44: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	aborting := client(t, b, kgo.TransactionalID("aborting"))
	if err := aborting.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := aborting.ProduceSync(ctx, report(9, "nowhere")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := aborting.EndTransaction(ctx, kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	in := []*kgo.Record{{Topic: "quakes", Value: []byte("not JSON")}}
	out := &output{refuse: make(map[string]bool), lines: make(map[string]int)}
	want := make(map[string]bool)
	const n, failing = 300, 30
	for i := range n {
		in = append(in, report(5.5, fmt.Sprint(i)), report(2, fmt.Sprint("weak ", i)))
		line := fmt.Sprintf("5.5 %d\n", i)
		want[line], out.refuse[line] = true, i < failing
	}
	if err := client(t, b).ProduceSync(ctx, in...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	serve, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(serve, []string{"-bootstrap", strings.Join(b.Seeds(), ",")}, out) }()
	testkit.Eventually(ctx, t, "every report is done", func() bool {
		var done, left int64
		for _, p := range b.PartitionStates("quake-printers") {
			done += p.Start
			left += p.Available + p.Acquired + p.Pending
		}
		return left == 0 && done >= int64(len(in))
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if out.refused != failing {
		t.Errorf("%d writes failed, want %d", out.refused, failing)
	}
	for line, times := range out.lines {
		if times != 1 || !want[line] {
			t.Errorf("%q was printed %d times", line, times)
		}
	}
	if len(out.lines) != n {
		t.Errorf("%d lines, want %d", len(out.lines), n)
	}
}

// An acknowledgement that is refused is told, and its records are delivered
// again.
func TestAcknowledgementRefused(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	b, err := broker.Start(broker.Config{Topics: map[string]int32{"quakes": 1}, HeartbeatInterval: 500 * time.Millisecond, Stock44: true, MinLockDuration: time.Millisecond,
		GroupConfigs: map[string]map[string]string{"quake-printers": {"share.record.lock.duration.ms": "300"}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	if err := client(t, b).ProduceSync(ctx, report(6, "here")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	// Held past its lock the first time, so that the broker has given it back.
	out := &slow{output: output{lines: make(map[string]int)}, back: func() {
		testkit.Eventually(ctx, t, "the lock has ended", func() bool { return b.PartitionStates("quake-printers")[0].Acquired == 0 })
	}}
	told := &output{lines: make(map[string]int)}
	log.SetOutput(told)
	t.Cleanup(func() { log.SetOutput(os.Stderr) })
	serve, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- run(serve, []string{"-bootstrap", strings.Join(b.Seeds(), ",")}, out) }()
	testkit.Eventually(ctx, t, "it is done", func() bool {
		ps := b.PartitionStates("quake-printers")
		return len(ps) == 1 && ps[0].Start == 1
	})
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if n := out.lines["6.0 here\n"]; n != 2 {
		t.Errorf("printed %d times, want 2", n)
	}
	if all := fmt.Sprint(told.lines); !strings.Contains(all, "not acknowledged: quakes-0") {
		t.Errorf("the lost acknowledgement was not told: %s", all)
	}
}

// slow calls back before it returns from its first write.
type slow struct {
	output
	once sync.Once
	back func()
}

func (s *slow) Write(p []byte) (int, error) {
	n, err := s.output.Write(p)
	s.once.Do(s.back)
	return n, err
}
