package share

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (r *rig) offsets(node int32, groups ...kmsg.DescribeShareGroupOffsetsRequestGroup) []kmsg.DescribeShareGroupOffsetsResponseGroup {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.Version, req.Groups = 1, groups
	return r.e.Handle(r.ctx, Conn{Node: node}, req).(*kmsg.DescribeShareGroupOffsetsResponse).Groups
}

func ofGroup(group string, topics ...kmsg.DescribeShareGroupOffsetsRequestGroupTopic) kmsg.DescribeShareGroupOffsetsRequestGroup {
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	if len(topics) > 0 {
		g.Topics = topics
	}
	return g
}

// wantOffsets looks at partition 0 of "in".
func (r *rig) wantOffsets(what string, start, lag int64) {
	r.t.Helper()
	got := r.offsets(0, ofGroup("g"))[0]
	if got.ErrorCode != 0 || len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 1 {
		r.t.Fatalf("%s: %+v", what, got)
	}
	if p := got.Topics[0].Partitions[0]; got.Topics[0].Topic != "in" || p.StartOffset != start || p.Lag != lag || p.LeaderEpoch != 5 {
		r.t.Fatalf("%s: %+v, want start %d, lag %d", what, got.Topics[0], start, lag)
	}
}

func TestDescribeOffsets(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	if got := r.offsets(0, ofGroup("g")); got[0].ErrorCode != codeNone || len(got[0].Topics) != 0 {
		t.Fatalf("unknown group (measured): %+v", got)
	}
	u := r.user("a")
	u.join()
	r.wantOffsets("subscribed, and nothing fetched (measured)", -1, -1)
	u.fetch()
	r.wantOffsets("nothing persisted (measured)", -1, -1)
	u.mustAck(batch(5, 6, acks.Accept))
	r.wantOffsets("two accepted", 0, 8)
	u.mustAck(batch(0, 1, acks.Accept), batch(2, 4, acks.Reject))
	r.wantOffsets("seven done, and the start trails (measured)", 0, 3)
	u.mustAck(batch(7, 9, acks.Accept))
	r.wantOffsets("all done", 7, 0)
	r.add(4)
	r.wantOffsets("four more", 7, 4)
	if got := r.offsets(1, ofGroup("g")); got[0].ErrorCode != codeNotCoordinator {
		t.Fatalf("elsewhere: %+v", got)
	}
	got := r.offsets(0, ofGroup("g",
		kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: "no", Partitions: []int32{0}},
		kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: "in", Partitions: []int32{0, 5}}))[0]
	if p := got.Topics[0].Partitions[0]; p.ErrorCode != codeNone || p.StartOffset != -1 || p.Lag != -1 {
		t.Fatalf("unknown topic (measured): %+v", p)
	}
	if got.Topics[1].Partitions[1].ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("unknown partition: %+v", got.Topics)
	}
	if p := got.Topics[1].Partitions[0]; p.ErrorCode != 0 || p.StartOffset != 7 {
		t.Fatalf("known one beside: %+v", p)
	}
	r.log.fail = errors.New("on purpose")
	if got := r.offsets(0, ofGroup("g")); got[0].Topics[0].Partitions[0].ErrorCode != codeUnknownServerError {
		t.Fatalf("log fails: %+v", got)
	}
}

func (r *rig) alter(topic string, starts map[int32]int64) *kmsg.AlterShareGroupOffsetsResponse {
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = "g"
	rt := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	rt.Topic = topic
	for p, o := range starts {
		rt.Partitions = append(rt.Partitions, kmsg.AlterShareGroupOffsetsRequestTopicPartition{Partition: p, StartOffset: o})
	}
	req.Topics = append(req.Topics, rt)
	return r.e.Handle(r.ctx, Conn{}, req).(*kmsg.AlterShareGroupOffsetsResponse)
}

func (r *rig) forget(topic string) *kmsg.DeleteShareGroupOffsetsResponse {
	req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	req.GroupID = "g"
	req.Topics = append(req.Topics, kmsg.DeleteShareGroupOffsetsRequestTopic{Topic: topic})
	return r.e.Handle(r.ctx, Conn{}, req).(*kmsg.DeleteShareGroupOffsetsResponse)
}

