package sharetxntest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What is not drained is said, for a group that never came too.
func TestNotDrained(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, Brokers(2), Topic("in", 2))
		k.patience = 300 * time.Millisecond
		k.Feed(t, numbers(4)...)
		failed, _ := verdict(t, func(t testing.TB) { k.WaitDrained(t, "g") })
		wantText(t, "nobody came", failed, "group g is not drained: GROUP_ID_NOT_FOUND")

		k.patience = 5 * time.Second // to join, and be given records
		failed, _ = verdict(t, func(t testing.TB) { k.RunUntilDrained(t, "g", copier{cl: k.Connect(t), each: never}) })
		wantText(t, "nothing is done", failed, "group g is not drained: in-0: start offset 0 of 2, 0 offsets available, 2 acquired, 0 staged; in-1: ")

		broken := errors.New("broken")
		failed, _ = verdict(t, func(t testing.TB) {
			k.RunUntilDrained(t, "g", RunnerFunc(func(context.Context) error { return broken }))
		})
		wantText(t, "ended early", failed, "sharetxntest.RunUntilDrained: broken\ngroup g is not drained: in-0: start offset 0 of 2, 2 offsets available, 0 acquired, 0 staged; in-1: start offset 0 of 2, 2 offsets available, 0 acquired, 0 staged: Run has returned")

		stuck := make(chan struct{})
		defer close(stuck)
		k.patience = time.Second
		failed, _ = verdict(t, func(t testing.TB) {
			k.RunUntilDrained(t, "g", RunnerFunc(func(ctx context.Context) error {
				err := copier{cl: k.Connect(t)}.Run(ctx)
				<-stuck
				return err
			}))
		})
		wantText(t, "never ends", failed, "Run has not returned 1s after the end of its context")
	})
}

// never keeps a record until its transaction is given up.
func never(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A service that ends by itself when its work is done is drained too, and so is
// one that found nothing to do: also where nobody looked while it was there.
func TestDrainedByItself(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	worlds(t, func(t *testing.T) {
		k := Start(t, Topic("in", 2), Topic("out", 1))
		once := func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			run := make(chan error, 1)
			go func() { run <- copier{cl: k.Connect(t)}.Run(ctx) }()
			err := k.drained(ctx, "g", nil)
			cancel()
			return errors.Join(err, <-run)
		}
		for _, n := range []int{0, 10, 10} {
			if err := once(t.Context()); err != nil {
				t.Fatal(err)
			}
			k.WaitDrained(t, "g") // it has left
			wantNumbers(t, k, "out", n)
			k.Feed(t, numbers(10)[n:]...)
			k.RunUntilDrained(t, "g", RunnerFunc(once))
			wantNumbers(t, k, "out", 10)
		}
	})
}

// Inputs that were produced in transactions: the markers between them are
// nobody's records, and a read_committed group never sees what was aborted.
func TestTransactionalInputs(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	synctest.Test(t, func(t *testing.T) {
		k := Start(t, Topic("in", 1), Topic("out", 1), Group("g", GroupConfig{ReadCommitted: true}))
		cl, err := kgo.NewClient(append(k.Kafka(), kgo.TransactionalID("feeder"))...)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		for round := range 3 {
			if err := cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			if err := cl.ProduceSync(t.Context(), numbers(4)...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if err := cl.EndTransaction(t.Context(), kgo.TransactionEndTry(round == 1)); err != nil {
				t.Fatal(err)
			}
		}
		k.RunUntilDrained(t, "g", copier{cl: k.Connect(t)})
		wantNumbers(t, k, "in", 4)
		wantNumbers(t, k, "out", 4)
		k.AssertExactlyOnce(t, "g", "out")
	})
}
