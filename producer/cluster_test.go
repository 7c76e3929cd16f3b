package producer

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	keyProduce         = 0
	keyFindCoordinator = 10
	keyInit            = 22
	keyEndTxn          = 26
)

// world is an embedded cluster of three brokers with topics "in" and "out" of
// three partitions each, and group "g" reading "in" from its start.
type world struct {
	*broker.Cluster
	profile wire.Profile
	cl      *sharetxn.Cluster
}

// eachProfile runs a test in both.
func eachProfile(t *testing.T, run func(t *testing.T, profile wire.Profile)) {
	for _, p := range []wire.Profile{wire.Draft95, wire.KIP93} {
		t.Run(p.String(), func(t *testing.T) { run(t, p) })
	}
}

// unresolved is a ResolveTimeout that tests wait out; what is to work within it
// does so on a busy machine too.
const unresolved = 600 * time.Millisecond

type setup struct {
	profile wire.Profile  // default Draft95
	lock    time.Duration // of acquired records; default 30 s
	hooks   []sharetxn.Hook
	edit    func(*broker.Config)
}

func start(t testing.TB, s setup) *world {
	t.Helper()
	if s.lock == 0 {
		s.lock = 30 * time.Second
	}
	earliest := map[string]string{"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": fmt.Sprint(s.lock.Milliseconds())}
	if s.profile == wire.None {
		s.profile = wire.Draft95
	}
	cfg := broker.Config{
		Profile: s.profile, Brokers: 3, Topics: map[string]int32{"in": 3, "out": 3}, MinLockDuration: time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
		GroupConfigs: map[string]map[string]string{"g": earliest, "h": earliest},
	}
	if s.edit != nil {
		s.edit(&cfg)
	}
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w := &world{Cluster: b, profile: s.profile}
	w.cl = w.connect(t, s.hooks...)
	return w
}

