package endurance

import (
	"context"
	"encoding/binary"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/rig"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	records = flag.Int("records", 60_000, "`records` to produce")
	rounds  = flag.Int("rounds", 1, "`rounds` of all faults")
	pace    = flag.Duration("pace", 2*time.Second, "how long producing beside one fault takes")
)

const (
	topic, group = "endured", "enduring"
	partitions   = 6
	limit        = 10 // deliveries of a record

	// A member that was killed keeps its partitions until its session ends, and
	// some of them nobody else has.
	session = 8 * time.Second
)

// world is what the test acts on.
type world struct {
	k       *kafka.Cluster
	brokers rig.Brokers
	dir     string
	lives   int
	all     []*life

	mortal *life // a process that is killed, and started again
	guest  *life // a member that leaves and comes back; nil while it is away
	fired  map[string]int
}

// Four members, two of them in a process that lives through it all and must not
// grow, one in a process that is killed and one that comes and goes, on three
// brokers that are killed, paused and made to lead less or more, while records
// come in. Judged from the logs of all, and by the brokers' own account.
func TestEndurance(t *testing.T) {
	ctx := testkit.Deadline(t, time.Duration(2+3**rounds)*time.Minute)
	w := &world{dir: t.TempDir(), fired: make(map[string]int)}
	var err error
	w.k, err = target.Start(ctx, t.TempDir(), 3, kafka.Set("group.share.min.session.timeout.ms", session.Milliseconds()))
	target.Require(t, err)
	t.Cleanup(func() { must(t, w.k.Stop()) })
	t.Cleanup(func() { // before the brokers end
		for _, l := range w.all {
			if err := l.end(); err != nil {
				t.Error(err)
			}
		}
	})
	w.prepare(ctx, t)
	l, err := rig.NewLoad(w.k.Seeds(), topic, partitions, value)
	must(t, err)
	t.Cleanup(l.Close)
	began := time.Now()

	heap := w.dir + "/heap"
	steady := w.process(t, "steady", 2, heap)
	w.mortal = w.process(t, "mortal", 1, "")

	// A quarter at once, which keeps members busy; the rest while things happen.
	faults := slices.Repeat(w.faults(), *rounds)
	backlog := *records / 4
	atOnce := make(chan struct{})
	close(atOnce)
	must(t, l.Produce(ctx, backlog, 0, atOnce))
	for i, f := range faults {
		rest := *records - backlog
		portion := rest*(i+1)/len(faults) - rest*i/len(faults)
		produced, over := make(chan error, 1), make(chan struct{})
		during := *pace
		if f.burst {
			during = 0
		}
		go func() { produced <- l.Produce(ctx, portion, during, over) }()
		fctx, cancel := context.WithTimeout(ctx, 2*time.Minute) // none takes half of it
		err := f.do(fctx, t)
		cancel()
		close(over)
		if err != nil {
			t.Fatalf("%s: %v", f.name, err)
		}
		w.fired[f.name]++
		must(t, <-produced)
		t.Logf("%5.1fs %s; %d produced, the group lags by %d", time.Since(began).Seconds(), f.name, l.Sent(), w.lag(ctx))
	}
	testkit.Eventually(ctx, t, "the group has no lag", func() bool { return w.lag(ctx) == 0 })
	took := time.Since(began)
	for _, one := range w.all {
		if err := one.end(); err != nil {
			t.Error(err)
		}
	}

	for _, f := range w.faults() {
		if w.fired[f.name] != *rounds {
			t.Errorf("%s: %d times, want %d", f.name, w.fired[f.name], *rounds)
		}
	}
	w.judge(t, l, took)
	samples, err := readHeap(heap)
	must(t, err)
	if err := flat(samples); err != nil {
		t.Errorf("%s: %v", steady.name, err)
	}
	if n := len(samples); n > 0 {
		t.Logf("heap of %s: %d samples, first %d KiB, last %d KiB, in use %d KiB", steady.name, n, samples[0].alloc>>10, samples[n-1].alloc>>10, samples[n-1].inuse>>10)
	}
}

// value of the n-th record.
func value(n int) []byte {
	v := make([]byte, 100)
	binary.BigEndian.PutUint64(v, uint64(n))
	return v
}

func (w *world) prepare(ctx context.Context, t *testing.T) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.k.Seeds()...), kgo.MetadataMinAge(50*time.Millisecond))
	must(t, err)
	t.Cleanup(cl.Close)
	w.brokers = rig.Brokers{Cluster: w.k, Admin: kadm.NewClient(cl), Topic: topic, Partitions: partitions}
	_, err = w.brokers.Admin.CreateTopic(ctx, partitions, 3, nil, topic)
	must(t, err)
	ours, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(w.k.Seeds()...)))
	must(t, err)
	defer ours.Close()
	must(t, groupconfig.Set(ctx, ours, group, groupconfig.AutoOffsetReset("earliest"),
		groupconfig.DeliveryCountLimit(limit), groupconfig.LockDuration(15*time.Second), groupconfig.SessionTimeout(session)))
}

// judge holds the producer's account against the members'.
func (w *world) judge(t *testing.T, l *rig.Load, took time.Duration) {
	t.Helper()
	j := newJudge(partitions)
	for p, offsets := range l.Offsets() {
		for _, o := range offsets {
			j.produced(int32(p), o)
		}
	}
	by := make(map[string]int64)
	for _, one := range w.all {
		for _, name := range one.logs {
			entries, err := readLog(name)
			if one.killed && err != nil {
				continue // killed before it could begin
			}
			must(t, err)
			j.member(entries, one.killed)
		}
		n, err := one.accepted()
		must(t, err)
		by[one.name] += n
	}
	v := j.verdict()
	t.Logf("%.0fs, %d lives of members, accepted by each %v, faults %v", took.Seconds(), w.lives, by, w.fired)
	t.Log(v)
	if v.Produced != *records || v.LostCount() > 0 || v.Strays > 0 {
		t.Errorf("of %d records: %d lost, %d strays; %v", *records, v.LostCount(), v.Strays, v.Lost)
	}
	// A record at its limit may have been archived with nobody's verdict.
	if v.Deliveries >= limit {
		t.Errorf("a record was delivered %d times, at the limit", v.Deliveries)
	}
	// Else it would prove nothing.
	if v.Accepted < v.Produced*95/100 {
		t.Errorf("only %d of %d are accepted for certain", v.Accepted, v.Produced)
	}
	for _, name := range []string{"steady", "mortal", "guest"} {
		if by[name] == 0 {
			t.Errorf("%s accepted nothing", name)
		}
	}
}

func (w *world) lag(ctx context.Context) int64 {
	return rig.Lag(ctx, w.brokers.Admin, group, partitions)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
