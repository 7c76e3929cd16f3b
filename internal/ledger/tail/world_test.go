package tail

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	group     = "g"
	ledgerOfG = "__sharetxn_ledger.g"

	keyProduce        = 0
	keyFetch          = 1
	keyDeleteRecords  = 21
	keyDescribeStarts = 90
)

// world is an embedded cluster of three brokers with source topics "in" and
// "also" of three partitions each, and the ledger of group "g", in generation 1.
type world struct {
	*broker.Cluster
	plan  *fault.Plan
	admin *kadm.Client
	plain *kgo.Client
	log   logged
}

// quick are options under which nothing waits for seconds.
var quick = Options{Guarantee: "ledger", Starts: 20 * time.Millisecond, Widths: 20 * time.Millisecond, Truncations: -1}

func start(t testing.TB) *world { t.Helper(); return startWith(t, 3) }

func startWith(t testing.TB, partitions int32) *world {
	t.Helper()
	w := &world{plan: fault.New(1)}
	b, err := broker.Start(broker.Config{
		Brokers: 3, Stock44: true,
		Topics: map[string]int32{"in": partitions, "also": partitions, ledgerOfG: partitions},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w.Cluster = b
	b.SetIntercept(w.plan.Intercept())
	w.plain = w.client(t)
	w.admin = kadm.NewClient(w.plain)
	w.generation(t, active(1), upTo(0, int(partitions))...)
	return w
}

// active is a generation under guarantee ledger.
func active(number int64) entry.Generation {
	return entry.Generation{Number: number, Guarantee: "ledger", Phase: entry.Active, Group: group}
}

func resetting(number int64) entry.Generation {
	return entry.Generation{Number: number, Guarantee: "ledger", Phase: entry.Resetting, ResetTo: -2, Group: group}
}

func (w *world) client(t testing.TB, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(w.Seeds()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (w *world) connect(t testing.TB, hooks ...sharetxn.Hook) *core.Cluster {
	t.Helper()
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(w.Seeds()...), kgo.MetadataMinAge(10*time.Millisecond)),
		sharetxn.Logger(slog.New(slog.NewTextHandler(&w.log, &slog.HandlerOptions{Level: slog.LevelWarn}))), sharetxn.WithHooks(hooks...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return core.Of(cl)
}

// open opens the ledger of group g; quick, where opts are none.
func (w *world) open(ctx context.Context, t testing.TB, opts ...Options) (*Ledger, *events) {
	t.Helper()
	seen := new(events)
	o := quick
	if len(opts) > 0 {
		o = opts[0]
	}
	l, err := Open(ctx, w.connect(t, seen), group, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l, seen
}

// put writes a record outside of transactions and gives its offset.
func (w *world) put(t testing.TB, topic string, partition int32, value []byte) int64 {
	t.Helper()
	cl := w.client(t, kgo.RecordPartitioner(kgo.ManualPartitioner())) // a new one: topics are made anew, and widened
	defer cl.Close()
	r, err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: partition, Value: value}).First()
	if err != nil {
		t.Fatal(err)
	}
	return r.Offset
}

func (w *world) generation(t testing.TB, g entry.Generation, partitions ...int32) {
	t.Helper()
	value, err := g.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		w.put(t, ledgerOfG, p, value)
	}
}

// positions of source topic "in".
func (w *world) positions(partition int32, offsets ...int64) (out []Position) {
	return w.positionsOf("in", partition, offsets...)
}

func (w *world) positionsOf(topic string, partition int32, offsets ...int64) (out []Position) {
	for _, o := range offsets {
		out = append(out, Position{Topic: topic, TopicID: w.TopicID(topic), Partition: partition, Offset: o})
	}
	return out
}

// txn is a transaction that holds entries of the ledger.
type txn struct {
	t       testing.TB
	cl      *kgo.Client
	entries []*kgo.Record
}

// begin opens a transaction and writes entries for the positions.
func (w *world) begin(ctx context.Context, t testing.TB, l *Ledger, id string, positions ...Position) *txn {
	t.Helper()
	x := &txn{t: t, cl: w.client(t, kgo.TransactionalID(id), kgo.RecordPartitioner(kgo.ManualPartitioner()))}
	if err := x.cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	x.write(ctx, l, id, positions...)
	return x
}

func (x *txn) write(ctx context.Context, l *Ledger, id string, positions ...Position) {
	x.t.Helper()
	entries, err := l.Entries(id, positions)
	if err != nil {
		x.t.Fatal(err)
	}
	if err := x.cl.ProduceSync(ctx, entries...).FirstErr(); err != nil {
		x.t.Fatal(err)
	}
	x.entries = append(x.entries, entries...)
}

func (x *txn) end(ctx context.Context, how kgo.TransactionEndTry) {
	x.t.Helper()
	if err := x.cl.EndTransaction(ctx, how); err != nil {
		x.t.Fatal(err)
	}
}

// setStart sets where a share partition of topic "in" begins, as an
// administrator does.
func (w *world) setStart(ctx context.Context, t testing.TB, partition int32, offset int64) {
	t.Helper()
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	rt := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	rt.Topic = "in"
	rp := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	rp.Partition, rp.StartOffset = partition, offset
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(ctx, w.plain)
	if err == nil {
		err = errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) deleteTo(ctx context.Context, t testing.TB, partition int32, to int64) {
	t.Helper()
	resp, err := w.admin.DeleteRecords(ctx, kadm.Offsets{ledgerOfG: {partition: {Topic: ledgerOfG, Partition: partition, At: to}}})
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// verdicts of topic "in" as text: one letter for each offset.
func (w *world) verdicts(l *Ledger, partition int32, offsets ...int64) string {
	var out strings.Builder
	for _, v := range l.Look(w.positions(partition, offsets...)) {
		out.WriteString(letter(v))
	}
	return out.String()
}

func letter(v index.Verdict) string {
	return map[index.Verdict]string{index.Fresh: "F", index.Done: "D", index.Open: "O", index.Below: "B", index.Unsure: "U"}[v]
}

// until waits for verdicts, by the signal that a Processor waits for.
func (w *world) until(ctx context.Context, t testing.TB, l *Ledger, want string, partition int32, offsets ...int64) {
	t.Helper()
	for {
		changed := l.Changed()
		got := w.verdicts(l, partition, offsets...)
		if got == want {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("partition %d, offsets %v: %s, want %s", partition, offsets, got, want)
		}
	}
}

// events are what hooks saw.
type events struct {
	mu  sync.Mutex
	all []sharetxn.LedgerEvent
}

func (e *events) OnLedger(x sharetxn.LedgerEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
}

func (e *events) of(kind sharetxn.LedgerKind) (out []sharetxn.LedgerEvent) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, x := range e.all {
		if x.Event == kind {
			out = append(out, x)
		}
	}
	return out
}

// logged is a log that can be read while it is written.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) count(part string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), part)
}

func wantConflict(t *testing.T, err error, want ConflictError) {
	t.Helper()
	var got *ConflictError
	if !errors.As(err, &got) || *got != want {
		t.Fatalf("%v, want conflict %+v", err, want)
	}
	if sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
		t.Fatalf("%v is of class %v", err, sharetxn.ClassOf(err))
	}
}

func wantFatal(t *testing.T, err error, kind error, says ...string) {
	t.Helper()
	if !errors.Is(err, kind) || !sharetxn.IsFatal(err) {
		t.Fatalf("%v, want a fatal %v", err, kind)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%v does not say %q", err, s)
		}
	}
}
