package faults

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Each level plans every kind as often as it says, within the bounds.
func TestPlan(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for level, each := range map[Level]int{Off: 0, Light: 1, Heavy: 3} {
		for seed := range uint64(50) {
			p := New(level, seed, 1707)
			for k, x := range p.Tally() {
				if x.Planned != each || x.Fired != 0 {
					t.Fatalf("%v, seed %d: %v is planned %d times, want %d", level, seed, Kind(k), x.Planned, each)
				}
			}
			for _, s := range p.Strikes {
				if s.Nth < 1 || s.Nth > maxNth || s.Hops < 1 || s.Hops > maxHops || s.Kind.Handler() {
					t.Fatalf("%v, seed %d: %+v", level, seed, s)
				}
			}
			for i := range p.Handler {
				if i < 0 || i >= 1707 {
					t.Fatalf("%v, seed %d: the handler fails at record %d", level, seed, i)
				}
			}
		}
	}
}

// The seed decides everything.
func TestSeed(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	one := New(Heavy, 1, 1707)
	if again := New(Heavy, 1, 1707); !reflect.DeepEqual(one, again) {
		t.Error("the same seed gives another plan")
	}
	two := New(Heavy, 2, 1707)
	if slices.Equal(one.Strikes, two.Strikes) || maps.Equal(one.Handler, two.Handler) {
		t.Error("another seed gives the same plan")
	}
}

// A short input has fewer handler faults, and the same strikes.
func TestShortInput(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for records, want := range map[int]int{0: 0, 1: 1, 2: 2, 5: 5, 6: 6, 7: 6} {
		p := New(Heavy, 1, records)
		if len(p.Handler) != want || !slices.Equal(p.Strikes, New(Heavy, 1, 1707).Strikes) {
			t.Errorf("%d records: the handler fails %d times, want %d", records, len(p.Handler), want)
		}
	}
}

func TestTally(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	got := New(Light, 1, 1).Tally() // no record for the handler to panic on
	for _, k := range Kinds() {
		if k != Zombie && got[k].Planned > 0 {
			got[k].Fired = 1
		}
	}
	if want := []string{"handler-panic 0 of 1", "zombie 0 of 1"}; !slices.Equal(got.Unfired(Light), want) {
		t.Errorf("unfired %q, want %q", got.Unfired(Light), want)
	}
	const text = "handler-error 1/1, killed 1/1, zombie 0/1, lost-stage-answer 1/1, lost-endtxn-answer 1/1, leader-move 1/1, paused 1/1"
	if got.String() != text {
		t.Errorf("text %q", got.String())
	}
	if off := New(Off, 1, 9).Tally(); off.Unfired(Off) != nil || off.String() != "none" {
		t.Errorf("off: %q, %q", off.Unfired(Off), off.String())
	}
}

// Of what is left out nothing is planned or asked; all else stays as it was.
func TestWithout(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	full := New(Heavy, 1, 1707)
	p := full.Without(LeaderMove)
	if len(full.Strikes) != 18 || len(p.Strikes) != 15 || slices.ContainsFunc(p.Strikes, func(s Strike) bool { return s.Kind == LeaderMove }) || !maps.Equal(p.Handler, full.Handler) {
		t.Fatalf("%d strikes, of %d", len(p.Strikes), len(full.Strikes))
	}
	got := p.Tally()
	for _, k := range Kinds() {
		got[k].Fired = got[k].Planned
	}
	if out := got.Unfired(Heavy, p.Left...); out != nil {
		t.Errorf("unfired %q", out)
	}
	if out := got.Unfired(Heavy); !slices.Equal(out, []string{"leader-move 0 of 3"}) {
		t.Errorf("nothing left out: unfired %q", out)
	}
}

func TestLevel(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, want := range []Level{Off, Light, Heavy} {
		var l Level
		if err := l.Set(want.String()); err != nil || l != want {
			t.Errorf("%v: %v, %v", want, l, err)
		}
	}
	var l Level
	if err := l.Set("hard"); err == nil || l != Light {
		t.Errorf("hard: %v, %v", l, err)
	}
}
