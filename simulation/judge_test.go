package simulation

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// h0 has one output on out and two on side, x1 is poison.
func TestCompare(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	values := []string{"h0", "x1"}
	good := expected(values)
	if len(outputs("h0")) != 3 || len(good) != 3 {
		t.Fatalf("h0 and x1 become %v: the cases below are of something else", good)
	}
	for _, tt := range []struct {
		name  string
		spoil func(published)
		may   bool
		again int // that h0 is to be done once more
		want  []string
	}{
		{name: "good", spoil: func(published) {}},
		{name: "an output is lost", spoil: func(p published) { delete(p, spot{"out", "h0"}) }, want: []string{"lost: out/h0 is not there"}},
		{name: "one of two is lost", spoil: func(p published) { p[spot{"side", "h0"}] = 1 }, want: []string{"torn: side/h0 is there 1 times, and the record was published 1 times"}},
		{name: "a dead letter is lost", spoil: func(p published) { delete(p, spot{"dead", "x1"}) }, want: []string{"lost: dead/x1 is not there"}},
		{name: "all of a record twice", spoil: func(p published) { p[spot{"out", "h0"}], p[spot{"side", "h0"}] = 2, 4 }, want: []string{
			"duplicate: out/h0 is there 2 times, want 1", "duplicate: side/h0 is there 4 times, want 2",
		}},
		{name: "the same where it may", spoil: func(p published) { p[spot{"out", "h0"}], p[spot{"side", "h0"}] = 2, 4 }, may: true},
		{name: "the same, since it was to be done again", spoil: func(p published) { p[spot{"out", "h0"}], p[spot{"side", "h0"}] = 2, 4 }, again: 1},
		{name: "not done again", spoil: func(published) {}, again: 1, want: []string{
			"lost: out/h0 is there 1 times, want 2", "lost: side/h0 is there 2 times, want 4",
		}},
		{name: "done again twice", spoil: func(p published) { p[spot{"out", "h0"}], p[spot{"side", "h0"}] = 3, 6 }, again: 1, want: []string{
			"duplicate: out/h0 is there 3 times, want 2", "duplicate: side/h0 is there 6 times, want 4",
		}},
		{name: "passed over", spoil: func(p published) { delete(p, spot{"out", "h0"}); delete(p, spot{"side", "h0"}) }, again: -1},
		{name: "half of it twice where it may", spoil: func(p published) { p[spot{"out", "h0"}] = 2 }, may: true, want: []string{
			"torn: side/h0 is there 2 times, and the record was published 2 times",
		}},
		{name: "lost where it may be twice", spoil: func(p published) { delete(p, spot{"dead", "x1"}) }, may: true, want: []string{"lost: dead/x1 is not there"}},
		{name: "a record that was accepted is dead", spoil: func(p published) { p[spot{"dead", "h0"}] = 1 }, want: []string{"stray: dead/h0 is there 1 times, and no record makes it"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := maps.Clone(good)
			tt.spoil(got)
			due := []fed{{value: "h0", times: 1 + tt.again}, {value: "x1", times: 1}}
			if wrong := compare(due, got, func(string) bool { return tt.may }); !slices.Equal(wrong, tt.want) {
				t.Errorf("found %q, want %q", wrong, tt.want)
			}
		})
	}
}

func TestPromised(t *testing.T) {
	testkit.Deadline(t, time.Minute)
	for _, tt := range []struct {
		promise
		broken bool
	}{
		{promise{sharetxn.Committed, 3, 3}, false},
		{promise{sharetxn.Committed, 3, 2}, true},
		{promise{sharetxn.Committed, 3, 0}, true},
		{promise{sharetxn.Committed, 0, 0}, false},
		{promise{sharetxn.Aborted, 3, 0}, false},
		{promise{sharetxn.Aborted, 3, 1}, true},
		{promise{sharetxn.Unknown, 3, 3}, false},
		{promise{sharetxn.Unknown, 3, 0}, false},
		{promise{sharetxn.Unknown, 3, 1}, true},
	} {
		if wrong := promised([]promise{tt.promise}); len(wrong) > 0 != tt.broken {
			t.Errorf("%+v: found %q, want broken %v", tt.promise, wrong, tt.broken)
		}
	}
}
