package broker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	keyProduce = 0
	keyEndTxn  = 26
)

var profiles = []struct {
	wire wire.Profile
	root sharetxn.Profile
}{{wire.Draft95, sharetxn.ProfileDraft95}, {wire.KIP93, sharetxn.ProfileKIP93}}

// world is a cluster of three brokers with topics "in" and "out" and a service
// that copies from one to the other.
type world struct {
	*broker.Cluster
	t        *testing.T
	cl       *sharetxn.Cluster
	consumer *shareconsumer.Consumer
	producer *producer.Producer
	fed      int
}

func begin(t *testing.T, profile sharetxn.Profile, cfg broker.Config) *world {
	t.Helper()
	cfg.Brokers, cfg.Topics, cfg.History = 3, map[string]int32{"in": 3, "out": 3}, true
	cfg.HeartbeatInterval, cfg.OffsetReset = 100*time.Millisecond, "earliest"
	c, err := broker.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{Cluster: c, t: t}
	t.Cleanup(func() { w.Close() }) // of the cluster that is there then
	if w.cl, err = sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(c.Seeds()...), kgo.MetadataMinAge(10*time.Millisecond), kgo.DisableClientMetrics()),
		sharetxn.Logger(slog.New(slog.DiscardHandler)), sharetxn.WithProfile(profile)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.cl.Close)
	w.as("copy")
	if w.consumer, err = shareconsumer.New(w.cl, "g", shareconsumer.Topics("in"), shareconsumer.MaxWait(50*time.Millisecond),
		shareconsumer.AcknowledgementMode(shareconsumer.Transactional)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.consumer.Close() })
	return w
}

// as makes the service produce under another transactional id.
func (w *world) as(id string) {
	w.t.Helper()
	p, err := producer.New(w.cl, id)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() })
	w.producer = p
}

// feed adds a record to a partition of "in".
func (w *world) feed(ctx context.Context, partition int32) {
	w.t.Helper()
	p, err := w.cl.Client(kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer p.Close()
	if err := p.ProduceSync(ctx, &kgo.Record{Topic: "in", Partition: partition, Value: fmt.Append(nil, w.fed)}).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	w.fed++
}

func (w *world) poll(ctx context.Context) *shareconsumer.Batch {
	w.t.Helper()
	b, err := w.consumer.Poll(ctx)
	if err != nil {
		w.t.Fatalf("poll: %v", err)
	}
	return b
}

// copy copies a batch in one transaction.
func (w *world) copy(ctx context.Context, b *shareconsumer.Batch) error {
	outcome, err := w.producer.InTransaction(ctx, b, func(ctx context.Context, tx *producer.Txn) error {
		for _, r := range b.Records() {
			if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
				return err
			}
			r.Accept()
		}
		return nil
	})
	if (outcome == sharetxn.Committed) != (err == nil) {
		w.t.Fatalf("outcome %v with error %v", outcome, err)
	}
	return err
}

// copyNext feeds a record to a partition, and copies until it is done.
func (w *world) copyNext(ctx context.Context, partition int32) {
	w.t.Helper()
	w.feed(ctx, partition)
	if err := w.copy(ctx, w.poll(ctx)); err != nil {
		w.t.Fatalf("copy: %v", err)
	}
}

// audit gives what is wrong with all that happened.
func (w *world) audit(ctx context.Context) []check.Finding {
	w.t.Helper()
	facts, err := w.Facts(ctx, "g", "out")
	if err != nil {
		w.t.Fatal(err)
	}
	return history.Judge(facts).Findings
}

// wantClean audits when every outcome has come to all logs: producers are told
// before.
func (w *world) wantClean(ctx context.Context) {
	w.t.Helper()
	testkit.Eventually(ctx, w.t, "all markers are written", func() bool {
		return !slices.ContainsFunc(w.Transactions(), func(v txn.View) bool {
			return v.Status == txn.PrepareCommit || v.Status == txn.PrepareAbort
		})
	})
	if found := w.audit(ctx); len(found) > 0 {
		w.t.Errorf("audit: %v", found)
	}
	if got := len(w.visible(ctx)); got != w.fed {
		w.t.Errorf("%d outputs of %d inputs", got, w.fed)
	}
}

// visible are the values that a read_committed reader of "out" sees.
func (w *world) visible(ctx context.Context) (values []string) {
	w.t.Helper()
	records, err := w.Committed(ctx, "out")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range records {
		values = append(values, string(r.Value))
	}
	slices.Sort(values)
	return values
}

