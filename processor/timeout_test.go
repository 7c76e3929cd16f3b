package processor_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// shortLock is shorter than the transaction timeout for Kafka's default lock.
const shortLock = 10 * time.Second

func withShortLock() sharetxntest.Opt {
	return sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: shortLock})
}

// A process that dies with a transaction open under a short lock holds its records
// up no longer than that lock: the transaction timeout is sized under it. One that is
// set stays as it is, and then they wait for it.
func TestAbandonedUnderShortLock(t *testing.T) {
	for name, tc := range map[string]struct {
		set   time.Duration
		waits bool // beyond the lock
	}{"sized": {0, false}, "set": {15 * time.Second, true}} {
		t.Run(name, func(t *testing.T) {
			inAll(t, func(t *testing.T, on setting) {
				w := start(t, on, withShortLock())
				w.feed(t, 12)
				var last atomic.Int64 // when the successor handled a record
				began := time.Now()
				successor := w.processor(t, processor.Config{
					Instance: "there", Members: 6, TransactionTimeout: tc.set, // so that it shares each partition
					Handler: w.seen.handler(func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
						last.Store(int64(time.Since(began)))
						return copyOf(in), nil
					}),
				})
				var (
					once sync.Once
					stop func() error
					died time.Time
				)
				if !w.killed(t, processor.Config{TransactionTimeout: tc.set}, func(cl *sharetxn.Cluster, die func()) {
					core.Of(cl).OnStep(func(s string) {
						if s == "staged" {
							once.Do(func() {
								died, stop = time.Now(), run(t, successor)
								die()
							})
						}
					})
				}) {
					t.Fatal("it never staged")
				}
				w.WaitDrained(t, "g")
				if err := stop(); err != nil {
					t.Fatal(err)
				}
				took := began.Add(time.Duration(last.Load())).Sub(died)
				decides := on == ledgered || on == draft95 // the transaction's end, and not the lock's
				if beyond := took > shortLock+time.Second; beyond != (tc.waits && decides) {
					t.Errorf("the successor had the last record after %v", took)
				}
				w.want(t, 12)
			})
		})
	}
}

// What a paused process sends when its locks are over does not commit: brokers have
// aborted the transaction before others got the records. With a timeout above the lock
// the records of a guarantee that does not ask brokers again are published twice.
func TestPausedUnderShortLock(t *testing.T) {
	paused := func(t *testing.T, on setting, set time.Duration) *world {
		w := start(t, on, withShortLock())
		w.feed(t, 12)
		here := w.processor(t, processor.Config{TransactionTimeout: set})
		there := w.processor(t, processor.Config{Instance: "there", Members: 6, TransactionTimeout: set})
		awake := make(chan struct{})
		asleep := w.Inject(t, sharetxntest.Fault{
			Key: sharetxntest.EndTxnKey, TransactionalID: "g-here-m0", Times: sharetxntest.Always, Until: awake, Action: sharetxntest.LoseRequest(),
		})
		stopHere := run(t, here)
		<-asleep
		time.AfterFunc(shortLock+2*time.Second, func() { close(awake) })
		stopThere := run(t, there)
		w.WaitDrained(t, "g")
		for _, stop := range []func() error{stopHere, stopThere} {
			if err := stop(); err != nil {
				t.Error(err)
			}
		}
		return w
	}
	t.Run("sized", func(t *testing.T) {
		inAll(t, func(t *testing.T, on setting) { paused(t, on, 0).want(t, 12) })
	})
	t.Run("set", func(t *testing.T) {
		inAll(t, func(t *testing.T, on setting) {
			w := paused(t, on, 15*time.Second)
			if on != kip93 && on != plain {
				w.want(t, 12)
				return
			}
			twice := 0
			for i := range 12 {
				switch n := w.values(t, "out")[fmt.Sprint(i)]; n {
				case 1:
				case 2:
					twice++
				default:
					t.Errorf("record %d was published %d times", i, n)
				}
			}
			if twice == 0 {
				t.Error("no record was published twice: the pause was none")
			}
		})
	})
}

// answers gives DescribeConfigs an error code, the first so many times.
func (w *world) answers(t *testing.T, code int16, times int) {
	t.Helper()
	w.Inject(t, sharetxntest.Fault{Key: describeConfigs, Times: times, Action: sharetxntest.Answer(code)})
}

const describeConfigs sharetxntest.Key = 32

