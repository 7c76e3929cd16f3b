package soak

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/integration/chaos/verify"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/rig"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	duration = flag.Duration("duration", 5*time.Second, "how long records come in")
	every    = flag.Duration("every", time.Second, "how often what is held is looked at")
	rate     = flag.Int("rate", 300, "`records` a second")
	out      = flag.String("out", "", "`folder` for the samples as JSON and their plot; empty: none")
)

const (
	group, source, output, dead = "soak", "soak-source", "soak-output", "soak-dead"
	partitions                  = 4
	limit                       = 10 // deliveries of a record
	processes, members          = 2, 2

	// enough is a run that is long enough for its trends to be judged.
	enough = 10 * time.Minute
)

// Two processes of two members each work by the ledger while records come in at an
// even pace. Each record has its outputs once; and in a run that is long enough
// neither heap nor goroutines of the processes grow, nor what the ledger holds.
func TestSoak(t *testing.T) {
	ctx := testkit.Deadline(t, *duration+*duration/4+5*time.Minute)
	// A busy machine is not to be what is tried: the only broker is not given up.
	k, err := target.Start(ctx, t.TempDir(), 1, kafka.Set("broker.session.timeout.ms", time.Minute.Milliseconds()))
	target.Require(t, err)
	t.Cleanup(func() { must(t, k.Stop()) })
	w := newWorld(ctx, t, k)
	for n := range processes {
		w.start(t, n)
	}
	must(t, w.pour(ctx))
	must(t, rig.Until(ctx, "the group has no lag", func() bool { return rig.Lag(ctx, w.adm, group, partitions) == 0 }))
	for n, p := range w.processes {
		must(t, p.End(30*time.Second))
		all, err := readHeld(w.held(n))
		must(t, err)
		w.process(n, all)
	}
	v, err := verify.Trial{
		Seeds: k.Seeds(), Group: group, Sources: []string{source}, Results: []string{output, dead}, Also: []string{ledger.TopicName(group)},
		Limit: limit, Rounds: make([]verify.Round, 1), Deliveries: func(func(int, task.At, int)) error { return nil },
	}.Verify(ctx, w.live)
	must(t, err)
	t.Log(v)
	if len(v.Findings) > 0 || len(v.Archived) > 0 || v.Sources != w.load.Sent() || v.Rejected > 0 {
		t.Errorf("of %d records not each has its outputs once", w.load.Sent())
	}
	w.judge(t)
}

// world is one soak.
type world struct {
	k         *kafka.Cluster
	cl        *sharetxn.Cluster
	adm       *kadm.Client
	load      *rig.Load
	live      *verify.Live
	ledger    *tail.Ledger // read along
	dir       string
	began     time.Time
	processes []*rig.Process

	entries, spans, offsets, bytes *series
	missed                         []error // samples that brokers did not answer for
	all                            []*series
}

func newWorld(ctx context.Context, t *testing.T, k *kafka.Cluster) *world {
	t.Helper()
	w := &world{
		k: k, dir: t.TempDir(),
		// Truncation comes about every minute, and so all of these go up and down.
		entries: &series{Name: "ledger entries that decide something", Unit: "entries", Grow: 0.25, Slack: 1000},
		spans:   &series{Name: "runs of offsets above the starts", Unit: "runs", Grow: 0.25, Slack: 1000},
		offsets: &series{Name: "ledger's log", Unit: "offsets", Grow: 0.25, Slack: 10_000},
		// Brokers free the disk file by file, of 16 MiB each.
		bytes: &series{Name: "ledger on disk", Unit: "MiB", Grow: 0.25, Slack: partitions * 16},
	}
	w.all = []*series{w.entries, w.spans, w.offsets, w.bytes}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...))
	must(t, err)
	t.Cleanup(cl.Close)
	w.adm = kadm.NewClient(cl)
	_, err = w.adm.CreateTopics(ctx, partitions, 1, nil, source, output, dead)
	must(t, err)
	w.cl, err = sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(k.Seeds()...)))
	must(t, err)
	t.Cleanup(w.cl.Close)
	must(t, groupconfig.Set(ctx, w.cl, group, groupconfig.AutoOffsetReset("earliest"), groupconfig.IsolationLevel(groupconfig.ReadCommitted), groupconfig.DeliveryCountLimit(limit)))
	ensure(ctx, t, w.cl)
	w.ledger, err = tail.Open(ctx, core.Of(w.cl), group, tail.Options{Observe: true})
	must(t, err)
	t.Cleanup(func() { must(t, w.ledger.Close()) })
	w.load, err = rig.NewLoad(k.Seeds(), source, partitions, task.Poison{}.Value)
	must(t, err)
	t.Cleanup(w.load.Close)
	var results []verify.Part
	for p := range int32(partitions) {
		results = append(results, verify.Part{Topic: output, Partition: p}, verify.Part{Topic: dead, Partition: p})
	}
	w.live, err = verify.Watch(ctx, k.Seeds(), group, results...)
	must(t, err)
	t.Cleanup(w.live.Close)
	return w
}