func (w *world) raise(ctx context.Context, level int16, upgradeType int8) error {
	w.t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	got, err := kadm.NewClient(cl).UpdateFeatures(ctx, false, kadm.FeatureUpdate{Feature: "share.version", MaxVersionLevel: level, UpgradeType: upgradeType})
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Error()
}

// holdEndTxn keeps the next EndTxn from being handled until release is closed;
// held is closed when it came.
func (w *world) holdEndTxn() (held, release chan struct{}) {
	held, release = make(chan struct{}), make(chan struct{})
	first := make(chan struct{}, 1)
	first <- struct{}{}
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != keyEndTxn {
			return broker.Action{}
		}
		select {
		case <-first:
			close(held)
			return broker.Action{Wait: release}
		default:
			return broker.Action{}
		}
	})
	return held, release
}

// coordinator is the node that coordinates the transactional id.
func (w *world) coordinator(ctx context.Context, id string) int32 {
	w.t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	found := kadm.NewClient(cl).FindTxnCoordinators(ctx, id)
	return found[id].NodeID
}

// A cluster that is upgraded broker by broker, and its feature raised, stages at
// the next try: the service that was refused is not started again.
func TestRollout(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			need := p.wire.ShareVersion()
			w := begin(t, p.root, broker.Config{Profile: p.wire, LacksStaging: []int32{0, 1, 2}, ShareVersion: need - 1})
			unsupported := func(when string) {
				t.Helper()
				if err := w.producer.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrUnsupported) {
					t.Fatalf("%s: %v, want ErrUnsupported", when, err)
				}
				if sent := w.Traffic(p.wire.Key()); sent != (broker.Traffic{}) {
					t.Fatalf("%s: %+v was sent on the key", when, sent)
				}
			}
			unsupported("at first")
			for node := range int32(3) {
				if err := w.UpgradeNode(node); err != nil {
					t.Fatal(err)
				}
				unsupported(fmt.Sprintf("node %d upgraded", node))
			}
			if err := w.raise(ctx, need, 1); err != nil {
				t.Fatal(err)
			}
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatalf("raised: %v", err)
			}
			w.copyNext(ctx, 0)
			w.wantClean(ctx)
		})
	}
}

// A level that staging needs is not lowered while records are staged; once it
// is, the service is told, nothing is lost, and raised again it goes on.
func TestLowered(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			need := p.wire.ShareVersion()
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			held, release := w.holdEndTxn()
			w.feed(ctx, 0)
			copied := make(chan error, 1)
			b := w.poll(ctx)
			go func() { copied <- w.copy(ctx, b) }()
			<-held
			if s := w.PartitionStates("g"); !slices.ContainsFunc(s, func(s share.PartitionState) bool { return s.Pending == 1 }) {
				t.Fatalf("nothing is staged: %+v", s)
			}
			for _, how := range []int8{2, 3} {
				if err := w.raise(ctx, need-1, how); err == nil {
					t.Fatalf("lowered with a record staged (type %d)", how)
				}
			}
			for _, feature := range []string{"share.version", "transaction.version"} {
				if err := w.SetFeature(feature, 1); err == nil || !strings.Contains(err.Error(), "staged") {
					t.Fatalf("%s set to 1 with a record staged: %v", feature, err)
				}
			}
			close(release)
			if err := <-copied; err != nil {
				t.Fatalf("the transaction that was staged: %v", err)
			}
			w.feed(ctx, 1)
			again := w.poll(ctx)
			if err := w.raise(ctx, need-1, 2); err != nil {
				t.Fatalf("not lowered: %v", err)
			}
			if err := w.copy(ctx, again); !errors.Is(err, sharetxn.ErrUnsupported) {
				t.Fatalf("lowered: %v, want ErrUnsupported", err)
			}
			if got := w.visible(ctx); len(got) != 1 {
				t.Fatalf("visible %q", got)
			}
			if err := w.raise(ctx, need, 1); err != nil {
				t.Fatal(err)
			}
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatalf("raised again: %v", err)
			}
			if again.Len() != 1 {
				t.Fatalf("%d records are still ours", again.Len())
			}
			if err := w.copy(ctx, again); err != nil {
				t.Fatalf("raised again: %v", err)
			}
			w.wantClean(ctx)
		})
	}
}

