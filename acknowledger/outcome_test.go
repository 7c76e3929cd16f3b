package acknowledger

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// An outcome that stays open is Unknown; the next call settles it first, and
// both batches are what the broker says.
func TestUnknownIsSettledByNextCall(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		for name, lose := range map[string]broker.Action{
			"was committed": {LoseAnswer: true}, "is committed by the next call": {LoseRequest: true},
		} {
			t.Run(name, func(t *testing.T) {
				ctx := testkit.Deadline(t, 30*time.Second)
				w := start(t, p, nil)
				w.feed(ctx, t, 6)
				c, a := w.consumer(t, "g", shareconsumer.MaxPollRecords(1)), w.acknowledger(t, ResolveTimeout(300*time.Millisecond))
				if err := a.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				bs := gather(ctx, t, 6, c)
				f := w.inject(keyEndTxn, 1<<30, func(broker.Request) broker.Action { return lose })
				out, err := a.CommitAcknowledgements(ctx, accepted(bs[:3])...)
				if out != sharetxn.Unknown || !errors.Is(err, sharetxn.ErrOutcomeUnknown) || sharetxn.ClassOf(err) != sharetxn.ClassUnknown {
					t.Fatalf("%v, %v", out, err)
				}
				inits := w.Traffic(keyInit).Requests
				out, err = a.CommitAcknowledgements(ctx, accepted(bs[3:])...)
				if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrOutcomeUnknown) {
					t.Fatalf("while it cannot be settled: %v, %v", out, err)
				}
				if held(bs[3:]) != 3 || f.fired.Load() < 2 || w.Traffic(keyInit).Requests != inits {
					t.Fatalf("%d records left of the second batch, fault fired %d times, %d InitProducerId", held(bs[3:]), f.fired.Load(), w.Traffic(keyInit).Requests-inits)
				}
				w.SetIntercept(nil)
				if out, err = a.CommitAcknowledgements(ctx, accepted(bs[3:])...); out != sharetxn.Committed || err != nil {
					t.Fatalf("the next call: %v, %v", out, err)
				}
				w.waitDone(ctx, t, "g", 6)
				if out, err := a.CommitAcknowledgements(ctx, bs[0]); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrStale) {
					t.Errorf("a batch that is committed, again: %v, %v", out, err)
				}
			})
		}
	})
}

// Of two with the same prefix and instance the older is fenced, for good, and
// acknowledges nothing; one with another instance is not touched.
func TestFenced(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 60*time.Second)
		w := start(t, p, nil)
		w.feed(ctx, t, 9)
		c := w.consumer(t, "g", shareconsumer.MaxPollRecords(1))
		older, neighbour := w.acknowledger(t), w.acknowledger(t, Instance("b"))
		bs := gather(ctx, t, 9, c)
		for _, a := range []*TransactionalShareAcknowledger{older, neighbour} {
			if out, err := a.CommitAcknowledgements(ctx, accepted(bs[:1])...); out != sharetxn.Committed || err != nil {
				t.Fatalf("%v, %v", out, err)
			}
			bs = bs[1:]
		}
		replica := &world{w.Cluster, p, w.connect(t)}
		newer := replica.acknowledger(t)
		if err := newer.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		out, err := older.CommitAcknowledgements(ctx, accepted(bs[:3])...)
		if out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrAborted) || !sharetxn.IsFatal(err) {
			t.Fatalf("the older: %v, %v", out, err)
		}
		if out, err := older.CommitAcknowledgements(ctx, accepted(bs[3:4])...); out != sharetxn.Aborted || !errors.Is(err, sharetxn.ErrFenced) {
			t.Fatalf("the older again: %v, %v", out, err)
		}
		if err := older.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrFenced) {
			t.Errorf("InitTransactions of the older: %v", err)
		}
		if done, _, _, pending := w.totals("g"); done != 2 || pending != 0 {
			t.Fatalf("%d records done, %d pending", done, pending)
		}
		if out, err := neighbour.CommitAcknowledgements(ctx, accepted(bs[3:4])...); out != sharetxn.Committed || err != nil {
			t.Fatalf("the neighbour: %v, %v", out, err)
		}
		// The newer takes what a consumer of its own process holds.
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		w.finish(ctx, t, newer, replica.consumer(t, "g"), nil, 9)
	})
}

// Brokers that cannot stage: a typed error that says what they lack, and not a
// byte on the staging key, or to the coordinator.
func TestUnsupported(t *testing.T) {
	inProfiles(t, func(t *testing.T, p profile) {
		ctx := testkit.Deadline(t, 30*time.Second)
		w := start(t, p, func(c *broker.Config) { c.Stock44 = true })
		w.feed(ctx, t, 3)
		inits := w.Traffic(keyInit).Requests
		c, a := w.consumer(t, "g"), w.acknowledger(t)
		if err := a.InitTransactions(ctx); !errors.Is(err, sharetxn.ErrUnsupported) {
			t.Fatalf("InitTransactions: %v", err)
		}
		bs := gather(ctx, t, 3, c)
		out, err := a.CommitAcknowledgements(ctx, accepted(bs)...)
		if u, ok := errors.AsType[*sharetxn.UnsupportedError](err); out != sharetxn.Aborted || !ok || len(u.Found.Brokers) != 3 || !sharetxn.IsFatal(err) {
			t.Fatalf("%v, %v", out, err)
		}
		for _, key := range []int16{93, 95, keyEndTxn} {
			if n := w.Traffic(key).Requests; n > 0 {
				t.Errorf("%d requests on key %d", n, key)
			}
		}
		if n := w.Traffic(keyInit).Requests - inits; n > 0 {
			t.Errorf("%d InitProducerId", n)
		}
		if held(bs) != 3 {
			t.Errorf("%d records are still held", held(bs))
		}
	})
}

// The transactional id is <prefix>-<instance>-0, the instance by default the
// host's name.
func TestTransactionalID(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := start(t, draft95, nil)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for id, opts := range map[string][]Opt{"acks-" + host + "-0": nil, "acks-pod 7-0": {Instance("pod 7")}} {
		a, err := New(w.cl, "acks", opts...)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.InitTransactions(ctx); err != nil {
			t.Fatal(err)
		}
		if _, ok := w.txn(id); !ok {
			t.Errorf("the coordinator knows no %q: %+v", id, w.Transactions())
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		// Errors carry it.
		if err := a.InitTransactions(ctx); !strings.Contains(err.Error(), id) {
			t.Errorf("does not name the id: %v", err)
		}
	}
}
