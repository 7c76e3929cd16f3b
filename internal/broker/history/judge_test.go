package history

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

var (
	in     = [16]byte{1}
	source = txn.Partition{Topic: "in"}
	out    = txn.Partition{Topic: "out"}
	dead   = txn.Partition{Topic: "dead"}
	first  = txn.Key{ProducerID: 7, ProducerEpoch: 0}
	second = txn.Key{ProducerID: 7, ProducerEpoch: 1}
	third  = txn.Key{ProducerID: 7, ProducerEpoch: 2}
)

func acquired(from, to int64, count int16) share.Event {
	return share.Event{Kind: share.EventAcquired, Group: "g", Topic: in, First: from, Last: to, Count: count, To: share.Acquired, Member: "m"}
}

func staged(by txn.Key, from, to int64, count int16, typ acks.Type) share.Event {
	return share.Event{
		Kind: share.EventStaged, Group: "g", Topic: in, First: from, Last: to, Count: count, Type: typ, To: share.TxPending,
		ProducerID: by.ProducerID, ProducerEpoch: by.ProducerEpoch,
	}
}

func resolved(by txn.Key, from, to int64, count int16, state share.State) share.Event {
	e := staged(by, from, to, count, 0)
	e.Kind, e.To = share.EventResolved, state
	return e
}

func lost(by txn.Key, from, to int64, count int16, why share.LostWhy) share.Event {
	e := staged(by, from, to, count, 0)
	e.Kind, e.To, e.Why = share.EventLost, share.Available, why
	return e
}

func plain(kind share.EventKind, from, to int64, count int16, typ acks.Type, state share.State) share.Event {
	return share.Event{Kind: kind, Group: "g", Topic: in, First: from, Last: to, Count: count, Type: typ, To: state}
}

func decided(by txn.Key, commit bool) txn.Event {
	return txn.Event{TransactionalID: "p", Writer: by, Commit: commit}
}

func produced(by txn.Key, to txn.Partition, from, last int64) Produced {
	return Produced{Writer: by, Partition: to, First: from, Last: last}
}

func data(by txn.Key, from, to int64) Batch {
	return Batch{First: from, Last: to, Writer: by, Transactional: true}
}

// marker ends the transaction by, one epoch up.
func marker(by txn.Key, at int64, commit bool) Batch {
	by.ProducerEpoch++
	return Batch{First: at, Last: at, Writer: by, Transactional: true, Control: true, Commit: commit}
}

func logOf(batches ...Batch) Log {
	end := batches[len(batches)-1].Last + 1
	return Log{Bounds: share.Bounds{LastStable: end, End: end}, Batches: batches}
}

// run is a history in which all is right: records 0 and 1 become out 0 and 1;
// record 2 is rejected and becomes dead 0; record 3 is aborted once and then
// becomes out 5. Another group and another topic are beside it.
func run(p wire.Profile) Facts {
	after, again := share.Available, acquired(3, 3, 2)
	if p == wire.KIP93 {
		after, again = share.Acquired, plain(share.EventReleased, 3, 3, 1, acks.Release, share.Available)
	}
	events := []Event{
		acquired(0, 3, 1),
		produced(first, out, 0, 1), produced(first, dead, 0, 0),
		staged(first, 0, 1, 1, acks.Accept), staged(first, 2, 2, 1, acks.Reject),
		decided(first, true),
		resolved(first, 0, 1, 1, share.Acknowledged), resolved(first, 2, 2, 1, share.Archived),
		produced(second, out, 3, 3), staged(second, 3, 3, 1, acks.Accept),
		decided(second, false), resolved(second, 3, 3, 1, after),
		again,
	}
	if p == wire.KIP93 {
		events = append(events, acquired(3, 3, 2))
	}
	other := acquired(0, 0, 9)
	other.Group = "h"
	events = append(events,
		produced(third, out, 5, 5), staged(third, 3, 3, 2, acks.Accept),
		decided(third, true), resolved(third, 3, 3, 2, share.Acknowledged),
		other,
	)
	return Facts{
		Group: "g", Profile: p, Events: events, Topics: map[[16]byte]string{in: "in"},
		Shares: []share.PartitionState{{Topic: in, Start: 4, End: 4}},
		Logs: map[txn.Partition]Log{
			source: logOf(Batch{First: 0, Last: 3, Writer: txn.Key{ProducerID: 1}}),
			out:    logOf(data(first, 0, 1), marker(first, 2, true), data(second, 3, 3), marker(second, 4, false), data(third, 5, 5), marker(third, 6, true)),
			dead:   logOf(data(first, 0, 0), marker(first, 1, true)),
		},
		Outputs: []string{"out", "dead"},
	}
}

