package acks

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"pgregory.net/rapid"
)

// model is a Set by the simplest means: a verdict per offset.
type model map[int64]Type

// add is AddRange of the model.
func (m model) add(first, last int64, t Type) bool {
	for o := first; o <= last; o++ {
		if was, ok := m[o]; ok && was != t {
			return false
		}
	}
	for o := first; o <= last; o++ {
		m[o] = t
	}
	return true
}

// fewest counts the batches that are needed: it walks the offsets and starts a
// new batch only where one must start.
func (m model) fewest() int {
	offsets := slices.Sorted(maps.Keys(m))
	runLen := make(map[int64]int) // by offset: length of the run it lies in
	for i := 0; i < len(offsets); {
		j := i + 1
		for j < len(offsets) && offsets[j] == offsets[j-1]+1 && m[offsets[j]] == m[offsets[i]] {
			j++
		}
		for _, o := range offsets[i:j] {
			runLen[o] = j - i
		}
		i = j
	}
	n := 0
	for i, o := range offsets {
		switch {
		case i == 0, offsets[i-1] != o-1: // a hole before it
			n++
		case m[o] != m[o-1] && (runLen[o] >= 10 || runLen[o-1] >= 10): // a long run begins or ended
			n++
		}
	}
	return n
}

func (m model) check(t *rapid.T, s *Set, tp TopicIDPartition) {
	got := model{}
	batches := s.Map()[tp]
	if len(batches) > 0 {
		if err := Validate(tp, batches); err != nil {
			t.Fatalf("own batches refused: %v", err)
		}
	}
	for _, b := range batches {
		for r := range b.Runs() {
			if !got.add(r.First, r.Last, r.Type) {
				t.Fatalf("offset twice in %v", batches)
			}
			if len(b.Types) > 1 && r.Last-r.First+1 >= 10 {
				t.Fatalf("run %v was not cut out of %v", r, b)
			}
		}
		if len(b.Types) > 1 && len(slices.Compact(slices.Clone(b.Types))) == 1 {
			t.Fatalf("%v has one type and a list of them", b)
		}
	}
	if !maps.Equal(got, m) {
		t.Fatalf("holds %v, want %v", got, m)
	}
	if len(batches) != m.fewest() {
		t.Fatalf("%d batches, want %d: %v", len(batches), m.fewest(), batches)
	}
	if s.Len() != len(m) {
		t.Fatalf("Len is %d, want %d", s.Len(), len(m))
	}
}

// runs that follow the rules of a runList, chunks included.
func (l *runList) check(t *rapid.T) {
	var before Run
	n := 0
	for _, chunk := range l.chunks {
		if len(chunk) == 0 || len(chunk) > maxChunk {
			t.Fatalf("a chunk of %d", len(chunk))
		}
		for _, r := range chunk {
			if r.Last < r.First || n > 0 && (r.First <= before.Last || r.First == before.Last+1 && r.Type == before.Type) {
				t.Fatalf("%v follows %v", r, before)
			}
			before, n = r, n+1
		}
	}
}

// TestSetAgainstModel adds single offsets and ranges in any order. Few types
// and few offsets make neighbours, conflicts and alternation common.
func TestSetAgainstModel(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	conflicts, taken := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		space := rapid.SampledFrom([]int64{12, 60, 400}).Draw(t, "offsets")
		var s Set
		m := model{}
		for range rapid.IntRange(1, 80).Draw(t, "adds") {
			first := rapid.Int64Range(0, space).Draw(t, "first")
			last := first + rapid.SampledFrom([]int64{0, 0, 0, 1, 8, 9, 10, 40}).Draw(t, "more")
			typ := rapid.SampledFrom([]Type{Accept, Accept, Reject, Gap}).Draw(t, "type")
			err := s.AddRange(orders, first, last, typ)
			if ok := m.add(first, last, typ); ok != (err == nil) {
				t.Fatalf("[%d, %d] %v: %v, the model says %v", first, last, typ, err, ok)
			}
			if err == nil {
				taken++
				continue
			}
			conflicts++
			var e *Error
			if !errors.As(err, &e) || e.First < first || e.Last > last {
				t.Fatalf("error %v for [%d, %d]", err, first, last)
			}
			for o := e.First; o <= e.Last; o++ {
				if was, ok := m[o]; !ok || was == typ {
					t.Fatalf("%v names offset %d, which is no conflict", err, o)
				}
			}
		}
		m.check(t, &s, orders)
		s.partition(orders).runs.check(t)
	})
	if conflicts == 0 || taken == 0 {
		t.Errorf("%d conflicts, %d adds taken: the test tries nothing", conflicts, taken)
	}
}

