package txnmanager

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// byPartition leads partition p from node p; partition 9 has no leader.
func byPartition(tp acks.TopicIDPartition) (int32, bool) { return tp.Partition, tp.Partition != 9 }

func stageInto(t *testing.T, b *buffer, id string, epoch int32, lock time.Time, batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch) error {
	t.Helper()
	set, err := transactional(batches)
	if err != nil {
		t.Fatal(err)
	}
	return b.add(Acknowledged{Member: member(t, "g", id, epoch), LockUntil: lock}, set)
}

type batchMap = map[acks.TopicIDPartition][]acks.AcknowledgementBatch

// Several sends of several members: one request per member and leader, in the
// fewest ranges, each member under the newest epoch it was given with.
func TestPlan(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	now := time.Now()
	var b buffer
	for _, s := range []struct {
		id      string
		epoch   int32
		lock    time.Duration
		batches batchMap
	}{
		{"m", 3, 20 * time.Second, batchMap{tp(1, 0): accept(0, 4), tp(1, 1): accept(0, 0)}},
		{"m", 5, 10 * time.Second, batchMap{tp(1, 0): accept(5, 9), tp(2, 1): accept(3, 3)}},
		{"n", 1, 15 * time.Second, batchMap{tp(1, 1): accept(7, 7)}},
		{"m", 4, 30 * time.Second, batchMap{tp(1, 0): accept(2, 6)}}, // known already
	} {
		if err := stageInto(t, &b, s.id, s.epoch, now.Add(s.lock), s.batches); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.lockUntil.Sub(now); got != 10*time.Second {
		t.Errorf("earliest lock %v", got)
	}
	if b.offsets() != 13 {
		t.Errorf("%d offsets", b.offsets())
	}
	reqs, leaderless := plan(b.members, byPartition)
	var got []string
	for _, r := range reqs {
		ranges, offsets := r.size()
		got = append(got, fmt.Sprintf("%d %v %d/%d", r.node, r.member, ranges, offsets))
		for _, p := range r.parts {
			got = append(got, fmt.Sprintf("%v %v", p.tp, p.batches))
		}
	}
	want := []string{
		"0 g/m@5 1/10", "b-0 [{0 9 [accept]}]",
		"1 g/m@5 2/2", "b-1 [{0 0 [accept]}]", "c-1 [{3 3 [accept]}]",
		"1 g/n@1 1/1", "b-1 [{7 7 [accept]}]",
	}
	if !slices.Equal(got, want) || len(leaderless) > 0 {
		t.Errorf("planned\n%q (leaderless %v), want\n%q", got, leaderless, want)
	}
}

func TestPlanWithoutLeader(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var b buffer
	if err := stageInto(t, &b, "m", 1, time.Now(), batchMap{tp(1, 0): accept(0, 0), tp(1, 9): accept(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if reqs, leaderless := plan(b.members, byPartition); len(reqs) != 1 || len(leaderless) != 1 || leaderless[0] != tp(1, 9) {
		t.Errorf("%v, leaderless %v", reqs, leaderless)
	}
}

// A verdict that contradicts an earlier one is refused and changes nothing.
func TestBufferRefusesContradiction(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	now := time.Now()
	var b buffer
	if err := stageInto(t, &b, "m", 1, now.Add(time.Minute), batchMap{tp(1, 0): accept(0, 9)}); err != nil {
		t.Fatal(err)
	}
	reject := batchMap{tp(1, 0): {{FirstOffset: 9, LastOffset: 12, Types: []acks.Type{acks.Reject}}}, tp(1, 1): accept(0, 0)}
	var e *acks.Error
	if err := stageInto(t, &b, "m", 7, now, reject); !errors.As(err, &e) || e.First != 9 {
		t.Errorf("contradiction gave %v", err)
	}
	if b.offsets() != 10 || b.members[0].member.MemberEpoch() != 1 || !b.lockUntil.Equal(now.Add(time.Minute)) {
		t.Errorf("the refused part left something behind: %d offsets, %v, %v", b.offsets(), b.members[0].member, b.lockUntil)
	}
	// The same offsets of another member are its own affair.
	if err := stageInto(t, &b, "n", 1, now.Add(time.Minute), reject); err != nil {
		t.Error(err)
	}
}

func TestReroute(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := &stageRequest{node: 7, member: member(t, "g", "m", 1), parts: []part{{tp(1, 0), accept(0, 0)}, {tp(1, 1), accept(1, 1)}, {tp(2, 1), accept(2, 2)}}}
	again, stuck := r.reroute(r.parts, true, byPartition)
	if stuck != nil || len(again) != 2 || again[0].node != 0 || again[1].node != 1 || len(again[1].parts) != 2 || !again[0].moved {
		t.Fatalf("%+v, stuck %+v", again, stuck)
	}
	if _, stuck = again[0].reroute(again[0].parts, true, func(acks.TopicIDPartition) (int32, bool) { return 4, true }); stuck == nil {
		t.Error("moved a second time")
	}
	if _, stuck = (&stageRequest{node: 1, parts: r.parts[1:2]}).reroute(r.parts[1:2], true, byPartition); stuck == nil {
		t.Error("refused by its node and sent there again")
	}
	if _, stuck = r.reroute([]part{{tp(1, 9), nil}}, true, byPartition); stuck == nil {
		t.Error("refused, and no other leader known")
	}
	// What was never sent may go to the same node again, any number of times.
	at1 := &stageRequest{node: 1, parts: r.parts[1:2]}
	if again, stuck = at1.reroute(at1.parts, false, byPartition); stuck != nil || len(again) != 1 || again[0].moved {
		t.Errorf("unsent: %+v, stuck %+v", again, stuck)
	}
}

// A repeat is the same to the byte.
func TestBuildIsTheSameEachTime(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := &stageRequest{node: 1, member: member(t, "g", "m", 4), parts: []part{{tp(1, 0), accept(0, 3)}, {tp(1, 2), accept(9, 9)}, {tp(2, 0), accept(1, 1)}}}
	req := r.build(wire.Draft95, "tx", identity{77, 5})
	if len(req.Topics) != 2 || len(req.Topics[0].Partitions) != 2 || *req.TransactionalID != "tx" || req.ProducerID != 77 || req.ProducerEpoch != 5 || req.MemberEpoch != 4 {
		t.Errorf("built %+v", req)
	}
	if !bytes.Equal(req.AppendTo(nil), r.build(wire.Draft95, "tx", identity{77, 5}).AppendTo(nil)) {
		t.Error("a repeat differs")
	}
}

// BenchmarkBuffer merges ten polls of 500 records, as a long transaction does.
func BenchmarkBuffer(b *testing.B) {
	m, err := groupmeta.New("g", "m", 1)
	if err != nil {
		b.Fatal(err)
	}
	var polls []batchMap
	for i := range int64(10) {
		polls = append(polls, batchMap{tp(1, 0): accept(500*i, 500*i+499)})
	}
	b.ReportAllocs()
	for b.Loop() {
		var buf buffer
		for _, p := range polls {
			set, err := transactional(p)
			if err == nil {
				err = buf.add(Acknowledged{Member: m, LockUntil: time.Time{}.Add(1)}, set)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		if reqs, _ := plan(buf.members, byPartition); len(reqs) != 1 {
			b.Fatal(reqs)
		}
	}
}
