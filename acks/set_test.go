package acks

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// TestWireForm holds the batches for given verdicts against ones made by hand.
func TestWireForm(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type bs = []AcknowledgementBatch
	const A, R, G = Accept, Reject, Gap
	for _, c := range []struct {
		name string
		runs []Run
		want bs
	}{
		{"one offset", []Run{{7, 7, A}}, bs{{7, 7, []Type{A}}}},
		{"contiguous, one type", []Run{{0, 499, A}, {500, 999, A}}, bs{{0, 999, []Type{A}}}},
		{"hole between", []Run{{0, 4, A}, {6, 9, A}}, bs{{0, 4, []Type{A}}, {6, 9, []Type{A}}}},
		{"alternating", []Run{{0, 0, A}, {1, 1, R}, {2, 2, A}}, bs{{0, 2, []Type{A, R, A}}}},
		{"alternating with a hole", []Run{{0, 0, A}, {1, 1, R}, {3, 3, A}, {4, 4, R}}, bs{{0, 1, []Type{A, R}}, {3, 4, []Type{A, R}}}},
		{"gaps among verdicts", []Run{{0, 1, A}, {2, 2, G}, {3, 3, A}}, bs{{0, 3, []Type{A, A, G, A}}}},
		{"nine stay in the list", []Run{{0, 0, R}, {1, 9, A}, {10, 10, R}}, bs{{0, 10, []Type{R, A, A, A, A, A, A, A, A, A, R}}}},
		{"ten leave it", []Run{{0, 0, R}, {1, 10, A}, {11, 11, R}}, bs{{0, 0, []Type{R}}, {1, 10, []Type{A}}, {11, 11, []Type{R}}}},
		{"long beside long", []Run{{0, 9, A}, {10, 19, R}}, bs{{0, 9, []Type{A}}, {10, 19, []Type{R}}}},
		{"short before long", []Run{{0, 0, A}, {1, 1, R}, {2, 20, A}}, bs{{0, 1, []Type{A, R}}, {2, 20, []Type{A}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, order := range []struct {
				name string
				runs []Run
			}{{"ascending", c.runs}, {"descending", reversed(c.runs)}} {
				var s Set
				for _, r := range order.runs {
					if err := s.AddRange(orders, r.First, r.Last, r.Type); err != nil {
						t.Fatal(err)
					}
				}
				if got := s.Map()[orders]; !reflect.DeepEqual(got, c.want) {
					t.Errorf("%s: %v, want %v", order.name, got, c.want)
				}
				if err := Validate(orders, s.Map()[orders]); err != nil {
					t.Errorf("%s: own batches refused: %v", order.name, err)
				}
			}
		})
	}
}

func reversed(runs []Run) []Run {
	out := slices.Clone(runs)
	slices.Reverse(out)
	return out
}

func TestSecondVerdict(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var s Set
	mustAdd(t, &s, orders, 10, 19, Accept)
	before := s.Map()

	if err := s.Add(orders, 12, Accept); err != nil {
		t.Errorf("the same verdict again is refused: %v", err)
	}
	renamed := TopicIDPartition{TopicID: orders.TopicID, Topic: "renamed", Partition: orders.Partition}
	wantError(t, "one offset", s.Add(orders, 12, Reject), &Error{Field: "Types", First: 12, Last: 12})
	wantError(t, "under another name", s.Add(renamed, 12, Reject), &Error{Field: "Types", First: 12, Last: 12})
	wantError(t, "overlap", s.AddRange(orders, 5, 14, Reject), &Error{Field: "Types", First: 10, Last: 14})
	wantError(t, "bad range", s.AddRange(orders, 5, 4, Reject), &Error{Field: "LastOffset", First: 5, Last: 4})
	wantError(t, "bad type", s.Add(orders, 50, 9), &Error{Field: "Types", First: 50, Last: 50})
	wantError(t, "batches", s.AddBatches(orders, []AcknowledgementBatch{{30, 31, []Type{Reject}}, {40, 40, []Type{9}}}), &Error{Field: "Types", First: 40, Last: 40})
	wantError(t, "batches that agree", s.AddBatches(orders, []AcknowledgementBatch{{0, 1, []Type{Reject}}, {19, 20, []Type{Accept, Reject}}, {21, 21, []Type{Reject}}}), nil)

	if got := s.Map(); reflect.DeepEqual(got, before) {
		t.Error("batches without a conflict were not taken")
	}
	before = s.Map()
	wantError(t, "batches", s.AddBatches(orders, []AcknowledgementBatch{{5, 6, []Type{Reject}}, {10, 10, []Type{Reject}}}), &Error{Field: "Types", First: 10, Last: 10})
	var o Set
	mustAdd(t, &o, TopicIDPartition{Topic: "alone"}, 0, 9, Accept) // sorts first: would be merged before the conflict shows
	mustAdd(t, &o, orders, 0, 0, Accept)
	wantError(t, "merge", s.Merge(&o), &Error{Field: "Types", First: 0, Last: 0})
	if got := s.Map(); !reflect.DeepEqual(got, before) {
		t.Errorf("after refusals the set holds %v, want %v", got, before)
	}
}

func mustAdd(t testing.TB, s *Set, tp TopicIDPartition, first, last int64, typ Type) {
	t.Helper()
	if err := s.AddRange(tp, first, last, typ); err != nil {
		t.Fatal(err)
	}
}

func TestMerge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	payments := TopicIDPartition{TopicID: [16]byte{9}, Topic: "payments"}
	var s, o Set
	mustAdd(t, &s, orders, 0, 4, Accept)
	mustAdd(t, &o, orders, 5, 9, Accept)
	mustAdd(t, &o, orders, 3, 3, Accept)
	mustAdd(t, &o, payments, 1, 1, Reject)
	theirs := o.Map()
	for range 2 { // the second time nothing changes
		if err := s.Merge(&o); err != nil {
			t.Fatal(err)
		}
		want := map[TopicIDPartition][]AcknowledgementBatch{
			orders:   {{0, 9, []Type{Accept}}},
			payments: {{1, 1, []Type{Reject}}},
		}
		if got := s.Map(); !reflect.DeepEqual(got, want) {
			t.Fatalf("merged to %v, want %v", got, want)
		}
	}
	mustAdd(t, &s, orders, 10, 10, Accept)
	if got := o.Map(); !reflect.DeepEqual(got, theirs) {
		t.Errorf("the merged set became %v, want %v", got, theirs)
	}
	if err := errors.Join(s.Merge(nil), s.Merge(&Set{}), s.Merge(&s)); err != nil || s.Len() != 12 {
		t.Errorf("merging nothing new gave %v and %d offsets, want 12", err, s.Len())
	}
}

