package producer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
)

// setLevel finalizes share.version at the level that staging needs, or below it.
func (w *world) setLevel(t testing.TB, staging bool) {
	t.Helper()
	level := w.profile.ShareVersion()
	if !staging {
		level--
	}
	if err := w.SetFeature("share.version", level); err != nil {
		t.Fatal(err)
	}
}

// unsupported checks that Begin with the batches says so, with what the brokers
// offer, and that nothing was begun, produced or staged.
func (w *world) unsupported(ctx context.Context, t testing.TB, p *Producer, bs []*shareconsumer.Batch) {
	t.Helper()
	produces, stages := w.Traffic(keyProduce).Requests, w.stages()
	out, err := w.one(ctx, p, bs, "never")
	var u *sharetxn.UnsupportedError
	if out != sharetxn.Aborted || !errors.As(err, &u) || !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) || len(u.Found.Brokers) < 3 {
		t.Fatalf("%v, %v", out, err)
	}
	if got := w.Traffic(keyProduce).Requests; got != produces {
		t.Errorf("%d produce requests before the error", got-produces)
	}
	if got := w.stages(); got != stages {
		t.Errorf("%d requests on the staging key before the error", got-stages)
	}
}

// commits runs a transaction that must commit.
func (w *world) commits(ctx context.Context, t testing.TB, p *Producer, bs []*shareconsumer.Batch, value string) {
	t.Helper()
	if out, err := w.one(ctx, p, bs, value); out != sharetxn.Committed || err != nil {
		t.Fatalf("%s: %v, %v", value, out, err)
	}
}

// A share.version that is raised while clients run lets staging begin with the
// next Begin, on the connections there are.
func TestLevelRaised(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.setLevel(t, false)
		w.feed(ctx, t, 6)
		c, p := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.producer(t, "tx")
		bs := gather(ctx, t, c, 6)
		w.commits(ctx, t, p, nil, "before") // connected to brokers that do not stage
		w.unsupported(ctx, t, p, bs)
		if err := p.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrUnsupported) {
			t.Fatalf("InitTransactions: %v", err)
		}
		w.setLevel(t, true)
		w.commits(ctx, t, p, bs, "after")
		w.waitDone(ctx, t, "g", 6)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
	})
}

// A share.version that is lowered while clients run: the stage that finds out
// aborts, with what the brokers offer, and from then on Begin says so, also that
// of another producer of the process. Nothing was lost when it is raised again.
func TestLevelLowered(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 9)
		c, p, other := w.consumer(t, "g", shareconsumer.MaxPollRecords(3)), w.producer(t, "tx"), w.producer(t, "other")
		bs := gather(ctx, t, c, 9)
		w.commits(ctx, t, p, bs[:1], "first")
		n := len(bs) - 1
		rest := bs[1:]
		held := count(rest)
		w.setLevel(t, false)
		out, err := w.one(ctx, p, rest, "lowered")
		var u *sharetxn.UnsupportedError
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || !errors.As(err, &u) || !sharetxn.IsFatal(err) || !errors.Is(err, kerr.UnsupportedVersion) {
			t.Fatalf("%v, %v", out, err)
		}
		if u.Found.ShareVersion != profile.ShareVersion()-1 {
			t.Errorf("the error found share.version %d", u.Found.ShareVersion)
		}
		if n := count(rest); n != held {
			t.Errorf("%d records are still held, want %d: nothing was staged", n, held)
		}
		w.unsupported(ctx, t, p, rest)
		w.unsupported(ctx, t, other, rest)
		w.commits(ctx, t, p, nil, "produced only")
		w.setLevel(t, true)
		w.commits(ctx, t, other, rest[:1], "other")
		if n > 1 {
			w.commits(ctx, t, p, rest[1:], "second")
		}
		w.waitDone(ctx, t, "g", 9)
		want := []string{"first", "produced only", "other"}
		if n > 1 {
			want = append(want, "second")
		}
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
	})
}

// Whoever sees first that a level was lowered: nobody begins on what it proved.
func TestLevelLoweredIsSeen(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, setup{profile: profile})
		w.feed(ctx, t, 3)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		bs := gather(ctx, t, c, 3)
		if err := p.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		w.setLevel(t, false)
		if caps, err := w.cl.Capabilities(ctx); err != nil || caps.SupportsStaging() {
			t.Fatalf("%+v, %v", caps, err)
		}
		w.unsupported(ctx, t, p, bs)
		w.setLevel(t, true)
		w.commits(ctx, t, p, bs, "raised again")
		w.waitDone(ctx, t, "g", 3)
	})
}

// Brokers that are upgraded one by one: refused until the last of them is, and
// then at once, without a restart of the client.
func TestUpgradedOneByOne(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{profile: profile, edit: func(c *broker.Config) { c.LacksStaging = []int32{0, 1, 2} }})
		w.feed(ctx, t, 6)
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		w.commits(ctx, t, p, nil, "before")
		for node := range int32(3) {
			bs := gather(ctx, t, c, 6)
			w.unsupported(ctx, t, p, bs)
			if err := w.UpgradeNode(node); err != nil {
				t.Fatal(err)
			}
			// Its restart took what was acquired there; the member polls anew.
			_ = c.Close()
			c = w.consumer(t, "g")
		}
		bs := gather(ctx, t, c, 6)
		testkit.Eventually(ctx, t, "the brokers are back for the producer", func() bool {
			_, err := w.cl.Capabilities(ctx)
			return err == nil
		})
		w.commits(ctx, t, p, bs, "after")
		w.waitDone(ctx, t, "g", 6)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "after")
	})
}

