package processor_test

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/twmb/franz-go/pkg/kerr"
)

// sweep is up to which request of each kind faults are planned.
var sweep = flag.Int("sweep", 1, "faults at the first so many requests of each kind")

// Whatever happens to whichever request of a service's life, each record's
// output is published once. That a fault fired is checked by the kit.
func TestFaults(t *testing.T) {
	keys := map[string]sharetxntest.Key{
		"produce": sharetxntest.ProduceKey, "init": sharetxntest.InitProducerIDKey, "stage": sharetxntest.StageKey, "end": sharetxntest.EndTxnKey,
		"heartbeat": sharetxntest.HeartbeatKey, "fetch": sharetxntest.ShareFetchKey, "find": sharetxntest.FindCoordinatorKey,
	}
	actions := map[string]func() sharetxntest.Action{
		"request lost": sharetxntest.LoseRequest, "answer lost": sharetxntest.LoseAnswer, "cut": sharetxntest.Disconnect, "twice": sharetxntest.DeliverTwice,
		"delayed":        func() sharetxntest.Action { return sharetxntest.Delay(3 * time.Second) },
		"not now":        func() sharetxntest.Action { return sharetxntest.Answer(kerr.CoordinatorNotAvailable.Code) },
		"unknown error":  func() sharetxntest.Action { return sharetxntest.Answer(kerr.UnknownServerError.Code) },
		"leader moves":   func() sharetxntest.Action { return sharetxntest.LeaderMoves("in", 0, 1) },
		"broker is back": func() sharetxntest.Action { return sharetxntest.BrokerRestarts(0) },
	}
	for key, k := range keys {
		for action, a := range actions {
			for nth := 1; nth <= *sweep; nth++ {
				t.Run(fmt.Sprintf("%s %d/%s", key, nth, action), func(t *testing.T) {
					inAll(t, func(t *testing.T, on setting) {
						w := start(t, on)
						w.feed(t, 60)
						w.Inject(t, on.fault(k, nth, a()))
						stop := w.keepRunning(t, processor.Config{MaxRecords: 10, Members: 2})
						w.WaitDrained(t, "g")
						w.feedMore(t, 60, 20) // the neighbour: it goes on after the fault
						w.WaitDrained(t, "g")
						stop()
						if w.harmed = true; on == kip93 && (action == "leader moves" || action == "broker is back") {
							w.wantAll(t, 80) // that text concedes duplicates there
							return
						}
						w.want(t, 80)
					})
				})
			}
		}
	}
}

// fault is one at what acknowledges, where nothing is staged: a fetch after the
// first of each broker.
func (s setting) fault(k sharetxntest.Key, nth int, a sharetxntest.Action) sharetxntest.Fault {
	if k == sharetxntest.StageKey && s.guarantee != processor.Staged {
		return sharetxntest.Fault{Key: sharetxntest.ShareFetchKey, Nth: 6 + nth, Action: a}
	}
	return sharetxntest.Fault{Key: k, Nth: nth, Action: a}
}

// keepRunning runs processors one after the other, as a supervisor does: some
// faults are fatal to one by what the broker's answer means.
func (w *world) keepRunning(t *testing.T, cfg processor.Config) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	next := w.processor(t, cfg)
	go func() {
		defer close(done)
		for fatal := 0; ; fatal++ {
			err := next.Run(ctx)
			if err == nil {
				return
			}
			if fatal == 2 {
				t.Errorf("Run, for the third time: %v", err)
				return
			}
			next = w.processor(t, cfg)
		}
	}()
	return func() { cancel(); <-done }
}

// wantAll holds topic "out" against 0 to n-1: each at least once.
func (w *world) wantAll(t *testing.T, n int) {
	t.Helper()
	out := w.values(t, "out")
	for i := range n {
		if v := fmt.Sprint(i); out[v] == 0 {
			t.Errorf("record %s has no output", v)
		}
	}
}
