package broker_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
)

// asOf makes the service produce under an id that the node coordinates.
func (w *world) asOf(ctx context.Context, node int32) {
	w.t.Helper()
	for i := 0; ; i++ {
		id := fmt.Sprintf("copy%d", i)
		if w.coordinator(ctx, id) == node {
			w.as(id)
			break
		}
	}
	if err := w.producer.InitTransactions(ctx); err != nil {
		w.t.Fatal(err)
	}
}

// three makes the service produce under an id that group g's coordinator does
// not coordinate, and gives both coordinators and the node that is neither.
func (w *world) three(ctx context.Context) (ofTxn, ofGroup, leader int32) {
	w.t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		w.t.Fatal(err)
	}
	defer cl.Close()
	ofGroup = kadm.NewClient(cl).FindGroupCoordinators(ctx, "g")["g"].NodeID
	ofTxn, leader = (ofGroup+1)%3, (ofGroup+2)%3
	w.asOf(ctx, ofTxn)
	return ofTxn, ofGroup, leader
}

func (w *world) wantState(what string, partition int32, want share.State) {
	w.t.Helper()
	if s, _, _, ok := w.StateOf("g", "in", partition, 0); !ok || s != want {
		w.t.Fatalf("%s: the record is %v (in the window: %v), want %v", what, s, ok, want)
	}
}

// A leader that does not reach the coordinator of the transaction, or of the
// group, stages nothing; the service tries until it can, and its transaction
// commits.
func TestPartedStaging(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		for _, group := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, group's coordinator %v", p.wire, group), func(t *testing.T) {
				w := begin(t, p.root, broker.Config{Profile: p.wire})
				ofTxn, ofGroup, leader := w.three(ctx)
				w.copyNext(ctx, ofTxn) // proves staging; leaders are the partitions' numbers
				w.feed(ctx, leader)
				b := w.poll(ctx)
				coordinator := ofTxn
				if group {
					coordinator = ofGroup
				}
				// From when staging begins: a produce to that leader is parted too.
				var once sync.Once
				before := w.Traffic(p.wire.Key()).Requests
				w.SetIntercept(func(r broker.Request) broker.Action {
					if r.Staging() {
						once.Do(func() { w.Part(leader, coordinator) })
					}
					return broker.Action{}
				})
				copied := make(chan error, 1)
				go func() { copied <- w.copy(ctx, b) }()
				testkit.Eventually(ctx, t, "staging was tried again", func() bool { return w.Traffic(p.wire.Key()).Requests > before+2 })
				w.wantState("parted", leader, share.Acquired)
				w.Heal(coordinator, leader)
				if err := <-copied; err != nil {
					t.Fatal(err)
				}
				w.copyNext(ctx, leader)
				w.wantClean(ctx)
			})
		}
	}
}

// The outcome does not come to a leader that is parted from the coordinator when
// the transaction is decided: the commit is reported, and its records are staged
// until the parted are healed. Another id's transactions go on.
func TestPartedOutcome(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			ofTxn, ofGroup, leader := w.three(ctx)
			w.feed(ctx, leader)
			b := w.poll(ctx)
			var once sync.Once
			w.SetIntercept(func(r broker.Request) (act broker.Action) {
				if r.Key == keyEndTxn {
					once.Do(func() { act.Before = func() { w.Part(ofTxn, leader) } })
				}
				return act
			})
			if err := w.copy(ctx, b); err != nil {
				t.Fatal(err)
			}
			w.wantState("committed, and parted", leader, share.TxPending)
			mine := w.producer
			w.asOf(ctx, ofGroup)
			w.copyNext(ctx, ofGroup)
			w.wantState("after the neighbour", leader, share.TxPending)
			w.Heal(ofTxn, leader)
			testkit.Eventually(ctx, t, "the record is acknowledged", func() bool {
				_, _, _, inWindow := w.StateOf("g", "in", leader, 0)
				return !inWindow
			})
			w.producer = mine
			w.copyNext(ctx, leader)
			w.wantClean(ctx)
		})
	}
}

// Markers that come late and come again, all of them, in the middle of the next
// transaction: each input is still done once.
func TestMarkersLateAndRepeated(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	for _, p := range profiles {
		t.Run(p.wire.String(), func(t *testing.T) {
			w := begin(t, p.root, broker.Config{Profile: p.wire})
			if err := w.producer.InitTransactions(ctx); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			logs, shares := 0, 0
			w.TreatMarkers(func(m txn.Marker) txn.Treatment {
				mu.Lock()
				defer mu.Unlock()
				late := time.Millisecond
				if m.Share {
					shares++
				} else {
					logs++
					late *= 20 // so that the inputs are done first
				}
				return txn.Treatment{Delay: late, Repeat: &txn.Treatment{Repeat: &txn.Treatment{Delay: 2 * time.Millisecond}}}
			})
			const n = 12
			for i := range int32(n) {
				w.copyNext(ctx, i%3)
			}
			testkit.Eventually(ctx, t, "all is acknowledged", func() bool {
				done := int64(0)
				for _, s := range w.PartitionStates("g") {
					done += s.Start
				}
				return done == n
			})
			w.wantClean(ctx)
			mu.Lock()
			defer mu.Unlock()
			if logs < n || shares < n {
				t.Errorf("asked about %d markers of logs and %d of staged records in %d transactions", logs, shares, n)
			}
		})
	}
}
