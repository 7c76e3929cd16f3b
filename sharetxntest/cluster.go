package sharetxntest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Cluster is a Kafka cluster in this process; it is gone when its test ends.
// Safe for concurrent use, but for the calls that take a testing.TB: those end
// the test when they fail, which only the test's own goroutine may.
type Cluster struct {
	cfg      config
	broker   *broker.Cluster
	plan     *fault.Plan
	staged   atomic.Int64  // requests that stage
	net      *network      // nil: sockets
	patience time.Duration // how long waiting may take
	log      *slog.Logger
	client   *kgo.Client // the test's own
	admin    *kadm.Client
	witness  *witness // of what clients are told
	readers  []*reader
}

func init() { broker.Of = func(kit any) *broker.Cluster { return kit.(*Cluster).broker } }

// Start starts a cluster for the test and closes it when the test ends, after
// everything that Connect gave. Bad options end the test.
//
// Inside testing/synctest all is virtual, network and clock: give Start the
// *testing.T of the bubble, and reach the cluster through Connect or Kafka only.
func Start(t testing.TB, opts ...Opt) *Cluster {
	t.Helper()
	cfg := config{brokers: 1, topics: make(map[string]int32), groups: make(map[string]GroupConfig)}
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(); err != nil {
		t.Fatalf("sharetxntest.Start: %v", err)
	}
	out := &output{t: t}
	t.Cleanup(out.close)
	c := &Cluster{cfg: cfg, plan: fault.New(0), patience: time.Minute, log: slog.New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelWarn}))}
	bc := cfg.broker()
	// Real members wait for news at the pace of heartbeats; virtual ones keep
	// Kafka's own and wait for nothing.
	bc.HeartbeatInterval = 100 * time.Millisecond
	if virtual() {
		guardRaceDetector(t)
		c.net, c.patience = newNetwork(), time.Hour
		bc.Listen, bc.HeartbeatInterval = c.net.Listen, 0
	}
	bc.History = true
	b, err := broker.Start(bc)
	if err != nil {
		t.Fatalf("sharetxntest.Start: %v", err)
	}
	t.Cleanup(b.Close)
	c.broker = b
	c.witness = &witness{note: b.Note, begun: make(map[string]int64), ended: make(map[check.Txn]int64)}
	// Only now: a client that a test before this one left may know the port.
	b.SetIntercept(c.intercept)
	b.TreatMarkers(c.plan.Treat)
	if c.client, err = kgo.NewClient(append(c.Kafka(), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))...); err != nil {
		t.Fatalf("sharetxntest.Start: %v", err)
	}
	t.Cleanup(c.client.Close)
	c.admin = kadm.NewClient(c.client)
	return c
}

// virtual tells whether the caller is inside testing/synctest: a bubble's clock
// starts with the year 2000 and moves only while all wait, and no machine that
// has this Go is that old.
func virtual() bool { return time.Now().Year() < 2020 }

// Seeds are the brokers' addresses, for code that takes them. In a virtual
// network they lead nowhere without the dialer that is among Kafka.
func (c *Cluster) Seeds() []string { return c.broker.Seeds() }

// Kafka are the kgo options that reach the cluster, for code that makes its own
// clients or its own sharetxn.Cluster.
func (c *Cluster) Kafka() []kgo.Opt {
	opts := []kgo.Opt{
		kgo.SeedBrokers(c.Seeds()...),
		kgo.DisableClientMetrics(),
		kgo.MetadataMinAge(10 * time.Millisecond), // so that a moved leader is found at once
	}
	if c.net != nil {
		opts = append(opts, kgo.Dialer(c.net.DialContext))
	}
	return opts
}

// Connect is sharetxn.Connect to the cluster, for its profile, with a logger
// that writes warnings to the test's log, and with hooks that note for History what
// its users are told; opts come after that. It is closed when the test ends; what
// was made from it must have been closed by then.
func (c *Cluster) Connect(t testing.TB, opts ...sharetxn.Opt) *sharetxn.Cluster {
	t.Helper()
	cl, err := sharetxn.Connect(append([]sharetxn.Opt{
		sharetxn.Kafka(c.Kafka()...), sharetxn.WithProfile(c.cfg.profile), sharetxn.Logger(c.log), sharetxn.WithHooks(c.witness),
	}, opts...)...)
	if err != nil {
		t.Fatalf("sharetxntest.Connect: %v", err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// output is the test's log until the test ends: after that, writing to it would
// be a panic.
type output struct {
	mu sync.Mutex
	t  testing.TB
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.t == nil {
		return len(p), nil
	}
	return o.t.Output().Write(p)
}

func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.t = nil
}

// bounded is for one call: it ends when the cluster's patience does.
func (c *Cluster) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), c.patience)
}
