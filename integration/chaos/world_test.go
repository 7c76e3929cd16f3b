package chaos

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/integration/chaos/verify"
	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/integration/rig"
	"github.com/sharetxn/sharetxn/integration/target"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 3 // of the results, which spreads each transaction
	limit      = 10
	session    = 5 * time.Second
)

// world is one trial on a cluster: topics, a group, and processes of members.
type world struct {
	k        *kafka.Cluster
	adm      *kadm.Client
	ours     *sharetxn.Cluster
	brokers  rig.Brokers
	load     *rig.Load // in small batches
	bulk     *rig.Load // in large ones
	live     *verify.Live
	dir      string
	program  string // that processes run
	logf     func(format string, args ...any)
	seed     uint64
	sources  int // partitions of the source
	job      job // but for what is different in each process
	rounds   []verify.Round
	produced time.Time // when all but what trickles in was
	lives    atomic.Int64
	wg       sync.WaitGroup

	mu       sync.Mutex
	counts   map[string]int64
	journals []string
	errs     []error
}

// setup is what trials differ in.
type setup struct {
	name      string
	guarantee string
	lock      time.Duration
	poison    task.Poison
	bulk      task.Poison // of the records in large batches
	program   string      // empty: the test's own
	seed      uint64
	members   int // of each process
	session   time.Duration
	sources   int // partitions of the source; fewer than members, so that several work on each
}

// three are brokers for all trials of a test.
func three(ctx context.Context, t *testing.T) *kafka.Cluster {
	t.Helper()
	k, err := target.Start(ctx, t.TempDir(), 3,
		kafka.Set("group.share.min.session.timeout.ms", session.Milliseconds()))
	target.Require(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(k.Logs())
		}
		must(t, k.Stop())
	})
	return k
}

// newWorld makes topics and group, and begins to read along.
func newWorld(ctx context.Context, t *testing.T, k *kafka.Cluster, s setup) *world {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	w := &world{k: k, logf: t.Logf, dir: t.TempDir(), program: cmp.Or(s.program, self), seed: s.seed, sources: s.sources, counts: make(map[string]int64), rounds: make([]verify.Round, 1)}
	cl, err := kgo.NewClient(kgo.SeedBrokers(k.Seeds()...), kgo.MetadataMinAge(50*time.Millisecond))
	must(t, err)
	t.Cleanup(cl.Close)
	w.adm = kadm.NewClient(cl)
	w.job = job{
		Seeds: k.Seeds(), Group: s.name, Source: s.name + "-source", Output: s.name + "-output", Dead: s.name + "-dead",
		Topics: make(map[string]string), Guarantee: s.guarantee, Members: max(s.members, 1), MaxRecords: 50, Round: 1,
		Lock: s.lock, Margin: min(s.lock/5, time.Second), TransactionTimeout: 6 * time.Second,
	}
	var results []verify.Part
	for _, topic := range []string{w.job.Source, w.job.Output, w.job.Dead} {
		n := partitions
		if topic == w.job.Source {
			n = w.sources
		}
		made, err := w.adm.CreateTopic(ctx, int32(n), 3, nil, topic)
		must(t, err)
		w.job.Topics[hex.EncodeToString(made.ID[:])] = topic
		for p := range int32(partitions) {
			if topic != w.job.Source {
				results = append(results, verify.Part{Topic: topic, Partition: p})
			}
		}
	}
	w.ours, err = sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(k.Seeds()...)))
	must(t, err)
	t.Cleanup(w.ours.Close)
	must(t, groupconfig.Set(ctx, w.ours, s.name, groupconfig.AutoOffsetReset("earliest"), groupconfig.IsolationLevel(groupconfig.ReadCommitted),
		groupconfig.DeliveryCountLimit(limit), groupconfig.LockDuration(s.lock), groupconfig.SessionTimeout(cmp.Or(s.session, session))))
	if s.guarantee == processor.Ledger.String() {
		w.job.TruncateEvery = 2 * time.Second
		testkit.Eventually(ctx, t, "the ledger is made", func() bool { // the cluster may be too young to have a coordinator
			err := ledger.Ensure(ctx, w.ours, s.name, []string{w.job.Source})
			if sharetxn.IsFatal(err) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	w.brokers = rig.Brokers{Cluster: k, Admin: w.adm, Topic: w.job.Source, Partitions: w.sources}
	// Brokers hand out whole batches, however little is asked for; with one of
	// thousands each fault would cost all of its records a delivery.
	w.load, err = rig.NewLoad(k.Seeds(), w.job.Source, w.sources, s.poison.Value, kgo.ProducerBatchMaxBytes(8_000))
	must(t, err)
	t.Cleanup(w.load.Close)
	const apart = 1 << 30 // no record of the other has such a number
	w.bulk, err = rig.NewLoad(k.Seeds(), w.job.Source, w.sources, func(n int) []byte { return s.bulk.Value(apart + n) }, kgo.ProducerBatchMaxBytes(50_000))
	must(t, err)
	t.Cleanup(w.bulk.Close)
	w.live, err = verify.Watch(ctx, k.Seeds(), w.job.Group, results...)
	must(t, err)
	t.Cleanup(w.live.Close)
	return w
}

func (w *world) count(what string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.counts[strings.ReplaceAll(what, "-", " ")] += n
}

func (w *world) counted(what string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.counts[what]
}

// fail notes what no fault excuses.
func (w *world) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.errs) < 10 {
		w.errs = append(w.errs, err)
	}
}

