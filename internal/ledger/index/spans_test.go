package index

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Against a map of all offsets, whatever is added and dropped.
func TestSpansAgainstMap(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	rapid.Check(t, func(t *rapid.T) {
		const size = 40
		var s spans
		in := make(map[int64]bool)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				first := rapid.Int64Range(0, size-1).Draw(t, "first")
				last := rapid.Int64Range(first-1, min(first+6, size-1)).Draw(t, "last")
				s.add(first, last)
				for o := first; o <= last; o++ {
					in[o] = true
				}
			},
			"dropBelow": func(t *rapid.T) {
				floor := rapid.Int64Range(-1, size+2).Draw(t, "floor")
				s.dropBelow(floor)
				for o := range in {
					if o < floor {
						delete(in, o)
					}
				}
			},
			"": func(t *rapid.T) {
				var want spans
				for o := range int64(size) {
					switch n := len(want); {
					case !in[o]:
					case n > 0 && want[n-1].Last == o-1:
						want[n-1].Last = o
					default:
						want = append(want, entry.Range{First: o, Last: o})
					}
				}
				if len(s) != len(want) {
					t.Fatalf("%v, want %v", s, want)
				}
				for i := range s {
					if s[i] != want[i] {
						t.Fatalf("%v, want %v", s, want)
					}
				}
				for o := range int64(size) {
					i := s.seek(o)
					if got := i < len(s) && s[i].First <= o; got != in[o] {
						t.Fatalf("%v: %d found %v", s, o, got)
					}
				}
			},
		})
	})
}