// TestManyChunksAgainstModel adds enough runs, out of order, that they spread
// over chunks, and then ranges that swallow runs of several chunks.
func TestManyChunksAgainstModel(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	most := 0
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(maxChunk-2, 4*maxChunk).Draw(t, "runs")
		step := rapid.SampledFrom([]int64{1, 7, n - 1}).Draw(t, "step") // of the walk over the runs
		var s Set
		m := model{}
		add := func(first, last int64, typ Type) {
			err := s.AddRange(orders, first, last, typ)
			if ok := m.add(first, last, typ); ok != (err == nil) {
				t.Fatalf("[%d, %d] %v: %v, the model says %v", first, last, typ, err, ok)
			}
		}
		for start := range step {
			for i := start; i < n; i += step {
				add(3*i, 3*i, Accept)
			}
		}
		most = max(most, len(s.partition(orders).runs.chunks))
		s.partition(orders).runs.check(t)
		for range rapid.IntRange(1, 6).Draw(t, "swallows") {
			first := rapid.Int64Range(0, 3*n).Draw(t, "first")
			last := first + rapid.Int64Range(0, 3*n).Draw(t, "more")
			add(first, last, rapid.SampledFrom([]Type{Accept, Accept, Reject}).Draw(t, "type"))
			s.partition(orders).runs.check(t)
		}
		m.check(t, &s, orders)
	})
	if most < 3 {
		t.Errorf("at most %d chunks: the test tries nothing", most)
	}
}

// TestMergeAgainstModel: merging is adding, and a conflict changes nothing.
func TestMergeAgainstModel(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	refused, merged := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (*Set, model) {
			s, m := &Set{}, model{}
			for range rapid.IntRange(0, 12).Draw(t, name) {
				first := rapid.Int64Range(0, 60).Draw(t, "first")
				last := first + rapid.SampledFrom([]int64{0, 2, 12}).Draw(t, "more")
				typ := rapid.SampledFrom([]Type{Accept, Accept, Accept, Reject}).Draw(t, "type")
				if m.add(first, last, typ) {
					if err := s.AddRange(orders, first, last, typ); err != nil {
						t.Fatal(err)
					}
				}
			}
			return s, m
		}
		s, m := draw("own")
		o, om := draw("other")
		both := maps.Clone(m)
		ok := true
		for offset, typ := range om {
			ok = ok && both.add(offset, offset, typ)
		}
		var err error
		if rapid.Bool().Draw(t, "as batches") && len(om) > 0 {
			err = s.AddBatches(orders, o.Map()[orders])
		} else {
			err = s.Merge(o)
		}
		if ok != (err == nil) {
			t.Fatalf("merge gave %v, the model says %v", err, ok)
		}
		om.check(t, o, orders)
		if !ok {
			refused++
			m.check(t, s, orders)
			return
		}
		merged++
		both.check(t, s, orders)
	})
	if refused == 0 || merged == 0 {
		t.Errorf("%d refused, %d merged: the test tries nothing", refused, merged)
	}
}

// TestBatchesRoundTrip: batches given back to a Set make the same batches.
func TestBatchesRoundTrip(t *testing.T) {
	testkit.Deadline(t, 120*time.Second)
	rapid.Check(t, func(t *rapid.T) {
		var s, back Set
		m := model{}
		for o := range rapid.Int64Range(1, 80).Draw(t, "offsets") {
			if typ := rapid.SampledFrom([]Type{-1, Accept, Accept, Accept, Reject, Gap}).Draw(t, "type"); typ >= 0 {
				m[o] = typ
				if err := s.Add(orders, o, typ); err != nil {
					t.Fatal(err)
				}
			}
		}
		for tp, batches := range s.Partitions() {
			if err := back.AddBatches(tp, batches); err != nil {
				t.Fatal(err)
			}
		}
		m.check(t, &back, orders)
	})
}
