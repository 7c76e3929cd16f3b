package shareconsumer

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestPauses(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		do   func(*pauses)
		want map[string][]int32
	}{
		"nothing":                     {func(*pauses) {}, nil},
		"partitions, in order":        {func(p *pauses) { p.pause("a", []int32{2, 0}); p.pause("a", []int32{1, 2}) }, map[string][]int32{"a": {0, 1, 2}}},
		"a topic":                     {func(p *pauses) { p.pause("a", nil) }, map[string][]int32{"a": nil}},
		"both, the topic covers":      {func(p *pauses) { p.pause("a", []int32{1}); p.pause("a", nil) }, map[string][]int32{"a": nil}},
		"one of two resumed":          {func(p *pauses) { p.pause("a", []int32{1, 2}); p.resume("a", []int32{1}) }, map[string][]int32{"a": {2}}},
		"the last resumed":            {func(p *pauses) { p.pause("a", []int32{1}); p.resume("a", []int32{1}) }, nil},
		"a topic resumed":             {func(p *pauses) { p.pause("a", nil); p.pause("a", []int32{1}); p.resume("a", nil) }, nil},
		"a partition within a topic":  {func(p *pauses) { p.pause("a", nil); p.resume("a", []int32{1}) }, map[string][]int32{"a": nil}},
		"what was not paused resumed": {func(p *pauses) { p.resume("a", nil); p.resume("b", []int32{1}) }, nil},
		"other topics stay":           {func(p *pauses) { p.pause("a", nil); p.pause("b", []int32{0}); p.resume("a", nil) }, map[string][]int32{"b": {0}}},
	} {
		var p pauses
		c.do(&p)
		got := p.all()
		if !maps.EqualFunc(got, c.want, slices.Equal) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		for topic, ps := range got {
			for n := range int32(3) {
				if want := ps == nil || slices.Contains(ps, n); p.has(topic, n) != want {
					t.Errorf("%s: has(%s, %d) is %v", name, topic, n, !want)
				}
			}
		}
	}
}

// A paused partition is forgotten with the next request, its neighbour on the
// same broker goes on, its acknowledgements go out, and what comes in meanwhile
// comes after Resume. The assignment stays.
func TestPauseAndResume(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	node := c.Leader("in", 0)
	if err := c.MoveLeader("in", 1, node); err != nil {
		t.Fatal(err)
	}
	c.feedTo(ctx, t, 2, 2)
	var as assignments
	m := c.consumer(t, OnAssigned(as.told))
	rs := gather(ctx, t, m, 2)
	id := c.TopicID("in")
	forgot := c.onKey(keyShareFetch, 1, func(r broker.Request) broker.Action {
		req, ok := r.Message().(*kmsg.ShareFetchRequest)
		if !ok || r.Node != node || len(req.ForgottenTopicsData) != 1 {
			return broker.Action{}
		}
		if f := req.ForgottenTopicsData[0]; f.TopicID != id || !slices.Equal(f.Partitions, []int32{1}) {
			t.Errorf("forgotten: %+v", f)
		}
		return broker.Action{After: func(kmsg.Response) {}}
	})
	m.Pause("in", 1)
	m.Pause("unknown")
	if got := m.Paused(); !maps.EqualFunc(got, map[string][]int32{"in": {1}, "unknown": nil}, slices.Equal) {
		t.Fatalf("paused %v", got)
	}
	_, _ = m.Poll(short(ctx, t)) // the next request
	if forgot.Load() != 1 {
		t.Fatal("the partition was not forgotten")
	}
	c.feedTo(ctx, t, 2, 2)
	for _, r := range gather(ctx, t, m, 1) {
		if r.Partition != 0 {
			t.Fatalf("%s came though it is paused", where(r))
		}
		rs = append(rs, r)
	}
	if b, _ := m.Poll(short(ctx, t)); b != nil {
		t.Fatalf("%s came though it is paused", where(b.Records()[0]))
	}
	for b := range batchesOfRecords(rs) {
		b.AcceptRest()
		if err := b.CommitAsync(); err != nil {
			t.Fatal(err)
		}
	}
	c.waitDone(ctx, t, 3)
	if got := as.last(); !slices.Equal(got, []int32{0, 1, 2}) {
		t.Errorf("assigned %v", got)
	}
	m.Resume("in", 1)
	if r := gather(ctx, t, m, 1)[0]; r.Partition != 1 || r.DeliveryCount() != 1 {
		t.Errorf("%s came, delivery %d", where(r), r.DeliveryCount())
	}
}

// A poll that waits is woken by Resume; what was fetched before Pause comes.
func TestPauseOfAll(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := startCluster(t, 20*time.Second)
	c.feedTo(ctx, t, 2, 1)
	m := c.consumer(t, MaxPollRecords(1))
	gather(ctx, t, m, 1)
	m.Pause("in")
	gather(ctx, t, m, 1) // of the same fetch
	c.feedTo(ctx, t, 1, 1)
	came := make(chan *Batch)
	go func() {
		b, _ := m.Poll(ctx)
		came <- b
	}()
	testkit.Eventually(ctx, t, "the poll waits", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.polling == 1
	})
	select {
	case b := <-came:
		t.Fatalf("%s came though all is paused", where(b.Records()[0]))
	case <-short(ctx, t).Done():
	}
	m.Resume("in")
	if b := <-came; b.Len() != 1 {
		t.Fatalf("%d records", b.Len())
	}
}