// A broker that joins and lacks staging disturbs nobody until it leads a source
// partition: then the transaction aborts, without a byte to it on the staging
// key. With an upgrade of that broker everything goes on.
func TestJoiningBrokerLacksStaging(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		const joined = 3
		w := start(t, setup{profile: profile, edit: func(c *broker.Config) { c.LacksStaging = []int32{joined} }})
		c, p := w.consumer(t, "g"), w.producer(t, "tx")
		w.feed(ctx, t, 3)
		w.commits(ctx, t, p, gather(ctx, t, c, 3), "before")
		if node, err := w.AddNode(); err != nil || node != joined {
			t.Fatalf("%d, %v", node, err)
		}
		// Who asks is told so; what is proven of the others stands.
		if caps, err := w.cl.Capabilities(ctx); err != nil || caps.SupportsStaging() || len(caps.Brokers) != 4 {
			t.Fatalf("%+v, %v", caps, err)
		}
		w.feed(ctx, t, 3)
		w.commits(ctx, t, p, gather(ctx, t, c, 3), "joined")

		w.feed(ctx, t, 3)
		bs := gather(ctx, t, c, 3)
		// It takes a partition over when the verdicts are taken and the first leader
		// is asked to stage.
		move := sync.OnceFunc(func() {
			if err := w.MoveLeader("in", 1, joined); err != nil {
				t.Error(err)
			}
		})
		staged := w.injectStage(1<<30, func(r broker.Request) broker.Action {
			move()
			return broker.Action{}
		})
		toIt := &fault{key: profile.Key(), node: joined, act: always(broker.Action{})}
		toIt.times.Store(1 << 30)
		w.SetIntercept(func(r broker.Request) broker.Action {
			toIt.intercept(r)
			return staged.intercept(r)
		})
		out, err := w.one(ctx, p, bs, "lacking")
		var u *sharetxn.UnsupportedError
		if out != sharetxn.Aborted || !errors.As(err, &u) || len(u.Found.Brokers) != 4 || u.Found.Brokers[joined].Proven || !sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", out, err)
		}
		if staged.fired.Load() == 0 || w.Leader("in", 1) != joined {
			t.Fatal("the leader did not move")
		}
		toIt.mustHaveFired(t, 0)
		w.unsupported(ctx, t, p, remaining(bs))
		if done, _, _, pending := w.totals("g"); done != 6 || pending != 0 {
			t.Errorf("%d records done, %d pending", done, pending)
		}
		if err := w.UpgradeNode(joined); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		c = w.consumer(t, "g")
		bs = gather(ctx, t, c, 3)
		testkit.Eventually(ctx, t, "staging is proven by all", func() bool {
			caps, err := w.cl.Capabilities(ctx)
			return err == nil && caps.SupportsStaging()
		})
		w.commits(ctx, t, p, bs, "upgraded")
		if toIt.fired.Load() == 0 {
			t.Error("nothing was staged at the broker that joined")
		}
		w.waitDone(ctx, t, "g", 9)
		same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "joined", "upgraded")
	})
}

// Levels that go up and down between transactions, some with the ids in turn:
// each transaction either commits whole, or aborts with what is missing.
func TestLevelGoesUpAndDown(t *testing.T) {
	eachProfile(t, func(t *testing.T, profile wire.Profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, setup{profile: profile})
		const n = 24
		w.feed(ctx, t, n)
		c, p := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.producer(t, "tx", AlternateIDs(2))
		var want []string
		refused := 0
		for i, b := range gather(ctx, t, c, n) {
			records := b.Len()
			for tries := 0; ; tries++ {
				down := i%4 == 1 && tries == 0
				if i%4 == 1 {
					w.setLevel(t, !down)
				}
				value := fmt.Sprint(i)
				out, err := w.one(ctx, p, []*shareconsumer.Batch{b}, value)
				if out == sharetxn.Committed && !down {
					want = append(want, value)
					break
				}
				if !down || !errors.Is(err, sharetxn.ErrUnsupported) || b.Len() != records {
					t.Fatalf("transaction %d: %v, %v", i, out, err)
				}
				refused++
			}
		}
		if refused == 0 {
			t.Error("nothing was refused")
		}
		w.waitDone(ctx, t, "g", n)
		same(t, "visible outputs", w.visible(ctx, t, "out"), want...)
	})
}

// A transaction.version below 2 is noticed once the coordinator had to be looked
// up again, and no transaction begins on it.
func TestTransactionVersionLowered(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, setup{})
	p := w.producer(t, "tx", ResolveTimeout(2*time.Second))
	w.commits(ctx, t, p, nil, "before")
	if err := w.SetFeature("transaction.version", 1); err != nil {
		t.Fatal(err)
	}
	next := w.producer(t, "next")
	if _, err := next.Begin(ctx); !errors.Is(err, sharetxn.ErrUnsupported) || !sharetxn.IsFatal(err) {
		t.Fatalf("Begin of a new producer: %v", err)
	}
	if err := w.SetFeature("transaction.version", 2); err != nil {
		t.Fatal(err)
	}
	w.commits(ctx, t, next, nil, "next")
	w.commits(ctx, t, p, nil, "after")
	same(t, "visible outputs", w.visible(ctx, t, "out"), "before", "next", "after")
}
