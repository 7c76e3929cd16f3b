package fault

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// A When is due where it says; one that was due and had to wait takes the next.
func TestWhen(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tc := range []struct {
		name string
		when When
		busy []int // another fault has these
		want []int
		text string
	}{
		{"zero", When{}, nil, []int{1}, "number 1"},
		{"third", When{Nth: 3}, nil, []int{3}, "number 3"},
		{"twice", When{Nth: 2, Times: 2}, nil, []int{2, 3}, "number 2 and those after, 2 times"},
		{"each third", When{Nth: 2, Every: 3, Times: Always}, nil, []int{2, 5, 8}, "number 2 and each 3. after"},
		{"each third, twice", When{Nth: 2, Every: 3, Times: 2}, nil, []int{2, 5}, "number 2 and each 3. after, 2 times"},
		{"taken", When{}, []int{1, 2}, []int{3}, "number 1"},
		{"taken, more to come", When{Nth: 2, Every: 4, Times: Always}, []int{2}, []int{3, 6}, "number 2 and each 4. after"},
	} {
		w := tc.when.withDefaults()
		if got := w.String(); got != tc.text {
			t.Errorf("%s: %q, want %q", tc.name, got, tc.text)
		}
		c := counter{When: w}
		var got []int
		for i := range 9 {
			if c.match() && !slices.Contains(tc.busy, i+1) {
				c.fire()
				got = append(got, i+1)
			}
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: fired at %v, want %v", tc.name, got, tc.want)
		}
	}
}

// Chance is drawn from the seed, about as often as it says.
func TestChance(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	fired := func(seed uint64) (at []int) {
		c := counter{When: When{Chance: 0.25, Times: Always}.withDefaults(), dice: rand.New(rand.NewPCG(seed, 0))}
		for i := range 1000 {
			if c.match() {
				c.fire()
				at = append(at, i)
			}
		}
		return at
	}
	one := fired(1)
	if n := len(one); n < 180 || n > 320 {
		t.Errorf("fired %d times of 1000 with chance 0.25", n)
	}
	if !slices.Equal(one, fired(1)) {
		t.Error("the same seed fired differently")
	}
	if slices.Equal(one, fired(2)) {
		t.Error("another seed fired in the same places")
	}
}

// What counts as having fired.
func TestEnough(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, tc := range []struct {
		when  When
		fired int
		want  bool
	}{
		{When{}, 0, false}, {When{}, 1, true},
		{When{Times: 3}, 2, false}, {When{Times: 3}, 3, true},
		{When{Times: Always}, 0, false}, {When{Times: Always}, 1, true},
		{When{Times: 3, Chance: 0.5}, 0, false}, {When{Times: 3, Chance: 0.5}, 1, true},
	} {
		if got := tc.when.withDefaults().enough(tc.fired); got != tc.want {
			t.Errorf("%+v fired %d times: %v", tc.when, tc.fired, got)
		}
	}
}
