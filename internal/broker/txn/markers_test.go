package txn

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// open begins a transaction that wrote to two partitions and staged in two.
func (w *world) open(ctx context.Context, k Key) {
	w.t.Helper()
	w.staged = []Partition{{"in", 0}, {"in", 1}}
	for _, p := range []Partition{{"out", 2}, {"out", 1}} {
		done, code := w.c.Produce(ctx, "x", k.ProducerID, k.ProducerEpoch, []Partition{p})
		w.want(code, codeNone, "produce")
		done()
	}
	w.want(w.c.AddShareState(ctx, "x", k.ProducerID, k.ProducerEpoch, []int32{0}), codeNone, "staging")
}

// all is what the backend is told of the first transaction's commit.
var all = []string{
	"marker out-1 101@1 true", "marker out-2 101@1 true", "share of in-0 101@1 true", "share of in-1 101@1 true", "share 101@1 true",
}

func (w *world) status() Status { return w.c.Transactions()[0].Status }

// treat treats the markers of one partition, and tells which were asked about.
func (w *world) treat(p Partition, how Treatment) *[]Marker {
	asked := new([]Marker)
	w.c.TreatMarkers(func(m Marker) Treatment {
		*asked = append(*asked, m)
		if m.Partition == p {
			return how
		}
		return Treatment{}
	})
	return asked
}

// Each marker is asked about once, in order, and by its own name.
func TestMarkersAsked(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		w.open(ctx, k)
		asked := w.treat(Partition{"none", 0}, Treatment{Delay: time.Hour})
		_, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		w.wantTold(all...)
		var want []Marker
		for _, p := range []Partition{{"out", 1}, {"out", 2}, {"in", 0}, {"in", 1}} {
			want = append(want, Marker{TransactionalID: "x", Writer: k, Commit: true, Partition: p, Share: p.Topic == "in"})
		}
		if !slices.Equal(*asked, want) {
			t.Fatalf("asked about\n%+v, want\n%+v", *asked, want)
		}
	})
}

// A marker that waits holds up the transaction, but no other marker; EndTxn is
// answered without it.
func TestMarkerWaits(t *testing.T) {
	const late = 3 * time.Second
	for _, tc := range []struct {
		p     Partition
		first []string // told without it
		last  []string
	}{
		{Partition{"out", 1}, []string{all[1], all[2], all[3]}, []string{all[0], all[4]}},
		{Partition{"in", 1}, []string{all[0], all[1], all[2]}, []string{all[3], all[4]}},
	} {
		for name, how := range map[string]func() Treatment{
			"delay": func() Treatment { return Treatment{Delay: late} },
			"wait": func() Treatment {
				ch := make(chan struct{})
				time.AfterFunc(late, func() { close(ch) })
				return Treatment{Wait: ch}
			},
		} {
			t.Run(name+" "+tc.p.Topic, func(t *testing.T) {
				virtual(t, func(ctx context.Context, w *world) {
					k := w.init(ctx, "x", -1, -1, minute)
					w.open(ctx, k)
					w.treat(tc.p, how())
					began := time.Now()
					next, code := w.end(ctx, k, true)
					w.want(code, codeNone, "commit")
					if d := time.Since(began); d != 0 {
						t.Errorf("answered after %v", d)
					}
					synctest.Wait()
					w.wantTold(tc.first...)
					if s := w.status(); s != PrepareCommit {
						t.Fatalf("the transaction is %v", s)
					}
					w.want(w.produce(ctx, next), codeConcurrentTransactions, "next produce")
					time.Sleep(late - addWait - 1)
					synctest.Wait()
					w.wantTold()
					time.Sleep(time.Nanosecond)
					synctest.Wait()
					w.wantTold(tc.last...)
					if s := w.status(); s != CompleteCommit {
						t.Fatalf("the transaction is %v", s)
					}
					w.want(w.produce(ctx, next), codeNone, "produce after it")
				})
			})
		}
	}
}