// A broker that joins leaves leaders where they are, coordinates, and leads what
// is moved to it.
func TestJoin(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			w.copyNext(ctx, 0)
			node, err := w.AddNode()
			if err != nil || node != 3 || len(w.Seeds()) != 4 {
				t.Fatalf("node %d joined, %v; seeds %v", node, err, w.Seeds())
			}
			for part := range int32(3) {
				for _, topic := range []string{"in", "out"} {
					if got := w.Leader(topic, part); got != part {
						t.Errorf("%s-%d is led by %d after the join", topic, part, got)
					}
				}
			}
			w.copyNext(ctx, 1)
			for _, topic := range []string{"in", "out"} {
				if err := w.MoveLeader(topic, 2, node); err != nil {
					t.Fatal(err)
				}
			}
			w.copyNext(ctx, 2)
			if err := w.CreateTopic("more", 4); err != nil {
				t.Fatal(err)
			}
			if got := w.Leader("more", 3); got != node {
				t.Errorf("partition 3 of a new topic is led by %d", got)
			}
			id := ""
			for i := 0; id == "" && i < 100; i++ {
				if try := fmt.Sprintf("id-%d", i); w.coordinator(ctx, try) == node {
					id = try
				}
			}
			if id == "" {
				t.Fatal("the new node coordinates nothing")
			}
			w.as(id)
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			w.copyNext(ctx, 2)
			if err := w.RestartNode(node); err != nil {
				t.Fatal(err)
			}
			w.copyNext(ctx, 2)
			w.wantClean(ctx)
		})
	}
}

// A broker that joins without staging disturbs nobody, until it leads what a
// transaction reads from; then not one byte of staging goes to it.
func TestJoinLackingStaging(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := begin(t, sharetxn.ProfileDraft95, broker.Config{LacksStaging: []int32{3}})
	if err := w.producer.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	node, err := w.AddNode()
	if err != nil {
		t.Fatal(err)
	}
	w.copyNext(ctx, 1)
	if err := w.MoveLeader("in", 0, node); err != nil {
		t.Fatal(err)
	}
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == wire.Draft95.Key() && r.Node == node {
			t.Errorf("a staging request went to node %d", node)
		}
		return broker.Action{}
	})
	w.feed(ctx, 0)
	b := w.poll(ctx)
	if err := w.copy(ctx, b); !errors.Is(err, sharetxn.ErrUnsupported) {
		t.Fatalf("staged at the new node: %v", err)
	}
	if got := w.visible(ctx); len(got) != 1 {
		t.Fatalf("visible %q", got)
	}
}

// A broker that restarts between staging and commit: the draft's staging is
// durable; by the KIP text it is gone, the record comes again, and its output is
// published twice, which the text concedes and the audit attributes.
func TestRestartWhileStaged(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			node := (w.coordinator(ctx, "copy") + 1) % 3
			w.feed(ctx, node)
			held, release := w.holdEndTxn()
			copied := make(chan error, 1)
			b := w.poll(ctx)
			go func() { copied <- w.copy(ctx, b) }()
			<-held
			if s, _, _, _ := w.StateOf("g", "in", node, 0); s != share.TxPending {
				t.Fatalf("the record is %v", s)
			}
			if err := w.RestartNode(node); err != nil {
				t.Fatal(err)
			}
			close(release)
			if err := <-copied; err != nil {
				t.Fatalf("commit: %v", err)
			}
			if p.wire == wire.Draft95 {
				w.copyNext(ctx, node) // which finds nothing but what it fed
				w.wantClean(ctx)
				return
			}
			if err := w.copy(ctx, w.poll(ctx)); err != nil {
				t.Fatalf("delivered again: %v", err)
			}
			if got := w.visible(ctx); !slices.Equal(got, []string{"0", "0"}) {
				t.Fatalf("visible %q, want it twice", got)
			}
			found := w.audit(ctx)
			if len(found) == 0 || slices.ContainsFunc(found, func(f check.Finding) bool { return !f.Conceded }) {
				t.Fatalf("audit: %v, want conceded duplicates only", found)
			}
			w.SetIntercept(nil)
			w.copyNext(ctx, node)
		})
	}
}

// Where nothing is staged a restart costs a redelivery and nothing else, and the
// delivery that was forgotten is not counted.
func TestRestartWhileAcquired(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			w.feed(ctx, 1)
			b := w.poll(ctx)
			if b.Len() != 1 || b.Records()[0].DeliveryCount() != 1 {
				t.Fatalf("polled %d records", b.Len())
			}
			if err := w.RestartNode(1); err != nil {
				t.Fatal(err)
			}
			b.Close()
			b = w.poll(ctx)
			if b.Len() != 1 || b.Records()[0].DeliveryCount() != 1 {
				t.Fatalf("%d records after the restart", b.Len())
			}
			if err := w.copy(ctx, b); err != nil {
				t.Fatal(err)
			}
			w.wantClean(ctx)
		})
	}
}
