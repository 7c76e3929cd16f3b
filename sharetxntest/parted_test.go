package sharetxntest

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// parted is a virtual cluster whose records all lie with broker 0.
type parted struct {
	*Cluster
	profile sharetxn.Profile
}

// eachParted runs a test in both profiles.
func eachParted(t *testing.T, test func(t *testing.T, k parted)) {
	for _, p := range []sharetxn.Profile{sharetxn.ProfileDraft95, sharetxn.ProfileKIP93} {
		t.Run(p.String(), func(t *testing.T) {
			testkit.Deadline(t, 2*time.Minute)
			synctest.Test(t, func(t *testing.T) {
				k := parted{Start(t, Profile(p), Brokers(3), Topic("in", 1), Topic("out", 1)), p}
				k.Feed(t, numbers(3)...)
				test(t, k)
			})
		})
	}
}

// copier gives a service whose transactions broker node coordinates.
func (k parted) copier(t *testing.T, node int32) copier {
	t.Helper()
	for i := range 100 {
		id := fmt.Sprint(i)
		if at := k.admin.FindTxnCoordinators(t.Context(), "copier"+id)["copier"+id]; at.NodeID == node {
			return copier{cl: k.Connect(t), id: id}
		}
	}
	t.Fatalf("broker %d coordinates none of a hundred ids", node)
	return copier{}
}

// want holds the first record's state, and how many outputs are visible.
func (k parted) want(t *testing.T, when string, state share.State, visible int) {
	t.Helper()
	if s, _, _, ok := k.broker.StateOf("g", "in", 0, 0); !ok || s != state {
		t.Errorf("%s: the record is %v (in the window: %v), want %v", when, s, ok, state)
	}
	if n := len(k.Committed(t, "out")); n != visible {
		t.Errorf("%s: %d outputs are visible, want %d", when, n, visible)
	}
}

func (k parted) run(t *testing.T, s copier) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("ended with %v", err)
		}
	}
}

// pass lets virtual time pass.
func pass(d time.Duration) { <-time.NewTimer(d).C }

// The coordinator is lost when the commit is decided and no marker is written
// yet: its successor writes them, and nobody is told anything else meanwhile.
func TestCoordinatorRestartsPrepared(t *testing.T) {
	eachParted(t, func(t *testing.T, k parted) {
		k.Inject(t, Fault{Key: EndTxnKey, Action: BrokersPart(0, 1, 20*time.Second)})
		restarts := k.Inject(t, Fault{Key: EndTxnKey, Nth: 2, Action: BrokerRestarts(1)})
		stop := k.run(t, k.copier(t, 1))
		<-restarts
		pass(time.Second)
		k.want(t, "decided, and the coordinator restarted", share.TxPending, 0)
		pass(20 * time.Second)
		k.WaitDrained(t, "g")
		stop()
		wantNumbers(t, k.Cluster, "out", 3)
		k.AssertExactlyOnce(t, "g", "out")
	})
}

// An abort does not reach the broker that holds what is staged. By the KIP's text
// the records are free when their lock ends, another commits them, and the marker
// that comes late changes nothing; in the draft they wait for it.
func TestAbortOutOfReach(t *testing.T) {
	const lock, apart = 30 * time.Second, 45 * time.Second
	eachParted(t, func(t *testing.T, k parted) {
		k.Inject(t, Fault{Key: EndTxnKey, Action: Answer(120)}) // TRANSACTION_ABORTABLE
		aborted := k.Inject(t, Fault{Key: EndTxnKey, Nth: 2, Action: BrokersPart(0, 1, apart)})
		stop := k.run(t, k.copier(t, 1))
		<-aborted
		began := time.Now()
		pass(time.Second)
		stop()
		k.want(t, "aborted out of reach", share.TxPending, 0)
		stop = k.run(t, k.copier(t, 0))
		k.WaitDrained(t, "g")
		free := map[sharetxn.Profile]time.Duration{sharetxn.ProfileDraft95: apart, sharetxn.ProfileKIP93: lock}[k.profile]
		if d := time.Since(began); d < free-2*time.Second || d > free+10*time.Second {
			t.Errorf("done by another after %v, want about %v", d, free)
		}
		pass(apart)
		stop()
		wantNumbers(t, k.Cluster, "out", 3)
		k.AssertExactlyOnce(t, "g", "out")
	})
}