// A lost marker holds up nothing: the transaction completes without it. What is
// staged is not in a log, and is not lost.
func TestMarkerLost(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		w.open(ctx, k)
		w.c.TreatMarkers(func(m Marker) Treatment { return Treatment{Lose: m.Partition != Partition{"out", 2}} })
		next, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		w.wantTold("lost out-1 101@0", all[1], all[2], all[3], all[4])
		if s := w.status(); s != CompleteCommit {
			t.Fatalf("the transaction is %v", s)
		}
		w.want(w.produce(ctx, next), codeNone, "next produce")
	})
}

// A marker that waits when the cluster ends is not written, and the decision
// stays.
func TestMarkerWaitsForEver(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		w.open(ctx, k)
		w.treat(Partition{"out", 1}, Treatment{Delay: time.Hour, Repeat: &Treatment{}})
		_, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		w.die()
		w.c.Close()
		if s := w.status(); s != PrepareCommit {
			t.Fatalf("the transaction is %v", s)
		}
		w.wantTold(all[1], all[2], all[3])
	})
}

// A marker may be written again: at once, or when the next transaction is open.
// It is the old one's, and nothing waits for it.
func TestMarkerRepeats(t *testing.T) {
	for p, marker := range map[Partition]string{{"out", 2}: all[1], {"in", 0}: all[2]} {
		virtual(t, func(ctx context.Context, w *world) {
			k := w.init(ctx, "x", -1, -1, minute)
			w.open(ctx, k)
			w.treat(p, Treatment{Repeat: &Treatment{Delay: time.Second, Repeat: &Treatment{}}})
			next, code := w.end(ctx, k, true)
			w.want(code, codeNone, "commit")
			w.wantTold(all...)
			w.open(ctx, next)
			if s := w.status(); s != Ongoing {
				t.Fatalf("the transaction is %v", s)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			w.wantTold(marker, marker)
			if s := w.status(); s != Ongoing {
				t.Fatalf("the transaction is %v after the repeated marker", s)
			}
		})
	}
}

// What cannot be reached gets its marker when it can; the others have theirs.
func TestMarkersOutOfReach(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		w.open(ctx, k)
		w.part(Partition{"out", 1}, Partition{"in", 0})
		next, code := w.end(ctx, k, true)
		w.want(code, codeNone, "commit")
		synctest.Wait()
		w.wantTold(all[1], all[3])
		if s := w.status(); s != PrepareCommit {
			t.Fatalf("the transaction is %v", s)
		}
		still := w.cut[Partition{"in", 0}]
		again := w.part(Partition{"out", 1}) // the one is back, the other is not
		close(still)
		synctest.Wait()
		w.wantTold(all[2])
		again()
		synctest.Wait()
		w.wantTold(all[0], all[4])
		w.want(w.produce(ctx, next), codeNone, "next produce")
	})
}

// A leader that does not reach the coordinator cannot make its partition part
// of a transaction; what is part of it already can be written to.
func TestProduceOutOfReach(t *testing.T) {
	virtual(t, func(ctx context.Context, w *world) {
		k := w.init(ctx, "x", -1, -1, minute)
		produce := func(k Key, parts ...Partition) int16 {
			done, code := w.c.Produce(ctx, "x", k.ProducerID, k.ProducerEpoch, parts)
			if done != nil {
				done()
			}
			return code
		}
		near, far := Partition{"out", 0}, Partition{"out", 1}
		w.want(produce(k, near), codeNone, "begin")
		heal := w.part(far)
		w.want(produce(k, far), codeNotEnoughReplicas, "produce out of reach")
		w.want(produce(k, near, far), codeNotEnoughReplicas, "produce to both")
		w.want(produce(k, near), codeNone, "produce within reach")
		if ps := w.c.Transactions()[0].Partitions; !slices.Equal(ps, []Partition{near}) {
			t.Fatalf("partitions %v", ps)
		}
		heal()
		w.want(produce(k, far), codeNone, "produce within reach again")
		w.part(far)
		w.want(produce(k, far), codeNone, "produce to what is registered")
		w.want(produce(Key{k.ProducerID, k.ProducerEpoch + 1}, far), codeNotEnoughReplicas, "produce of another epoch")
		w.want(produce(Key{999, 0}, near), codeInvalidProducerIDMapping, "produce of another id, within reach")
	})
}