// connect is another process, with everything of its own.
func (w *world) connect(t testing.TB, hooks ...sharetxn.Hook) *sharetxn.Cluster {
	t.Helper()
	profile := map[wire.Profile]sharetxn.Profile{wire.Draft95: sharetxn.ProfileDraft95, wire.KIP93: sharetxn.ProfileKIP93}[w.profile]
	cl, err := sharetxn.Connect(
		sharetxn.WithProfile(profile),
		sharetxn.Kafka(kgo.SeedBrokers(w.Seeds()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond)),
		sharetxn.Logger(slog.New(slog.DiscardHandler)), sharetxn.WithHooks(hooks...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func (w *world) producer(t testing.TB, id string, opts ...Opt) *Producer {
	t.Helper()
	p, err := New(w.cl, id, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

func (w *world) consumer(t testing.TB, group string, opts ...shareconsumer.Opt) *shareconsumer.Consumer {
	t.Helper()
	opts = append([]shareconsumer.Opt{
		shareconsumer.Topics("in"), shareconsumer.MaxWait(50 * time.Millisecond),
		shareconsumer.AcknowledgementMode(shareconsumer.Transactional),
	}, opts...)
	c, err := shareconsumer.New(w.cl, group, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// feed produces n records to topic "in", round robin over its partitions, with
// values "0" to "n-1".
func (w *world) feed(ctx context.Context, t testing.TB, n int) {
	t.Helper()
	p, err := w.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for i := range n {
		p.Produce(ctx, &kgo.Record{Topic: "in", Partition: int32(i % 3), Value: fmt.Append(nil, i)}, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("feed: %v", err)
			}
		})
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
}

// totals of a group's share partitions.
func (w *world) totals(group string) (done, available, acquired, pending int64) {
	for _, p := range w.PartitionStates(group) {
		done += p.Start + p.Terminal
		available += p.Available
		acquired += p.Acquired
		pending += p.Pending
	}
	return done, available, acquired, pending
}

func (w *world) waitDone(ctx context.Context, t testing.TB, group string, n int64) {
	t.Helper()
	testkit.Eventually(ctx, t, fmt.Sprintf("%d offsets done and nothing else", n), func() bool {
		done, av, ac, pe := w.totals(group)
		return done == n && av+ac+pe == 0
	})
}

// visible reads a topic with read_committed to its end and gives the values.
func (w *world) visible(ctx context.Context, t testing.TB, topic string) (values []string) {
	t.Helper()
	c, err := w.cl.Client(kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(20*time.Millisecond), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ends := w.ends(ctx, t, topic)
	at := make(map[int32]int64)
	reached := func() bool {
		for p, end := range ends {
			if at[p] < end {
				return false
			}
		}
		return true
	}
	for !reached() {
		fs := c.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatalf("%s not readable to its end %v, at %v: %v", topic, ends, at, err)
		}
		fs.EachPartition(func(p kgo.FetchTopicPartition) {
			for _, r := range p.Records {
				at[p.Partition] = r.Offset + 1
				if !r.Attrs.IsControl() {
					values = append(values, string(r.Value))
				}
			}
		})
	}
	return values
}

// coordinator's view of a transactional id.
func (w *world) txn(id string) txn.View {
	for _, v := range w.Transactions() {
		if v.ID == id {
			return v
		}
	}
	return txn.View{ProducerID: -1, ProducerEpoch: -1}
}

func poll(ctx context.Context, t testing.TB, c *shareconsumer.Consumer) *shareconsumer.Batch {
	t.Helper()
	b, err := c.Poll(ctx)
	if err != nil {
		t.Fatalf("Poll: %v", err)
	}
	return b
}

func values(b *shareconsumer.Batch) (vs []string) {
	for _, r := range b.Records() {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// copyAll produces a copy of each record to "out" and accepts it.
func copyAll(ctx context.Context, tx *Txn, b *shareconsumer.Batch) error {
	for _, r := range b.Records() {
		if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
			return err
		}
		r.Accept()
	}
	return nil
}

// until gives a context that is canceled when something was tried in vain ten times
// more, with a longer pause each time: whoever was given it, and waits for that, has
// waited by then, on a slow machine too.
func until(ctx context.Context, t *testing.T, tries *atomic.Int64) context.Context {
	t.Helper()
	impatient, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	from := tries.Load()
	go func() {
		defer cancel()
		for tries.Load() < from+10 {
			select {
			case <-time.After(10 * time.Millisecond):
			case <-impatient.Done():
				return
			}
		}
	}()
	return impatient
}

// fault is an Intercept that acts on requests that match, and counts them.
type fault struct {
	key    int16
	node   int32 // -1: any
	except func(broker.Request) bool
	times  atomic.Int64
	fired  atomic.Int64
	act    func(broker.Request) broker.Action
}

func (f *fault) intercept(r broker.Request) broker.Action {
	if r.Key != f.key || f.node >= 0 && r.Node != f.node || f.except != nil && f.except(r) || f.times.Add(-1) < 0 {
		return broker.Action{}
	}
	f.fired.Add(1)
	return f.act(r)
}

// stages counts the requests on the staging key, handshakes included.
func (w *world) stages() int { return w.Traffic(w.profile.Key()).Requests }

// inject makes the next n requests of a key fare as act says.
func (w *world) inject(key int16, n int64, act func(broker.Request) broker.Action) *fault {
	f := &fault{key: key, node: -1, act: act}
	f.times.Store(n)
	w.SetIntercept(f.intercept)
	return f
}

// injectStage is inject for staging requests, handshakes excepted.
func (w *world) injectStage(n int64, act func(broker.Request) broker.Action) *fault {
	f := &fault{key: w.profile.Key(), node: -1, act: act, except: func(r broker.Request) bool {
		m, ok := r.Message().(*wire.Request)
		return ok && m.TransactionalID == nil
	}}
	f.times.Store(n)
	w.SetIntercept(f.intercept)
	return f
}

func (f *fault) mustHaveFired(t testing.TB, n int64) {
	t.Helper()
	if got := f.fired.Load(); got != n {
		t.Fatalf("the fault fired %d times, want %d", got, n)
	}
}

func always(a broker.Action) func(broker.Request) broker.Action {
	return func(broker.Request) broker.Action { return a }
}

// recorder is a hook that keeps what it saw.
type recorder struct {
	mu     sync.Mutex
	ends   []sharetxn.TxnEnd
	stages []sharetxn.Stage
	misuse []sharetxn.Misuse
}

type spanKey struct{}

func (r *recorder) OnTxnStart(ctx context.Context, e sharetxn.TxnStart) context.Context {
	return context.WithValue(ctx, spanKey{}, e.TransactionalID)
}

func (r *recorder) OnTxnEnd(_ context.Context, e sharetxn.TxnEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ends = append(r.ends, e)
}

func (r *recorder) OnStage(_ context.Context, e sharetxn.Stage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stages = append(r.stages, e)
}

func (r *recorder) OnMisuse(e sharetxn.Misuse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.misuse = append(r.misuse, e)
}

func (r *recorder) seen() (ends []sharetxn.TxnEnd, stages []sharetxn.Stage, misuse []sharetxn.Misuse) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(ends, r.ends...), append(stages, r.stages...), append(misuse, r.misuse...)
}

func same(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	count := make(map[string]int)
	for _, v := range got {
		count[v]++
	}
	for _, v := range want {
		count[v]--
	}
	for v, n := range count {
		if n != 0 {
			t.Fatalf("%s: %q is there %+d times too often; got %s, want %s", what, v, n, strings.Join(got, " "), strings.Join(want, " "))
		}
	}
}

// ends gives the partitions' high watermarks.
func (w *world) ends(ctx context.Context, t testing.TB, topic string) map[int32]int64 {
	t.Helper()
	c, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	listed, err := kadm.NewClient(c).ListEndOffsets(ctx, topic)
	if err == nil {
		err = listed.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	ends := make(map[int32]int64)
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// gather polls until n records are held.
func gather(ctx context.Context, t testing.TB, c *shareconsumer.Consumer, n int) (bs []*shareconsumer.Batch) {
	t.Helper()
	for got := 0; got < n; {
		b := poll(ctx, t, c)
		bs, got = append(bs, b), got+len(b.Records())
		if got > n {
			t.Fatalf("%d records, want %d", got, n)
		}
	}
	return bs
}

func join(bs []*shareconsumer.Batch) Acknowledgements {
	in := make([]Acknowledgements, len(bs))
	for i, b := range bs {
		in[i] = b
	}
	return Join(in...)
}

// endAnswer refuses an EndTxn.
func endAnswer(r broker.Request, code int16) kmsg.Response {
	resp := r.Message().ResponseKind().(*kmsg.EndTxnResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
	return resp
}

// stageAnswer refuses a TxnShareAcknowledge as a whole.
func stageAnswer(r broker.Request, code int16) kmsg.Response {
	resp := r.Message().ResponseKind().(*wire.Response)
	resp.ErrorCode = code
	return resp
}

// partitionAnswer answers each partition of a TxnShareAcknowledge with a code.
func partitionAnswer(r broker.Request, code int16) kmsg.Response {
	req := r.Message().(*wire.Request)
	resp := req.ResponseKind().(*wire.Response)
	for _, t := range req.Topics {
		rt := wire.ResponseTopic{TopicID: t.TopicID}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, wire.ResponsePartition{Partition: p.Partition, ErrorCode: code})
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// produceAnswer refuses all partitions of a Produce.
func produceAnswer(r broker.Request, code int16) kmsg.Response {
	req := r.Message().(*kmsg.ProduceRequest)
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.ErrorCode, rp.BaseOffset = p.Partition, code, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}
