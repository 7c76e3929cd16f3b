package acknowledger

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	keyProduce    = 0
	keyInit       = 22
	keyAddToTxn   = 24
	keyEndTxn     = 26
	handshakes    = 3 // one per broker
	transactional = "acks-a-0"
)

// profile is how a cluster and its clients speak of staging.
type profile struct {
	wire   wire.Profile
	client sharetxn.Profile
}

var (
	draft95 = profile{wire.Draft95, sharetxn.ProfileDraft95}
	kip93   = profile{wire.KIP93, sharetxn.ProfileKIP93}
)

// inProfiles runs a test in each profile.
func inProfiles(t *testing.T, test func(*testing.T, profile)) {
	for _, p := range []profile{draft95, kip93} {
		t.Run(p.client.String(), func(t *testing.T) { test(t, p) })
	}
}

// world is an embedded cluster of three brokers with topic "in" of three
// partitions; the groups "g" and "h" read it from its start.
type world struct {
	*broker.Cluster
	profile
	cl *sharetxn.Cluster
}

func start(t testing.TB, p profile, edit func(*broker.Config), hooks ...sharetxn.Hook) *world {
	t.Helper()
	group := map[string]string{"share.auto.offset.reset": "earliest"}
	cfg := broker.Config{
		Brokers: 3, Topics: map[string]int32{"in": 3}, HeartbeatInterval: 100 * time.Millisecond, Profile: p.wire,
		GroupConfigs: map[string]map[string]string{"g": group, "h": group},
	}
	if edit != nil {
		edit(&cfg)
	}
	b, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	w := &world{Cluster: b, profile: p}
	w.cl = w.connect(t, hooks...)
	return w
}

// shortLock lets records come back within a test that nobody may touch any more.
func shortLock(c *broker.Config) {
	for _, g := range c.GroupConfigs {
		g["share.record.lock.duration.ms"] = "2000"
	}
}

// thinMargin goes with shortLock.
var thinMargin = LockMargin(100 * time.Millisecond)