// The coordinator is asked for a timeout under the group's lock, as brokers tell it
// when Run begins; for what they refuse to tell, for that of Kafka's default, and
// that is told.
func TestTimeoutAsked(t *testing.T) {
	const warning = "the group's lock cannot be read"
	for name, tc := range map[string]struct {
		lock   time.Duration
		set    time.Duration
		margin time.Duration
		fault  func(t *testing.T, w *world)
		want   time.Duration
		warns  int
	}{
		"Kafka's default lock":   {want: 15 * time.Second},
		"a shorter one":          {lock: 12 * time.Second, want: 10*time.Second - time.Millisecond},
		"with another margin":    {lock: 12 * time.Second, margin: 3 * time.Second, want: 9*time.Second - time.Millisecond},
		"a very short one":       {lock: 6 * time.Second, want: 5 * time.Second},
		"as it was set":          {lock: 12 * time.Second, set: 20 * time.Second, want: 20 * time.Second},
		"refused":                {lock: 12 * time.Second, fault: func(t *testing.T, w *world) { w.answers(t, kerr.GroupAuthorizationFailed.Code, sharetxntest.Always) }, want: 15 * time.Second, warns: 1},
		"set, and nothing asked": {lock: 12 * time.Second, set: 9 * time.Second, fault: func(t *testing.T, w *world) { w.answers(t, kerr.GroupAuthorizationFailed.Code, sharetxntest.Always) }, want: 9 * time.Second},
		"told at the second try": {lock: 12 * time.Second, fault: func(t *testing.T, w *world) { w.answers(t, kerr.RequestTimedOut.Code, 1) }, want: 10*time.Second - time.Millisecond},
		"the scan not told": {lock: 20 * time.Second, fault: func(t *testing.T, w *world) {
			w.Inject(t, sharetxntest.Fault{Key: describeConfigs, Nth: 2, Times: sharetxntest.Always, Action: sharetxntest.Answer(kerr.ClusterAuthorizationFailed.Code)})
		}, want: 8 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Deadline(t, 3*time.Minute)
			synctest.Test(t, func(t *testing.T) {
				w := start(t, plain, sharetxntest.Group("g", sharetxntest.GroupConfig{LockDuration: cmp.Or(tc.lock, 30*time.Second)}))
				w.feed(t, 1)
				if tc.fault != nil {
					tc.fault(t, w)
				}
				var log logged
				p, err := processor.New(w.Connect(t, sharetxn.Logger(slog.New(slog.NewTextHandler(&log, nil)))), processor.Config{
					Group: "g", Topics: []string{"in"}, Instance: "here", Guarantee: processor.AckAfterCommit, Handler: w.seen.handler(nil),
					DeadLetter: processor.DeadLetter{Topic: "dead"}, TransactionTimeout: tc.set, LockMargin: tc.margin,
				})
				if err != nil {
					t.Fatal(err)
				}
				stop := run(t, p)
				eventually(t, "it is done", func() bool { return len(w.Committed(t, "out")) == 1 })
				cl, err := kgo.NewClient(w.Kafka()...)
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				const id = "g-here-m0"
				told, err := kadm.NewClient(cl).DescribeTransactions(t.Context(), id)
				if got := time.Duration(told[id].TimeoutMillis) * time.Millisecond; err != nil || got != tc.want {
					t.Errorf("%v, %v, want %v", got, err, tc.want)
				}
				if n := log.count(warning); n != tc.warns {
					t.Errorf("%d warnings, want %d", n, tc.warns)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The ledger's rule judges the timeout that the members will have.
func TestTimeoutIsJudged(t *testing.T) {
	for name, tc := range map[string]struct {
		set  time.Duration
		fits bool
	}{"sized": {0, true}, "set, and it fits": {39 * time.Second, true}, "set, and too long": {41 * time.Second, false}} {
		t.Run(name, func(t *testing.T) {
			inLedger(t, func(t *testing.T) {
				w := start(t, ledgered, withShortLock()) // of which a record has 4 beside the last
				w.feed(t, 1)
				p := w.processor(t, processor.Config{TransactionTimeout: tc.set})
				if tc.fits {
					w.RunUntilDrained(t, "g", p)
					w.want(t, 1)
					return
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := p.Run(ctx)
				unfit, ok := errors.AsType[*processor.UnfitError](err)
				if !ok || len(unfit.Problems) != 1 || unfit.Problems[0].Rule != "transaction-timeout" || unfit.Problems[0].Value != tc.set.String() {
					t.Errorf("%v", err)
				}
			})
		})
	}
}