func TestAlterAndDeleteOffsets(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	if got := r.forget("in"); got.ErrorCode != codeGroupIDNotFound {
		t.Fatalf("delete of an unknown group: %+v", got)
	}
	if got := r.alter("in", map[int32]int64{0: 3}); got.ErrorCode != 0 || got.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("alter makes the group (measured): %+v", got)
	}
	r.wantOffsets("altered", 3, 7)

	u := r.user("a")
	epoch := u.join()
	wantGot(t, "from there", u.fetch(), [3]int64{3, 9, 1})
	if code := u.stage(u.staging(epoch, batch(3, 4, acks.Accept))); code != codeNone {
		t.Fatal(code)
	}
	for _, why := range []string{"a member", "staged records"} {
		if got := r.alter("in", map[int32]int64{0: 0}); got.ErrorCode != codeNonEmptyGroup || len(got.Topics) != 0 {
			t.Fatalf("alter with %s: %+v", why, got)
		}
		if got := r.forget("in"); got.ErrorCode != codeNonEmptyGroup {
			t.Fatalf("delete with %s: %+v", why, got)
		}
		u.heartbeat(-1)
	}
	r.wantState("refused", 3, TxPending, 1)
	r.e.Outcome(7, 4, true)

	got := r.alter("in", map[int32]int64{0: 2, 9: 0})
	for _, p := range got.Topics[0].Partitions {
		if want := map[int32]int16{0: codeNone, 9: codeUnknownTopicOrPartition}[p.Partition]; p.ErrorCode != want {
			t.Fatalf("partition %d: %d, want %d", p.Partition, p.ErrorCode, want)
		}
	}
	r.wantOffsets("altered again, all state dropped", 2, 8)
	if got := r.alter("no", map[int32]int64{0: 2}); got.Topics[0].Partitions[0].ErrorCode != codeUnknownTopicOrPartition {
		t.Fatalf("unknown topic: %+v", got)
	}
	if got := r.alter("in", map[int32]int64{0: -2}); got.Topics[0].Partitions[0].ErrorCode != codeInvalidRequest {
		t.Fatalf("-2: %+v", got)
	}
	r.alter("in", map[int32]int64{0: 500})
	r.wantOffsets("beyond the end (measured)", 500, -490)

	if got := r.forget("in"); got.ErrorCode != 0 || got.Topics[0].ErrorCode != 0 || got.Topics[0].TopicID != r.in {
		t.Fatalf("delete: %+v", got)
	}
	for _, topic := range []string{"in", "no"} {
		if got := r.forget(topic); got.Topics[0].ErrorCode != codeUnknownTopicOrPartition {
			t.Fatalf("delete of %s, which has no offsets (measured): %+v", topic, got)
		}
	}
	u.epoch = 0
	wantGot(t, "by the policy again", u.fetch(), [3]int64{0, 9, 1})
	u.closeSession()
	r.alter("in", map[int32]int64{0: -1})
	u.epoch = 0
	wantGot(t, "-1 leaves it to the policy", u.fetch(), [3]int64{0, 9, 1})
}

// Each form in which a group loses its start is told, with where it begins now, or
// that its policy is to say so; what the policy said then is told at the next read.
func TestResetsAreTold(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	for _, c := range []struct {
		name string
		do   func(*rig) int16
		want []Event // beside those of records; at the read before, then, and at the read after
	}{
		{"nothing", func(*rig) int16 { return codeNone }, []Event{{Kind: EventStarted, First: 0}}},
		{"to an offset", func(r *rig) int16 { return r.alter("in", map[int32]int64{0: 2}).ErrorCode },
			[]Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: 2}}},
		{"to -1", func(r *rig) int16 { return r.alter("in", map[int32]int64{0: -1}).ErrorCode },
			[]Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventStarted, First: 0}}},
		{"to -1 twice, of which the second finds nothing", func(r *rig) int16 {
			r.alter("in", map[int32]int64{0: -1})
			return r.alter("in", map[int32]int64{0: -1}).ErrorCode
		}, []Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventReset, First: -1}, {Kind: EventStarted, First: 0}}},
		{"to -1, and then to an offset", func(r *rig) int16 {
			r.alter("in", map[int32]int64{0: -1})
			return r.alter("in", map[int32]int64{0: 3}).ErrorCode
		}, []Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventReset, First: 3}}},
		{"to -1, by a policy that passes over all", func(r *rig) int16 {
			latest := "latest"
			if err := r.e.SetGroupConfig("g", map[string]*string{configReset: &latest}); err != nil {
				r.t.Fatal(err)
			}
			return r.alter("in", map[int32]int64{0: -1}).ErrorCode
		}, []Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventStarted, First: 4}}},
		{"offsets deleted", func(r *rig) int16 { return r.forget("in").ErrorCode },
			[]Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventStarted, First: 0}}},
		{"group deleted", func(r *rig) int16 { return r.e.DeleteGroup("g") },
			[]Event{{Kind: EventStarted, First: 0}, {Kind: EventReset, First: -1}, {Kind: EventStarted, First: 0}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []Event
			r := newRig(ctx, t, nil, func(cfg *Config) {
				cfg.Observe = func(e Event) {
					if e.Kind == EventReset || e.Kind == EventStarted {
						got = append(got, e)
					}
				}
			})
			r.add(4)
			u := r.user("a")
			u.join()
			wantGot(t, "at first", u.fetch(), [3]int64{0, 3, 1})
			u.heartbeat(-1)
			if code := c.do(r); code != codeNone {
				t.Fatalf("refused with %d", code)
			}
			u = r.user("b")
			u.join()
			u.fetch()
			r.e.mu.Lock() // under which Observe is called
			defer r.e.mu.Unlock()
			for i := range c.want {
				c.want[i].Group, c.want[i].Topic, c.want[i].Last, c.want[i].To = "g", r.in, c.want[i].First, Available
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("told\n%+v, want\n%+v", got, c.want)
			}
		})
	}
}
