package sharetxntest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// copier is a service: it copies topic "in" to topic "out" in transactions.
type copier struct {
	cl   *sharetxn.Cluster
	id   string
	each func(context.Context) error // before a record is copied; nil: nothing
}

func (s copier) Run(ctx context.Context) error {
	c, err := shareconsumer.New(s.cl, "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	p, err := producer.New(s.cl, "copier"+s.id)
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	for batch, err := range c.Batches(ctx) {
		if err == nil {
			_, err = p.InTransaction(ctx, batch, func(ctx context.Context, txn *producer.Txn) error {
				return s.copy(ctx, txn, batch)
			})
		}
		if sharetxn.IsFatal(err) {
			return err
		}
	}
	return nil
}

func (s copier) copy(ctx context.Context, txn *producer.Txn, batch *shareconsumer.Batch) error {
	for _, r := range batch.Records() {
		if s.each != nil {
			if err := s.each(ctx); err != nil {
				return err
			}
		}
		if err := txn.Produce(ctx, &kgo.Record{Topic: "out", Value: r.Value}); err != nil {
			return err
		}
		r.Accept()
	}
	return nil
}

// numbers are n records for topic "in".
func numbers(n int) []*kgo.Record {
	rs := make([]*kgo.Record, n)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "in", Value: fmt.Append(nil, i)}
	}
	return rs
}

// wantNumbers holds a topic against numbers(n), each once.
func wantNumbers(t *testing.T, c *Cluster, topic string, n int) {
	t.Helper()
	seen := make(map[string]int)
	for _, r := range c.Committed(t, topic) {
		seen[string(r.Value)]++
	}
	for i := range n {
		if v := fmt.Sprint(i); seen[v] != 1 {
			t.Errorf("%s is visible %d times on %s", v, seen[v], topic)
		}
	}
	if len(seen) != n {
		t.Errorf("%d different values on %s, want %d", len(seen), topic, n)
	}
}

// worlds runs a test twice: on sockets and the wall clock, and in a bubble.
func worlds(t *testing.T, fn func(t *testing.T)) {
	t.Run("real", fn)
	t.Run("virtual", func(t *testing.T) { synctest.Test(t, fn) })
}

func TestCopy(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, Brokers(3), Topic("in", 3))
		rs := numbers(90)
		k.Feed(t, rs...)
		spread := make(map[int32]int)
		for _, r := range rs {
			spread[r.Partition]++
		}
		if len(spread) != 3 || spread[0] != 30 || spread[1] != 30 {
			t.Errorf("records by partition: %v", spread)
		}
		wantNumbers(t, k, "in", 90)
		if got := k.Committed(t, "out"); got != nil {
			t.Errorf("%d records before anything ran", len(got))
		}
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		wantNumbers(t, k, "out", 90)
		k.AssertExactlyOnce(t, "g", "out")
		if n := k.Requests(EndTxnKey); n == 0 || k.Requests(StageKey) == 0 || k.Requests(28) != 0 {
			t.Errorf("%d transactions ended", n)
		}
		k.WaitDrained(t, "g")
	})
}

// Locks of half a minute end within milliseconds.
func TestVirtualLock(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	real := time.Now()
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1))
		k.Feed(t, numbers(1)...)
		c, err := shareconsumer.New(k.Connect(t), "g", shareconsumer.Topics("in"), shareconsumer.AcknowledgementMode(shareconsumer.Explicit))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		began := time.Now()
		for delivery := range int32(3) {
			b, err := c.Poll(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := b.Records()[0].DeliveryCount(); got != delivery+1 {
				t.Errorf("delivery %d, want %d", got, delivery+1)
			}
			if d := time.Since(began); d < time.Duration(delivery)*30*time.Second || d > time.Duration(delivery)*31*time.Second+time.Second {
				t.Errorf("delivery %d after %v", delivery+1, d)
			}
		}
	})
	if d := time.Since(real); d > 10*time.Second {
		t.Errorf("a virtual minute took %v", d)
	}
}

func TestStartRefuses(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for want, opts := range map[string][]Opt{
		"Brokers(0): at least 1":        {Brokers(0)},
		"topic in: 0 partitions":        {Topic("in", 0)},
		"LockDuration 1.5ms":            {Group("g", GroupConfig{LockDuration: 1500 * time.Microsecond})},
		"LockDuration 2m0s":             {Group("g", GroupConfig{LockDuration: 2 * time.Minute})},
		"DeliveryLimit 1 is not":        {Group("g", GroupConfig{DeliveryLimit: 1})},
		"Profile(kip93) with StockKafk": {Profile(sharetxn.ProfileKIP93), StockKafka44()},
	} {
		failed, _ := verdict(t, func(t testing.TB) { Start(t, opts...) })
		wantText(t, want, failed, want)
	}
}

func TestRefusedCalls(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	k := Start(t, Topic("in", 1))
	for want, call := range map[string]func(t testing.TB){
		`topic "inn" does not exist: give Start the option Topic("inn", partitions)`: func(t testing.TB) { k.Feed(t, &kgo.Record{Topic: "inn"}) },
		"MoveLeader: there is no broker 1":                                           func(t testing.TB) { k.MoveLeader(t, "in", 0, 1) },
		"MoveLeader: broker: ":                                                       func(t testing.TB) { k.MoveLeader(t, "in", 7, 0) },
		"Part: there is no broker 3":                                                 func(t testing.TB) { k.Part(t, 0, 3) },
		"Part: broker 0 cannot be":                                                   func(t testing.TB) { k.Part(t, 0, 0) },
		"Restart: there is no broker -1":                                             func(t testing.TB) { k.Restart(t, -1) },
		"Connect: sharetxn: Connect: wrong use: Logger":                              func(t testing.TB) { k.Connect(t, sharetxn.Logger(nil)) },
	} {
		failed, _ := verdict(t, call)
		wantText(t, want, failed, want)
	}
}

// What the library warns of stands in the test's log, and nothing is written
// there once the test is over.
func TestWarningsAreLogged(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	var log strings.Builder
	out := &output{t: &recorder{TB: t, out: &log}}
	slog.New(slog.NewTextHandler(out, nil)).Warn("during")
	out.close()
	slog.New(slog.NewTextHandler(out, nil)).Warn("after")
	if got := log.String(); !strings.Contains(got, "msg=during") || strings.Contains(got, "after") {
		t.Errorf("log: %q", got)
	}
}

// Moves and restarts keep what is committed and where brokers are.
func TestMoveAndRestart(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, Brokers(2), Topic("in", 2), Topic("out", 2))
		seeds := k.Seeds()
		cl := k.Connect(t)
		k.Feed(t, numbers(10)...)
		k.MoveLeader(t, "in", 0, 1)
		k.RunUntilDrained(t, "g", copier{cl: cl})
		k.Restart(t, 1)
		k.Feed(t, &kgo.Record{Topic: "in", Value: []byte("10")}, &kgo.Record{Topic: "in", Value: []byte("11")})
		k.RunUntilDrained(t, "g", copier{cl: cl})
		wantNumbers(t, k, "out", 12)
		k.AssertExactlyOnce(t, "g", "out")
		if got := k.Seeds(); !slices.Equal(got, seeds) {
			t.Errorf("brokers at %v, before at %v", got, seeds)
		}
	})
}