// ensure makes the ledger. The first group of a broker waits for its coordinator.
func ensure(ctx context.Context, t *testing.T, cl *sharetxn.Cluster) {
	t.Helper()
	must(t, rig.Until(ctx, "the ledger is there", func() bool {
		err := ledger.Ensure(ctx, cl, group, []string{source})
		if err != nil && sharetxn.IsFatal(err) {
			t.Fatal(err)
		}
		return err == nil
	}))
}

func (w *world) held(n int) string { return filepath.Join(w.dir, fmt.Sprintf("held-%d", n)) }

// start starts the nth process.
func (w *world) start(t *testing.T, n int) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	text, err := json.Marshal(job{
		Seeds: w.k.Seeds(), Group: group, Source: source, Output: output, Dead: dead,
		Instance: fmt.Sprint("i", n), Members: members, Held: w.held(n), Every: *every,
	})
	must(t, err)
	p, err := rig.Spawn(fmt.Sprint("process ", n), self, filepath.Join(w.dir, fmt.Sprintf("said-%d", n)), jobEnv+"="+string(text))
	must(t, err)
	t.Cleanup(func() { _ = p.End(30 * time.Second) }) // told already, in a test that has not failed
	w.processes = append(w.processes, p)
}

// pour produces at an even pace, and samples what the ledger holds.
func (w *world) pour(ctx context.Context) error {
	over := make(chan struct{})
	close(over) // nothing is kept back
	w.began = time.Now()
	for last := w.began; time.Since(w.began) < *duration; {
		if err := w.load.Produce(ctx, *rate, time.Second, over); err != nil {
			return err
		}
		for n, p := range w.processes {
			select {
			case <-p.Done():
				return fmt.Errorf("process %d ended: %w", n, p.End(0))
			default:
			}
		}
		if time.Since(last) < *every {
			continue
		}
		last = time.Now()
		if err := w.sample(ctx); err != nil {
			w.missed = append(w.missed, err)
		}
	}
	return w.ledger.Err()
}

func (w *world) sample(ctx context.Context) error {
	at := time.Since(w.began)
	status := w.ledger.Status()
	spans := 0
	var next int64
	for _, p := range status.Partitions {
		spans += p.Spans
		next += p.Next
	}
	w.entries.add(at, float64(status.Entries))
	w.spans.add(at, float64(spans))
	topic := ledger.TopicName(group)
	starts, err := w.adm.ListStartOffsets(ctx, topic)
	if err != nil || starts.Error() != nil {
		return fmt.Errorf("starts of %s: %w, %w", topic, err, starts.Error())
	}
	starts.Each(func(o kadm.ListedOffset) { next -= o.Offset })
	w.offsets.add(at, float64(next))
	topics := make(kadm.TopicsSet)
	for p := range int32(partitions) {
		topics.Add(topic, p)
	}
	dirs, err := w.adm.DescribeAllLogDirs(ctx, topics)
	if err != nil {
		return err
	}
	var bytes int64
	dirs.Each(func(d kadm.DescribedLogDir) { bytes += d.Size() })
	w.bytes.add(at, float64(bytes)/(1<<20))
	return nil
}

// process takes what a process has told of itself.
func (w *world) process(n int, all []held) {
	heap := &series{Name: fmt.Sprintf("heap of process %d after a collection", n), Unit: "MiB", Grow: 0.25, Slack: 2}
	goroutines := &series{Name: fmt.Sprintf("goroutines of process %d", n), Unit: "goroutines", Grow: 0.1, Slack: 5}
	for _, h := range all {
		at := h.At.Sub(w.began)
		if at < 0 { // nothing had come in yet
			continue
		}
		heap.add(at, float64(h.Heap)/(1<<20))
		goroutines.add(at, float64(h.Goroutines))
	}
	w.all = append(w.all, heap, goroutines)
}

// judge looks at the trends, and writes all down where that is wanted.
func (w *world) judge(t *testing.T) {
	t.Helper()
	long := *duration >= enough
	if len(w.missed) > len(w.bytes.Value)/10 {
		t.Errorf("%d samples of %d could not be taken: %v", len(w.missed), len(w.missed)+len(w.bytes.Value), w.missed[0])
	}
	for _, s := range w.all {
		if len(s.Value) == 0 {
			t.Errorf("%s: no samples", s.Name)
			continue
		}
		tr, err := s.trend()
		switch {
		case err == nil:
			t.Logf("%-45s mean %.5g %s, most %.5g, by least squares grown by %.3g over the last 80 %% (bound %.3g)", s.Name, tr.Mean, s.Unit, s.most(), tr.Grown, tr.Bound)
			if long && !tr.flat() {
				t.Errorf("%s grows", s.Name)
			}
		case long:
			t.Error(err)
		default:
			t.Logf("%s: %v", s.Name, s.Value)
		}
	}
	if *out == "" {
		return
	}
	must(t, os.MkdirAll(*out, 0o755))
	text, err := json.MarshalIndent(w.all, "", " ")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(*out, "soak.json"), text, 0o644))
	title := fmt.Sprintf("%d records at %d a second, %d processes of %d members, guarantee Ledger, Kafka %s", w.load.Sent(), *rate, processes, members, kafka.Version())
	must(t, os.WriteFile(filepath.Join(*out, "soak.svg"), []byte(plot(title, w.all)), 0o644))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