func TestPartitionsOrder(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	want := []TopicIDPartition{
		{TopicID: [16]byte{9}, Topic: "a", Partition: 1},
		{TopicID: [16]byte{9}, Topic: "a", Partition: 10},
		{TopicID: [16]byte{1}, Topic: "b", Partition: 3},
		{TopicID: [16]byte{2}, Topic: "b", Partition: 0},
	}
	for _, first := range []int{0, 1, 2, 3} {
		var s Set
		for i := range want {
			mustAdd(t, &s, want[(first+i)%len(want)], 0, 0, Accept)
		}
		var got []TopicIDPartition
		for tp := range s.Partitions() {
			got = append(got, tp)
		}
		if !slices.Equal(got, want) {
			t.Errorf("order %v, want %v", got, want)
		}
	}
	var s Set
	mustAdd(t, &s, want[0], 0, 0, Accept)
	mustAdd(t, &s, want[1], 0, 0, Accept)
	for range s.Partitions() {
		break // must not go on
	}
	if got := len(maps.Collect(s.Partitions())); got != 2 {
		t.Errorf("a second range gave %d partitions, want 2", got)
	}
}

func TestLen(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var s Set
	if s.Len() != 0 || len(s.Map()) != 0 {
		t.Errorf("the zero set holds %v", s.Map())
	}
	mustAdd(t, &s, orders, 5, 7, Accept)
	mustAdd(t, &s, orders, 100, 100, Reject)
	mustAdd(t, &s, TopicIDPartition{}, 5, 5, Gap)
	if s.Len() != 5 {
		t.Errorf("Len is %d, want 5", s.Len())
	}
	mustAdd(t, &s, TopicIDPartition{Partition: 1}, 0, math.MaxInt64-1, Accept)
	if s.Len() != math.MaxInt {
		t.Errorf("Len is %d, want the largest int", s.Len())
	}
}

func TestSetValidateTransactional(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var s Set
	if err := s.ValidateTransactional(); err != nil {
		t.Errorf("the zero set: %v", err)
	}
	mustAdd(t, &s, orders, 0, 5, Accept)
	mustAdd(t, &s, orders, 6, 6, Reject)
	if err := s.ValidateTransactional(); err != nil {
		t.Errorf("accept and reject: %v", err)
	}
	mustAdd(t, &s, orders, 9, 10, Release)
	wantError(t, "release", s.ValidateTransactional(), &Error{Field: "Types", First: 9, Last: 10})
}

type record struct {
	tp     TopicIDPartition
	offset int64
}

func (r record) Position() (TopicIDPartition, int64) { return r.tp, r.offset }

func TestFromRecords(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	other := TopicIDPartition{TopicID: [16]byte{3}, Topic: "other"}
	s, err := FromRecords([]record{{orders, 2}, {other, 8}, {orders, 1}, {orders, 4}}, Accept)
	if err != nil {
		t.Fatal(err)
	}
	want := map[TopicIDPartition][]AcknowledgementBatch{
		orders: {{1, 2, []Type{Accept}}, {4, 4, []Type{Accept}}},
		other:  {{8, 8, []Type{Accept}}},
	}
	if got := s.Map(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if s, err := FromRecords([]record{}, Accept); err != nil || s.Len() != 0 {
		t.Errorf("no records: %v, %v", s, err)
	}
	s, err = FromRecords([]record{{orders, 1}, {orders, -1}}, Accept)
	wantError(t, "negative offset", err, &Error{Field: "FirstOffset", First: -1, Last: -1})
	if s != nil {
		t.Errorf("an error and a set of %d", s.Len())
	}
}

// TestMemoryFollowsRanges holds the set to its promise: what it keeps grows
// with the number of ranges and not of offsets.
func TestMemoryFollowsRanges(t *testing.T) {
	testkit.Deadline(t, 60*time.Second)
	var s Set
	for o := range int64(1_000_000) {
		mustAdd(t, &s, orders, o, o, Accept)
	}
	if n := len(slices.Collect(s.partition(orders).runs.all())); n != 1 {
		t.Errorf("a million offsets in a row are %d runs", n)
	}
	huge := testing.AllocsPerRun(10, func() {
		var s Set
		mustAdd(t, &s, orders, 0, math.MaxInt64-1, Accept)
		if len(s.Map()[orders]) != 1 {
			t.Error("one range is not one batch")
		}
	})
	small := testing.AllocsPerRun(10, func() {
		var s Set
		mustAdd(t, &s, orders, 0, 0, Accept)
		if len(s.Map()[orders]) != 1 {
			t.Error("one range is not one batch")
		}
	})
	if huge > small {
		t.Errorf("a huge range costs %v allocations, a small one %v", huge, small)
	}
}
