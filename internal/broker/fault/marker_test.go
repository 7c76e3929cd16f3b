package fault

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Faults of markers count by transactional id and by what they are asked; those
// of requests do not count with them.
func TestMarkerFaults(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := New(1)
	out, in := txn.Partition{Topic: "out"}, txn.Partition{Topic: "in"}
	marker := func(id string, at txn.Partition) txn.Marker {
		return txn.Marker{TransactionalID: id, Partition: at, Share: at == in}
	}
	request := p.Add(Fault{Key: 0})
	second := p.AddMarker(MarkerFault{When: When{Nth: 2}, TransactionalID: "x", Treatment: txn.Treatment{Delay: 2}})
	staged := p.AddMarker(MarkerFault{Only: func(m txn.Marker) bool { return m.Share }, Treatment: txn.Treatment{Delay: 3}})
	never := p.AddMarker(MarkerFault{TransactionalID: "z"})
	p.AddMarker(MarkerFault{Name: "cancelled", When: When{Times: Always}, Treatment: txn.Treatment{Delay: 9}}).Cancel()
	var delays []time.Duration
	for _, m := range []txn.Marker{marker("x", out), marker("y", out), marker("x", in), marker("y", in), marker("x", in)} {
		delays = append(delays, p.Treat(m).Delay)
	}
	// The second of x has staged records too: that fault takes the next such.
	if want := []time.Duration{0, 0, 2, 3, 0}; !slices.Equal(delays, want) {
		t.Errorf("treated %v, want %v", delays, want)
	}
	if un := p.Unfired(); len(un) != 2 || un[0] != request || un[1] != never {
		t.Errorf("unfired %v", un)
	}
	p.Intercept()(broker.Request{Key: 0})
	fs := p.Firings()
	if len(fs) != 3 || fs[0].Fault != second || *fs[0].Marker != marker("x", in) || fs[1].Fault != staged || fs[1].Nth != 2 || fs[2].Fault != request || fs[2].Marker != nil {
		t.Errorf("fired %+v", fs)
	}
}

func TestMarkerNames(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for want, f := range map[string]MarkerFault{
		"marker of x, number 2: delay by 1s": {When: When{Nth: 2}, TransactionalID: "x", Treatment: txn.Treatment{Delay: time.Second}},
		"marker, number 1: hold and repeat":  {Treatment: txn.Treatment{Wait: make(chan struct{}), Repeat: &txn.Treatment{}}},
		"marker, number 1: lose":             {Treatment: txn.Treatment{Lose: true}},
		"marker, number 1: nothing":          {},
		"mine":                               {Name: "mine"},
	} {
		if got := New(1).AddMarker(f).String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// On a cluster the marker of a staged record is held: the commit is answered,
// and the record is acknowledged when the marker comes.
func TestHeldMarkerOfStagedRecord(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	plan := New(1)
	w := startWorld(ctx, t, plan, plainConfig())
	w.TreatMarkers(plan.Treat)
	stage, staged := stageScene(ctx, w)
	if code := firstCode(w.request(ctx, 0, stage)); code != 0 || staged() != 1 {
		t.Fatalf("code %d, %d staged", code, staged())
	}
	release := make(chan struct{})
	held := plan.AddMarker(MarkerFault{TransactionalID: "x", Only: func(m txn.Marker) bool { return m.Share }, Treatment: txn.Treatment{Wait: release}})
	v := w.transaction()
	end := kmsg.NewPtrEndTxnRequest()
	end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = "x", v.ProducerID, v.ProducerEpoch, true
	if code := firstCode(w.request(ctx, 0, end)); code != 0 || held.Count() != 1 {
		t.Fatalf("commit answered %d, fired %d times", code, held.Count())
	}
	if s, _, _, _ := w.StateOf("g", "in", 0, 0); s != share.TxPending || w.transaction().Status != txn.PrepareCommit {
		t.Fatalf("the record is %v, the transaction %v", s, w.transaction().Status)
	}
	if code := firstCode(w.request(ctx, 0, initProducer("neighbour"))); code != 0 {
		t.Errorf("the neighbour was answered %d", code)
	}
	close(release)
	testkit.Eventually(ctx, t, "the transaction is complete", func() bool { return w.transaction().Status == txn.CompleteCommit })
	if _, _, _, inWindow := w.StateOf("g", "in", 0, 0); inWindow {
		t.Error("the record is not acknowledged")
	}
}
