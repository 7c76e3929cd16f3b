package shareconsumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// watcher keeps what every hook of a consumer was told.
type watcher struct {
	mu       sync.Mutex
	members  []sharetxn.Member
	sessions []sharetxn.Session
	fetches  []sharetxn.Fetch
	acks     []sharetxn.Acknowledge
	renewals []sharetxn.Acknowledge
	lost     []sharetxn.Lost
}

func keep[E any](w *watcher, to *[]E, e E) {
	w.mu.Lock()
	defer w.mu.Unlock()
	*to = append(*to, e)
}

func (w *watcher) OnMember(e sharetxn.Member)           { keep(w, &w.members, e) }
func (w *watcher) OnSession(e sharetxn.Session)         { keep(w, &w.sessions, e) }
func (w *watcher) OnFetch(e sharetxn.Fetch)             { keep(w, &w.fetches, e) }
func (w *watcher) OnAcknowledge(e sharetxn.Acknowledge) { keep(w, &w.acks, e) }
func (w *watcher) OnRenew(e sharetxn.Acknowledge)       { keep(w, &w.renewals, e) }
func (w *watcher) OnLost(e sharetxn.Lost)               { keep(w, &w.lost, e) }

// kept gives a copy of what one hook was told so far.
func kept[E any](w *watcher, of *[]E) []E {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(*of)
}

// events are the members' events in order.
func (w *watcher) events() (out []sharetxn.MemberEvent) {
	for _, e := range kept(w, &w.members) {
		out = append(out, e.Event)
	}
	return out
}