func (w *world) failed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.errs...)
}

// calm has n processes work that come to no harm, until there is nothing left to
// do; then they end.
func (w *world) calm(ctx context.Context, n int) error {
	for i := range n {
		_, end := w.work(ctx, fmt.Sprint("i", i), unharmed)
		defer end()
	}
	return w.drain(ctx)
}

// sent is how many source records there are.
func (w *world) sent() int { return w.load.Sent() + w.bulk.Sent() }

// drain waits until there is nothing left to do.
func (w *world) drain(ctx context.Context) error {
	telling, end := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer end()
	wg.Go(func() { _ = w.tell(telling, nil) }) // which has no error of its own
	return w.until(ctx, "all is done", func() bool { return w.drained(ctx) })
}

// until waits for cond, or the first failure.
func (w *world) until(ctx context.Context, what string, cond func() bool) error {
	err := rig.Until(ctx, what, func() bool { return w.failed() != nil || cond() })
	if failed := w.failed(); failed != nil {
		return failed
	}
	return err
}

// drained tells whether the group lags by nothing and no transaction is open.
func (w *world) drained(ctx context.Context) bool {
	if rig.Lag(ctx, w.adm, w.job.Group, w.sources) != 0 {
		return false
	}
	ends, err := w.adm.ListEndOffsets(ctx, w.job.Output, w.job.Dead)
	if err != nil || ends.Error() != nil {
		return false
	}
	stable, err := w.adm.ListCommittedOffsets(ctx, w.job.Output, w.job.Dead)
	if err != nil || stable.Error() != nil {
		return false
	}
	all := true
	ends.Each(func(o kadm.ListedOffset) {
		s, _ := stable.Lookup(o.Topic, o.Partition)
		all = all && s.Offset == o.Offset
	})
	return all
}

// verify has the trial judged.
func (w *world) verify(ctx context.Context) (*verify.Verdict, error) {
	return verify.Trial{
		Seeds: w.k.Seeds(), Group: w.job.Group, Sources: []string{w.job.Source}, Results: []string{w.job.Output, w.job.Dead},
		Limit: limit, Cuts: w.cuts(), Rounds: w.rounds, Deliveries: w.deliveries,
	}.Verify(ctx, w.live)
}

// cuts is how often a process, a broker or a connection was cut off, so that what
// a broker had delivered may not have come to a journal.
func (w *world) cuts() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for what, times := range w.counts {
		switch what {
		case "brokers killed", "requests with acknowledgements lost", "answers to EndTxn lost", "share connections severed":
			n += int(times)
		default:
			if strings.HasPrefix(what, "kill ") {
				n += int(times)
			}
		}
	}
	return n
}

// deliveries reads from the journals what brokers delivered again.
func (w *world) deliveries(tell func(round int, at task.At, count int)) error {
	for _, name := range w.journals {
		lines, err := (&follower{name: name}).more()
		if err != nil {
			return err
		}
		for _, f := range lines {
			if f[0] != wordDeliver {
				continue
			}
			var round, count int
			var at task.At
			var last int64
			if _, err := fmt.Sscan(strings.Join(f[1:], " "), &round, &at.Topic, &at.Partition, &at.Offset, &last, &count); err != nil {
				return fmt.Errorf("%s: %q: %w", name, f, err)
			}
			w.count("records delivered again", last-at.Offset+1)
			for ; at.Offset <= last; at.Offset++ {
				tell(round, at, count)
			}
		}
	}
	return nil
}

// figures are all counts, in order.
func (w *world) figures() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(w.counts)) {
		fmt.Fprintf(&b, "\n%8d %s", w.counts[what], what)
	}
	return b.String()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reset sets the group's offsets back to a time, and with them begins a new
// round. All is done, and the processes have ended.
func (w *world) reset(ctx context.Context, to time.Time) error {
	ends, err := w.adm.ListEndOffsets(ctx, w.job.Source)
	if err := cmp.Or(err, ends.Error()); err != nil {
		return err
	}
	through := make(map[verify.Part]int64)
	ends.Each(func(o kadm.ListedOffset) { through[verify.Part{Topic: o.Topic, Partition: o.Partition}] = o.Offset })
	w.rounds[len(w.rounds)-1].Through = through
	// Processes that were killed, or are stopped, are members until their sessions end.
	var last error
	err = w.until(ctx, "the ledger is reset", func() bool {
		last = ledger.Reset(ctx, w.ours, w.job.Group, to)
		return last == nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	groups, err := w.adm.DescribeShareGroupOffsets(ctx, w.job.Group)
	if err := cmp.Or(err, groups.Error()); err != nil {
		return err
	}
	from := make(map[verify.Part]int64)
	groups[w.job.Group].Offsets.Each(func(o kadm.ShareOffset) {
		from[verify.Part{Topic: o.Topic, Partition: o.Partition}] = o.StartOffset
		w.count("records set back", through[verify.Part{Topic: o.Topic, Partition: o.Partition}]-o.StartOffset)
	})
	w.rounds = append(w.rounds, verify.Round{From: from})
	w.job.Round++
	w.count("resets", 1)
	return nil
}
