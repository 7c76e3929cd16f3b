package processor

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

func rowOf(n int) *row {
	items := make([]*item, n)
	for i := range items {
		items[i] = &item{bytes: i}
	}
	return newRow(time.Now(), items, 100)
}

func TestNextRow(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tc := range []struct {
		last, n, decided int
		quick            bool
		want             int
	}{
		{1, 1, 1, true, 2}, // quick ones grow
		{2, 2, 2, true, 4},
		{64, 64, 64, true, 64},
		{16, 3, 3, true, 16}, // there were no more
		{1, 1, 1, false, 1},  // slow ones do not
		{16, 16, 5, false, 5},
		{16, 16, 5, true, 5}, // full of outputs
		{16, 16, 16, false, 16},
		{16, 16, 0, false, 1}, // a goroutine that ended before it began
	} {
		if got := nextRow(tc.last, tc.n, tc.decided, tc.quick); got != tc.want {
			t.Errorf("after %d of %d decided, at most %d, quick %v: %d, want %d", tc.decided, tc.n, tc.last, tc.quick, got, tc.want)
		}
	}
}

// A row ends by itself when all is decided, when its time is over, its outputs are
// many, or its context has ended; but one is always begun.
func TestRowEnds(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	ended, end := context.WithCancel(t.Context())
	end()
	large := decision{outputs: []*kgo.Record{nil, {Value: make([]byte, 60)}}}
	for name, tc := range map[string]struct {
		ctx  context.Context
		late bool
		d    decision
		want int // of 3 decided
	}{
		"all":           {ctx: t.Context(), want: 3},
		"context ended": {ctx: ended, want: 1},
		"late":          {ctx: t.Context(), late: true, want: 1},
		"many outputs":  {ctx: t.Context(), d: large, want: 2},
	} {
		t.Run(name, func(t *testing.T) {
			r := rowOf(3)
			r.until = r.began.Add(time.Hour)
			if tc.late {
				r.until = r.began
			}
			for it, ok := r.begin(tc.ctx); ok; it, ok = r.begin(tc.ctx) {
				if it != r.items[len(r.decided)] {
					t.Errorf("item %d is not the next", it.bytes)
				}
				if _, alone := r.decide(tc.d); alone {
					t.Error("the loop cannot have given it up")
				}
			}
			rest := r.rest()
			if len(rest) != tc.want {
				t.Errorf("%d decided, want %d", len(rest), tc.want)
			}
			for i, d := range rest {
				if !slices.Equal(d.records, []int{i}) {
					t.Errorf("decision %d is of %v", i, d.records)
				}
			}
			if quick := r.quick(); quick == tc.late {
				t.Errorf("quick: %v", quick)
			}
			if _, _, _, ok := r.apart(); ok {
				t.Error("a row that is over was taken apart")
			}
		})
	}
}

// Taken apart, a row keeps the one under way, whose end is told for itself, and
// begins no more; one that was between two keeps the next, undecided.
func TestRowTakenApart(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	own := errors.New("own")
	for _, between := range []bool{false, true} {
		r := rowOf(4)
		r.until = r.began.Add(time.Hour)
		for range 2 {
			r.begin(t.Context())
			r.decide(decision{})
		}
		if !between {
			r.begin(t.Context())
		}
		decided, left, began, ok := r.apart()
		if !ok || len(decided) != 2 || left != 2 || began != r.began {
			t.Fatalf("between %v: %d decided, item %d left since %v, %v", between, len(decided), left, began, ok)
		}
		if _, _, _, ok := r.apart(); ok {
			t.Errorf("between %v: taken apart twice", between)
		}
		if !between {
			if _, alone := r.decide(decision{err: own}); !alone {
				t.Error("the loop may have given it up")
			}
		}
		if _, more := r.begin(t.Context()); more {
			t.Errorf("between %v: another was begun", between)
		}
		rest := r.rest()
		switch {
		case between && len(rest) != 0:
			t.Errorf("what was not begun was decided: %v", rest)
		case !between && (len(rest) != 1 || !slices.Equal(rest[0].records, []int{0}) || !errors.Is(rest[0].err, own)):
			t.Errorf("the one under way: %v", rest)
		}
	}
	r := rowOf(1)
	r.begin(t.Context())
	if _, alone := r.decide(decision{}); !alone {
		t.Error("a row of one may be given up from the start")
	}
}
