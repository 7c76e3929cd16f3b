package shareconsumer

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A broker fails whatever names one of the bad topics: the others go on after a
// bounded number of failures, and what recovers comes back.
func TestSieve(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	ids := func(ns ...byte) (out []topicID) {
		for _, n := range ns {
			out = append(out, topicID{n})
		}
		return out
	}
	for name, c := range map[string]struct {
		topics, bad []topicID
		failures    int
		left        []topicID
	}{
		"none":           {ids(1, 2, 3), nil, 0, ids(1, 2, 3)},
		"one of two":     {ids(1, 2), ids(2), sievePatience + 1, ids(1)},
		"one of eight":   {ids(1, 2, 3, 4, 5, 6, 7, 8), ids(3), sievePatience + 3, ids(1, 2, 4, 5, 6, 7, 8)},
		"two of five":    {ids(1, 2, 3, 4, 5), ids(1, 5), sievePatience + 5, ids(2, 3, 4)},
		"the only one":   {ids(1), ids(1), 12, ids(1)},
		"all of several": {ids(1, 2), ids(1, 2), 12, ids(1, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			var v sieve
			failures := 0
			for range 12 {
				ask := v.next(c.topics, now)
				if len(ask) == 0 {
					t.Fatal("nothing is asked for")
				}
				if slices.ContainsFunc(ask, func(id topicID) bool { return slices.Contains(c.bad, id) }) {
					v.failed(ask, now)
					failures++
				} else {
					v.passed()
				}
			}
			if failures != c.failures {
				t.Errorf("%d failures, want %d", failures, c.failures)
			}
			for len(v.trials) > 0 { // where all are bad
				v.failed(v.next(c.topics, now), now)
			}
			if got := v.next(c.topics, now); !slices.Equal(got, c.left) {
				t.Errorf("left %v, want %v", got, c.left)
			}
			if got := v.next(c.topics, now.Add(sievedFor)); !slices.Equal(got, c.topics) || !v.idle() {
				t.Errorf("later %v, want %v", got, c.topics)
			}
		})
	}
	t.Run("what is not wanted any more", func(t *testing.T) {
		now := time.Now()
		v := sieve{trials: [][]topicID{ids(1, 2), ids(3)}, out: map[topicID]time.Time{{4}: now.Add(time.Hour)}}
		if got := v.next(ids(3, 5), now); !slices.Equal(got, ids(3)) {
			t.Errorf("first %v", got)
		}
		if v.passed(); !slices.Equal(v.next(ids(3, 5), now), ids(3, 5)) || !v.idle() {
			t.Errorf("then %v, %+v", v.next(ids(3, 5), now), v)
		}
	})
}