// A member's whole life as its hooks see it: each is called, with the right
// values.
func TestHooksSeeEverything(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 20*time.Second, &w)
	c.feedTo(ctx, t, 6, 2) // two of three brokers have records
	m := c.consumer(t)
	rs := gather(ctx, t, m, 6)

	// The member and its assignment.
	id := m.ShareGroupMetadata()
	joined := kept(&w, &w.members)
	if joined[0].Event != sharetxn.MemberJoined || joined[0].Epoch < 1 || joined[0].Group != "g" || joined[0].MemberID != id.MemberID() {
		t.Errorf("first %+v", joined[0])
	}
	i := slices.IndexFunc(joined, func(e sharetxn.Member) bool { return e.Event == sharetxn.MemberAssigned })
	if i < 0 || !slices.Equal(joined[i].Assigned["in"], []int32{0, 1, 2}) || joined[i].Epoch != id.MemberEpoch() {
		t.Errorf("assignment in %+v", joined)
	}

	// Each fetch, with what it brought.
	records, ranges, size, from := 0, 0, 0, make(map[int32]bool)
	for _, f := range kept(&w, &w.fetches) {
		if f.Err != nil || f.Took <= 0 || f.Group != "g" || f.MemberID != id.MemberID() {
			t.Errorf("fetch %+v", f)
		}
		records, ranges, size = records+f.Records, ranges+f.Ranges, size+f.Bytes
		if f.Records > 0 {
			from[f.Broker] = true
		}
	}
	if records != 6 || ranges < 2 || size < 6 || !from[c.Leader("in", 0)] || !from[c.Leader("in", 1)] || len(from) != 2 {
		t.Errorf("fetched %d records in %d ranges of %d bytes from %v", records, ranges, size, from)
	}

	// Renewals, and one partition's acknowledgements refused beside another's that
	// are taken.
	for b := range batchesOfRecords(rs) {
		if err := b.Renew(ctx); err != nil {
			t.Fatal(err)
		}
		b.AcceptRest()
	}
	offsets := 0
	for _, r := range kept(&w, &w.renewals) {
		for _, p := range r.Partitions {
			offsets += p.Offsets
			if p.Err != nil || p.Topic != "in" || r.Riding || r.Err != nil || r.Attempt != 1 {
				t.Errorf("renewal %+v", r)
			}
		}
	}
	if offsets != 6 {
		t.Errorf("%d offsets renewed", offsets)
	}
	refused := c.refusePartition(1, kerr.InvalidRecordState.Code)
	for b := range batchesOfRecords(rs) {
		err := b.CommitSync(ctx)
		if on := slices.ContainsFunc(rs, func(r *Record) bool { return r.batch == b && r.Partition == 1 }); (err != nil) != on {
			t.Errorf("CommitSync: %v", err)
		}
	}
	taken, bad, again := 0, 0, 0
	for _, a := range kept(&w, &w.acks) {
		for _, p := range a.Partitions {
			switch {
			case p.Partition == 0 && p.Err == nil && a.Attempt == 1:
				taken += p.Offsets
			case p.Partition == 1 && errors.Is(p.Err, kerr.InvalidRecordState) && a.Attempt == 1:
				bad += p.Offsets
			case p.Partition == 1:
				again += p.Offsets
			default:
				t.Errorf("acknowledged %+v", a)
			}
		}
	}
	if refused.Load() == 0 || taken != 3 || bad != 3 || again == 0 {
		t.Errorf("taken %d, refused %d and then apart %d offsets, %d answers changed", taken, bad, again, refused.Load())
	}
	c.SetIntercept(nil)

	// Riding acknowledgements.
	c.feedTo(ctx, t, 1, 1)
	b := poll(ctx, t, m)
	b.AcceptRest()
	if err := b.CommitAsync(); err != nil {
		t.Fatal(err)
	}
	_, _ = m.Poll(short(ctx, t))
	testkit.Eventually(ctx, t, "one acknowledgement more", func() bool {
		all := kept(&w, &w.acks)
		last := all[len(all)-1]
		return last.Partitions[0].Partition == 0 && last.Partitions[0].Offsets == 1 && last.Err == nil
	})

	// What goes without a verdict, polled and unpolled.
	c.feedTo(ctx, t, 2, 1)
	one := poll(ctx, t, m)
	beats := c.refuseBeats(1, kerr.FencedMemberEpoch.Code)
	testkit.Eventually(ctx, t, "the member was fenced and is back", func() bool {
		ev := w.events()
		i := slices.Index(ev, sharetxn.MemberFenced)
		return i >= 0 && slices.Contains(ev[i:], sharetxn.MemberJoined)
	})
	if beats.Load() != 1 {
		t.Errorf("%d heartbeats refused", beats.Load())
	}
	c.SetIntercept(nil)
	lost := 0
	for _, l := range kept(&w, &w.lost) {
		if lost += l.Records; !errors.Is(l.Err, kerr.FencedMemberEpoch) || l.Unpolled || l.Released {
			t.Errorf("lost %+v", l)
		}
	}
	if lost != one.Len() || lost == 0 {
		t.Errorf("%d records lost of %d", lost, one.Len())
	}

	// Sessions, to the end.
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	count := make(map[sharetxn.SessionEvent]int)
	for _, s := range kept(&w, &w.sessions) {
		count[s.Event]++
	}
	if n := count[sharetxn.SessionOpened]; n < 3 || count[sharetxn.SessionClosed] != n || count[sharetxn.SessionLost] != 0 {
		t.Errorf("sessions %v", count)
	}
	ev := kept(&w, &w.members)
	if last := ev[len(ev)-1]; last.Event != sharetxn.MemberLeft || last.Err != nil || last.Epoch != 0 {
		t.Errorf("last %+v", last)
	}
	if !slices.ContainsFunc(ev, func(e sharetxn.Member) bool {
		return e.Event == sharetxn.MemberFenced && errors.Is(e.Err, kerr.FencedMemberEpoch)
	}) {
		t.Errorf("no fencing in %+v", ev)
	}
}

// short is a context for a poll that is to find nothing.
func short(ctx context.Context, t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// A session that breaks is told with why, and so is what was lost with it; so is
// the epoch that rises when another member joins.
func TestHooksOfTrouble(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 20*time.Second, &w)
	c.feedTo(ctx, t, 3, 1)
	m := c.consumer(t)
	rs := gather(ctx, t, m, 3)
	broken := c.Leader("in", 0)
	cut := c.onKey(keyShareFetch, 1, func(r broker.Request) broker.Action {
		return broker.Action{LoseAnswer: r.Node == broken}
	})
	c.feedTo(ctx, t, 1, 1) // ends the fetch
	again := gather(ctx, t, m, 4)
	if cut.Load() != 1 || len(again) != 4 {
		t.Fatalf("cut %d connections, %d records", cut.Load(), len(again))
	}
	lost := kept(&w, &w.lost)
	if len(lost) != 1 || lost[0].Records != len(rs) || lost[0].Unpolled || lost[0].Err == nil {
		t.Errorf("lost %+v", lost)
	}
	if !slices.ContainsFunc(kept(&w, &w.sessions), func(s sharetxn.Session) bool {
		return s.Event == sharetxn.SessionLost && s.Broker == broken && s.Err != nil
	}) {
		t.Errorf("sessions %+v", kept(&w, &w.sessions))
	}
	if !slices.ContainsFunc(kept(&w, &w.fetches), func(f sharetxn.Fetch) bool {
		return f.Broker == broken && sharetxn.ClassOf(f.Err) == sharetxn.ClassUnknown && f.Err != nil
	}) {
		t.Errorf("fetches %+v", kept(&w, &w.fetches))
	}
	other := c.consumer(t)
	_, _ = other.Poll(short(ctx, t))
	testkit.Eventually(ctx, t, "the epoch rose", func() bool {
		return slices.ContainsFunc(kept(&w, &w.members), func(e sharetxn.Member) bool {
			return e.Event == sharetxn.MemberEpoch && e.MemberID == m.id && e.Epoch > 1
		})
	})
}