func (w *world) connect(t testing.TB, hooks ...sharetxn.Hook) *sharetxn.Cluster {
	t.Helper()
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(w.Seeds()...), kgo.DisableClientMetrics(), kgo.MetadataMinAge(10*time.Millisecond)),
		sharetxn.WithProfile(w.client), sharetxn.Logger(slog.New(slog.DiscardHandler)), sharetxn.WithHooks(hooks...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// acknowledger of the transactional id acks-a-0, unless opts say otherwise.
func (w *world) acknowledger(t testing.TB, opts ...Opt) *TransactionalShareAcknowledger {
	t.Helper()
	a, err := New(w.cl, "acks", append([]Opt{Instance("a")}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}

func (w *world) consumer(t testing.TB, group string, opts ...shareconsumer.Opt) *shareconsumer.Consumer {
	t.Helper()
	c, err := shareconsumer.New(w.cl, group, append([]shareconsumer.Opt{
		shareconsumer.Topics("in"), shareconsumer.MaxWait(50 * time.Millisecond),
		shareconsumer.AcknowledgementMode(shareconsumer.Transactional),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// feed produces n records, in turn to each partition.
func (w *world) feed(ctx context.Context, t testing.TB, n int) {
	t.Helper()
	k, err := w.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Partition: int32(i % 3), Value: fmt.Append(nil, i)}
	}
	if err := k.ProduceSync(ctx, rs...).FirstErr(); err != nil {
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
		done, available, acquired, pending := w.totals(group)
		return done == n && available+acquired+pending == 0
	})
}

func (w *world) txn(id string) (v txn.View, ok bool) {
	for _, v := range w.Transactions() {
		if v.ID == id {
			return v, true
		}
	}
	return txn.View{}, false
}

// gather polls until the consumers hold n records or more, and keeps their locks.
func gather(ctx context.Context, t testing.TB, n int, cs ...*shareconsumer.Consumer) (bs []*shareconsumer.Batch) {
	t.Helper()
	for i := 0; n > 0; i++ {
		short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		b, err := cs[i%len(cs)].Poll(short)
		cancel()
		switch {
		case ctx.Err() != nil:
			t.Fatalf("%d records never came", n)
		case err == nil:
			b.KeepLocked(time.Minute)
			bs, n = append(bs, b), n-b.Len()
		case short.Err() == nil:
			t.Fatalf("Poll: %v", err)
		}
	}
	return bs
}

// accepted makes all of the batches ready to commit.
func accepted(bs []*shareconsumer.Batch) (in []producer.Acknowledgements) {
	for _, b := range bs {
		b.AcceptRest()
		in = append(in, b)
	}
	return in
}

// held counts the records that batches still have.
func held(bs []*shareconsumer.Batch) (n int) {
	for _, b := range bs {
		n += b.Len()
	}
	return n
}

// finish commits what is left of the batches, and then what comes, until n
// records of group "g" are done: the neighbouring case of every fault.
func (w *world) finish(ctx context.Context, t testing.TB, a *TransactionalShareAcknowledger, c *shareconsumer.Consumer, rest []*shareconsumer.Batch, n int64) {
	t.Helper()
	rest = slices.DeleteFunc(slices.Clone(rest), func(b *shareconsumer.Batch) bool { return b.Len() == 0 })
	for {
		if out, err := a.CommitAcknowledgements(ctx, accepted(rest)...); out != sharetxn.Committed || err != nil {
			t.Fatalf("the call after it: %v, %v", out, err)
		}
		if done, _, _, _ := w.totals("g"); done == n {
			w.waitDone(ctx, t, "g", n)
			return
		}
		rest = gather(ctx, t, 1, c)
	}
}

// result of a CommitAcknowledgements in another goroutine.
type result struct {
	out sharetxn.Outcome
	err error
}

func commit(ctx context.Context, a *TransactionalShareAcknowledger, bs []*shareconsumer.Batch) <-chan result {
	in, ended := accepted(bs), make(chan result, 1)
	go func() {
		out, err := a.CommitAcknowledgements(ctx, in...)
		ended <- result{out, err}
	}()
	return ended
}

// fault is what happens to requests of one key, and how often it did.
type fault struct{ fired atomic.Int64 }

// inject makes the next n requests of a key fare as act says; handshakes are
// left alone.
func (w *world) inject(key int16, n int64, act func(broker.Request) broker.Action) *fault {
	f := new(fault)
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != key {
			return broker.Action{}
		}
		if m, ok := r.Message().(*wire.Request); ok && m.TransactionalID == nil {
			return broker.Action{}
		}
		if f.fired.Add(1) > n {
			return broker.Action{}
		}
		return act(r)
	})
	return f
}

// hold makes the next request of a key wait, unhandled, until free is closed;
// came is closed when it is there.
func (w *world) hold(key int16) (came, free chan struct{}) {
	came, free = make(chan struct{}), make(chan struct{})
	w.inject(key, 1, func(broker.Request) broker.Action {
		close(came)
		return broker.Action{Wait: free}
	})
	return came, free
}

// stall keeps stages from ending: each is refused with a code that is worth a
// retry, or, with staged, done and its answer lost. came is closed when the
// first is there; SetIntercept(nil) ends it.
func (w *world) stall(staged bool) (_ *fault, came chan struct{}) {
	came = make(chan struct{})
	first := sync.OnceFunc(func() { close(came) })
	return w.inject(w.wire.Key(), 1<<30, func(r broker.Request) broker.Action {
		first()
		if staged {
			return broker.Action{LoseAnswer: true}
		}
		resp := r.Message().ResponseKind().(*wire.Response)
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return broker.Action{Answer: resp}
	}), came
}

func wait(ctx context.Context, t testing.TB, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-ctx.Done():
		t.Fatalf("%s never came", what)
	}
}