func TestRightHistory(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, p := range []wire.Profile{wire.Draft95, wire.KIP93} {
		for _, outputs := range [][]string{{"out", "dead"}, nil} {
			f := run(p)
			f.Outputs = outputs
			got := Judge(f)
			if len(got.Findings) > 0 || got.Acknowledged != 4 || got.Transactions != 2 || got.Outputs != 4 {
				t.Errorf("%v, outputs %v: %+v", p, outputs, got)
			}
		}
	}
}

// Each spoils a right history in one place, and exactly that is found.
func TestSpoiled(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	add := func(events ...Event) func(*Facts) {
		return func(f *Facts) { f.Events = append(f.Events, events...) }
	}
	fourth := txn.Key{ProducerID: 8}
	for name, tc := range map[string]struct {
		profile  wire.Profile // default Draft95
		spoil    func(*Facts)
		want     []string
		conceded bool
	}{
		"acknowledged by two": {spoil: add(acquired(1, 1, 2), staged(fourth, 1, 1, 2, acks.Accept), decided(fourth, true), resolved(fourth, 1, 1, 2, share.Acknowledged)),
			want: []string{"I1 duplicate: in-0 offset 1: acknowledged by transaction p (7/0), transaction p (8/0) (not conceded)"}},
		"acknowledged by two, lost without a right to": {spoil: func(f *Facts) { lose(f, share.LostLock) },
			want: []string{"I1 duplicate: in-0 offset 3: acknowledged by transaction p (7/1), transaction p (7/2) (not conceded)"}},
		"lock ended while staged": {profile: wire.KIP93, conceded: true, spoil: func(f *Facts) { lose(f, share.LostLock) },
			want: []string{"I1 duplicate: in-0 offset 3: acknowledged by transaction p (7/1), transaction p (7/2) (conceded: its lock ended while it was staged)"}},
		"leader lost while staged": {profile: wire.KIP93, conceded: true, spoil: func(f *Facts) { lose(f, share.LostLeader) },
			want: []string{"I1 duplicate: in-0 offset 3: acknowledged by transaction p (7/1), transaction p (7/2) (conceded: its leader or broker was lost while it was staged)"}},
		"one of three not lost": {profile: wire.KIP93, spoil: func(f *Facts) {
			lose(f, share.LostLeader)
			add(acquired(3, 3, 3), staged(fourth, 3, 3, 3, acks.Accept), decided(fourth, true), resolved(fourth, 3, 3, 3, share.Acknowledged))(f)
		}, want: []string{"I1 duplicate: in-0 offset 3: acknowledged by transaction p (7/1), transaction p (7/2), transaction p (8/0) (not conceded)"}},
		"undone before the answer": {profile: wire.KIP93, spoil: func(f *Facts) {
			staging := staged(third, 0, 1, 1, acks.Accept)
			undone := staging
			undone.Kind, undone.To = share.EventRolledBack, share.Acquired
			f.Events = slices.Insert(f.Events, 1, Event(staging), Event(undone))
		}},
		"acknowledged and accepted plainly": {spoil: add(acquired(0, 1, 2), plain(share.EventDecided, 0, 1, 2, acks.Accept, share.Acknowledged)),
			want: []string{"I1 duplicate: in-0 offsets 0 to 1: acknowledged by transaction p (7/0), and plainly"}},
		"accepted plainly": {spoil: grow(acquired(4, 4, 1), plain(share.EventDecided, 4, 4, 1, acks.Accept, share.Acknowledged)),
			want: []string{"I1 lost: in-0 offset 4: accepted plainly, outside of any transaction"}},
		"rejected plainly": {spoil: grow(acquired(4, 4, 1), plain(share.EventDecided, 4, 4, 1, acks.Reject, share.Archived))},
		"released at the limit": {spoil: grow(acquired(4, 4, 1), plain(share.EventReleased, 4, 4, 1, acks.Release, share.Archived)),
			want: []string{"I7 archived: in-0 offset 4: archived after 1 deliveries, its limit"}},
		"expired at the limit": {spoil: grow(acquired(4, 4, 1), plain(share.EventExpired, 4, 4, 1, 0, share.Archived)),
			want: []string{"I7 archived: in-0 offset 4: archived after 1 deliveries, its limit"}},
		"a gap that was a record": {spoil: grow(acquired(4, 4, 1), plain(share.EventDecided, 4, 4, 1, acks.Gap, share.Archived)),
			want: []string{"I1 lost: in-0 offset 4: archived by no committed transaction"}},
		"acknowledged by an abort": {spoil: func(f *Facts) {
			grow(acquired(4, 4, 1), staged(fourth, 4, 4, 1, acks.Accept), decided(fourth, false), resolved(fourth, 4, 4, 1, share.Acknowledged))(f)
		}, want: []string{
			"I1 contradiction: in-0 offset 4: its acknowledgement did not follow its transaction",
			"I1 lost: in-0 offset 4: acknowledged by no committed transaction",
		}},
		"given back by a commit": {spoil: func(f *Facts) {
			grow(acquired(4, 4, 1), staged(fourth, 4, 4, 1, acks.Accept), decided(fourth, true), resolved(fourth, 4, 4, 1, share.Available))(f)
			f.Shares[0] = share.PartitionState{Topic: in, Start: 4, End: 5, Available: 1}
		}, want: []string{
			"I1 contradiction: in-0 offset 4: its acknowledgement did not follow its transaction",
			"I3 left: in-0 offset 4: not done for the group",
		}},
		"counted twice": {spoil: grow(acquired(4, 4, 2), plain(share.EventDecided, 4, 4, 2, acks.Reject, share.Archived)),
			want: []string{"I7 miscounted: in-0 offset 4: a delivery did not count one more"}},
		"not counted": {spoil: grow(acquired(4, 4, 1), plain(share.EventReleased, 4, 4, 1, acks.Release, share.Available), acquired(4, 4, 1), plain(share.EventDecided, 4, 4, 1, acks.Reject, share.Archived)),
			want: []string{"I7 miscounted: in-0 offset 4: a delivery did not count one more"}},
		"forgotten by a new leader": {spoil: grow(acquired(4, 4, 1), plain(share.EventForgotten, 4, 4, 0, 0, share.Available), acquired(4, 4, 1), plain(share.EventDecided, 4, 4, 1, acks.Reject, share.Archived))},
		"acquired at rest": {spoil: func(f *Facts) {
			grow(acquired(4, 4, 1))(f)
			f.Shares[0] = share.PartitionState{Topic: in, Start: 4, End: 5, Acquired: 1}
		}, want: []string{"I3 left: in-0 offset 4: 1 acquired and 0 staged at rest", "I3 left: in-0 offset 4: not done for the group"}},
		"staged at rest": {spoil: func(f *Facts) {
			grow(acquired(4, 4, 1), staged(fourth, 4, 4, 1, acks.Accept))(f)
			f.Shares[0] = share.PartitionState{Topic: in, Start: 4, End: 5, Pending: 1}
		}, want: []string{"I3 left: in-0 offset 4: 0 acquired and 1 staged at rest", "I3 left: in-0 offset 4: not done for the group"}},
		"never read": {spoil: func(f *Facts) {
			f.Logs[source] = logOf(Batch{First: 0, Last: 3}, Batch{First: 4, Last: 6})
			f.Logs[txn.Partition{Topic: "in", Partition: 1}] = logOf(Batch{First: 0, Last: 1}, marker(fourth, 2, true))
		}, want: []string{"I3 left: in-0 offsets 4 to 6: not done for the group", "I3 left: in-1 offsets 0 to 1: not done for the group"}},
		"passed over": {spoil: grow(acquired(4, 4, 1), plain(share.EventReleased, 4, 4, 1, acks.Release, share.Available)),
			want: []string{"I1 lost: in-0 offset 4: passed over by the group's start offset while it was available"}},
		"hangs": {spoil: func(f *Facts) {
			l := logOf(append(slices.Clone(f.Logs[out].Batches), data(fourth, 7, 8))...)
			l.Bounds.LastStable = 7
			f.Logs[out] = l
		}, want: []string{"I3 hanging: out-0 offsets 7 to 8: the last stable offset is below the high watermark: a transaction has not ended"}},
		"published and acknowledged nothing": {spoil: func(f *Facts) {
			publish(f, fourth, true)
			add(decided(fourth, true))(f)
		}, want: []string{"I1 unacknowledged: out-0 offset 7: published by transaction p (8/0), which acknowledged nothing"}},
		"published, and its staging undone": {spoil: func(f *Facts) {
			publish(f, fourth, true)
			undone := staged(fourth, 0, 1, 1, acks.Accept)
			undone.Kind, undone.To = share.EventRolledBack, share.Acquired
			f.Events = slices.Insert(f.Events, 1, Event(staged(fourth, 0, 1, 1, acks.Accept)), Event(undone), Event(decided(fourth, true)))
		}, want: []string{"I1 unacknowledged: out-0 offset 7: published by transaction p (8/0), which acknowledged nothing"}},
		"published by an abort": {spoil: func(f *Facts) {
			publish(f, fourth, true)
			add(decided(fourth, false))(f)
		}, want: []string{"I4 stray: out-0 offset 7: visible, and transaction p (8/0) did not commit"}},
		"published by nobody": {spoil: func(f *Facts) { publish(f, fourth, true) },
			want: []string{"I4 stray: out-0 offset 7: visible, and transaction 8/0 did not commit"}},
		"published outside": {spoil: func(f *Facts) {
			f.Logs[out] = logOf(append(slices.Clone(f.Logs[out].Batches), Batch{First: 7, Last: 7, Writer: fourth})...)
		}, want: []string{"I1 stray: out-0 offset 7: visible, and written outside of any transaction"}},
		"committed and not visible": {spoil: func(f *Facts) { f.Logs[out].Batches[1].Commit = false },
			want: []string{"I4 missing: out-0 offsets 0 to 1: transaction p (7/0) committed it, and it is not visible"}},
		"retention took outputs": {spoil: func(f *Facts) {
			l := logOf(f.Logs[out].Batches[3:]...)
			l.Bounds.Start = 4
			f.Logs[out] = l
		}},
		"on another topic": {spoil: func(f *Facts) { f.Outputs = []string{"out"} },
			want: []string{"I1 elsewhere: dead-0 offset 0: published by transaction p (7/0), on a topic that is not among the outputs"}},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.profile == wire.None {
				tc.profile = wire.Draft95
			}
			f := run(tc.profile)
			tc.spoil(&f)
			var got []string
			for _, x := range Judge(f).Findings {
				got = append(got, x.String())
				if x.Conceded != tc.conceded {
					t.Errorf("conceded is %v: %v", x.Conceded, x)
				}
				if tells := strings.HasSuffix(x.What, "(conceded: "+x.Window+")"); tells != tc.conceded || tc.conceded != (x.Window != "") {
					t.Errorf("window %q of: %v", x.Window, x)
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("found\n%q\nwant\n%q", got, tc.want)
			}
		})
	}
}

// lose makes the second transaction commit though its record was lost to it.
func lose(f *Facts, why share.LostWhy) {
	at := slices.IndexFunc(f.Events, func(e Event) bool {
		d, ok := e.(txn.Event)
		return ok && d.Writer == second
	})
	f.Events[at], f.Events[at+1] = decided(second, true), lost(second, 3, 3, 1, why)
	if f.Profile == wire.KIP93 { // it is available now, and was not released
		f.Events = slices.Delete(f.Events, at+2, at+3)
	}
	f.Logs[out].Batches[3].Commit = true
}

// grow adds record 4, and what happens to it.
func grow(events ...Event) func(*Facts) {
	return func(f *Facts) {
		f.Events = append(f.Events, events...)
		f.Logs[source] = logOf(Batch{First: 0, Last: 3}, Batch{First: 4, Last: 4})
		f.Shares[0] = share.PartitionState{Topic: in, Start: 5, End: 5}
	}
}

// publish writes record 7 to out.
func publish(f *Facts, by txn.Key, commit bool) {
	f.Events = append(f.Events, produced(by, out, 7, 7))
	f.Logs[out] = logOf(append(slices.Clone(f.Logs[out].Batches), data(by, 7, 7), marker(by, 8, commit))...)
}