// onKey asks fn about the first requests of a key, until it has changed n of
// them, and counts those.
func (c *cluster) onKey(key int16, n int32, fn func(broker.Request) broker.Action) *counter {
	var changed counter
	c.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key != key {
			return broker.Action{}
		}
		changed.mu.Lock()
		defer changed.mu.Unlock()
		if changed.n >= n {
			return broker.Action{}
		}
		act := fn(r)
		if act.LoseAnswer || act.LoseRequest || act.Answer != nil || act.After != nil || act.Wait != nil {
			changed.n++
		}
		return act
	})
	return &changed
}

// counter counts.
type counter struct {
	mu sync.Mutex
	n  int32
}

// Load gives the count.
func (c *counter) Load() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.n
}

// refusePartition makes the broker's answers for one partition's acknowledgements
// fail, and counts.
func (c *cluster) refusePartition(partition int32, code int16) *counter {
	return c.onKey(keyShareAck, 1<<30, func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareAcknowledgeRequest)
		if !ok || len(req.Topics) == 0 || req.Topics[0].Partitions[0].Partition != partition {
			return broker.Action{}
		}
		return broker.Action{After: func(resp kmsg.Response) {
			resp.(*kmsg.ShareAcknowledgeResponse).Topics[0].Partitions[0].ErrorCode = code
		}}
	})
}

// Acknowledgements that ride on a fetch say so. Whether they ride is a matter of
// pace, so records come until some have.
func TestHooksOfRidingAcknowledgements(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, 20*time.Second, &w)
	m := c.consumer(t, MaxPollRecords(5))
	riding := func(a sharetxn.Acknowledge) bool { return a.Riding }
	total := 0
	for ; !slices.ContainsFunc(kept(&w, &w.acks), riding); total += 50 {
		c.feedTo(ctx, t, 50, 1)
		for seen := 0; seen < 50; {
			b := poll(ctx, t, m)
			seen += b.Len()
			b.AcceptRest()
			if err := b.CommitAsync(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c.waitDone(ctx, t, int64(total))
	for _, a := range kept(&w, &w.acks) {
		for _, p := range a.Partitions {
			if a.Err != nil || p.Err != nil || a.Attempt != 1 || a.Broker != c.Leader("in", 0) || p.Topic != "in" || p.Partition != 0 {
				t.Errorf("acknowledged %+v", a)
			}
		}
	}
	offsets := 0
	testkit.Eventually(ctx, t, "all are told", func() bool {
		offsets = 0
		for _, a := range kept(&w, &w.acks) {
			for _, p := range a.Partitions {
				offsets += p.Offsets
			}
		}
		return offsets >= total
	})
	if offsets != total {
		t.Errorf("%d offsets told of, %d acknowledged", offsets, total)
	}
}

// Records that no poll takes before their locks run out are given back, and
// told as such.
func TestHooksOfUnpolledRecords(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	var w watcher
	c := startCluster(t, time.Second, &w)
	if err := c.SetGroupConfig("g", map[string]string{"share.renew.acknowledge.enable": "false"}); err != nil {
		t.Fatal(err)
	}
	c.feedTo(ctx, t, 3, 1) // one batch of the log, so fetched together
	m := c.consumer(t, MaxPollRecords(1))
	first := gather(ctx, t, m, 1)[0]
	testkit.Eventually(ctx, t, "the locks have ended", func() bool { return !first.Held() })
	_ = poll(ctx, t, m)
	for _, l := range kept(&w, &w.lost) {
		if l.Unpolled && l.Released {
			if l.Records != 2 || l.Err == nil || l.Group != "g" || l.MemberID != m.id {
				t.Errorf("released %+v", l)
			}
			return
		}
	}
	t.Errorf("nothing was told as released: %+v", kept(&w, &w.lost))
}
