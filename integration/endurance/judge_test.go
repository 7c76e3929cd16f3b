package endurance

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestJudge(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	type life struct {
		log    []entry
		killed bool
	}
	try := func(first, last int64, n uint8) entry { return entry{tried, n, 0, first, last} }
	told := func(k kind, first, last int64) entry { return entry{k, 0, 0, first, last} }
	for _, c := range []struct {
		name  string
		lives []life
		want  verdict // of offsets 0 to 2
	}{
		{"all accepted", []life{{[]entry{try(0, 2, 1), told(accepted, 0, 2)}, false}}, verdict{Accepted: 3, Deliveries: 1}},
		{"one by nobody", []life{{[]entry{try(0, 1, 1), told(accepted, 0, 1)}, false}}, verdict{Accepted: 2, Deliveries: 1, Lost: []string{"0/2"}}},
		{"refused, and nobody else", []life{{[]entry{try(0, 2, 1), told(refused, 0, 0), told(accepted, 1, 2)}, false}}, verdict{Accepted: 2, Deliveries: 1, Lost: []string{"0/0"}}},
		{"refused, then by another", []life{
			{[]entry{try(0, 2, 1), told(refused, 0, 0), told(accepted, 1, 2)}, false},
			{[]entry{try(0, 0, 2), told(accepted, 0, 0)}, false},
		}, verdict{Accepted: 3, Deliveries: 2}},
		{"under way when killed", []life{{[]entry{try(0, 2, 1), told(accepted, 0, 1)}, true}}, verdict{Accepted: 2, Unproven: 1, Dead: 1, Deliveries: 1}},
		{"never told, and not killed", []life{{[]entry{try(0, 2, 1), told(accepted, 0, 1)}, false}}, verdict{Accepted: 2, Deliveries: 1, Lost: []string{"0/2"}}},
		{"refused, then killed", []life{{[]entry{try(0, 2, 1), told(accepted, 0, 1), told(refused, 2, 2)}, true}}, verdict{Accepted: 2, Deliveries: 1, Lost: []string{"0/2"}}},
		{"an answer lost", []life{{[]entry{try(0, 2, 1), told(accepted, 0, 1), told(unknown, 2, 2)}, false}}, verdict{Accepted: 2, Unproven: 1, Deliveries: 1}},
		{"an answer lost, then accepted", []life{
			{[]entry{try(0, 2, 1), told(unknown, 0, 2)}, false},
			{[]entry{try(0, 2, 2), told(accepted, 0, 2)}, false},
		}, verdict{Accepted: 3, Deliveries: 2}},
		{"twice", []life{
			{[]entry{try(0, 2, 1), told(accepted, 0, 2)}, false},
			{[]entry{try(1, 1, 4), told(accepted, 1, 1)}, true},
		}, verdict{Accepted: 3, Duplicates: 1, Deliveries: 4}},
		{"what nobody produced", []life{{[]entry{try(0, 3, 1), told(accepted, 0, 3)}, false}}, verdict{Accepted: 3, Strays: 2, Deliveries: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJudge(1)
			for o := range int64(3) {
				j.produced(0, o)
			}
			for _, l := range c.lives {
				j.member(l.log, l.killed)
			}
			c.want.Produced = 3
			if got := j.verdict(); !reflect.DeepEqual(got, c.want) || got.LostCount() != len(c.want.Lost) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A log is read back as it was written, but for an end that was torn off.
func TestLog(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	name := filepath.Join(t.TempDir(), "log")
	l, err := createLog(name)
	if err != nil {
		t.Fatal(err)
	}
	want := []entry{{tried, 9, 5, 1 << 40, 1<<40 + 3}, {accepted, 0, 0, 0, 0}, {unknown, 0, 1, 7, 8}}
	if err := l.write(want...); err != nil {
		t.Fatal(err)
	}
	if err := l.close(); err != nil {
		t.Fatal(err)
	}
	got, err := readLog(name)
	if err != nil || !slices.Equal(got, want) {
		t.Fatalf("read %v, %v; want %v", got, err, want)
	}
	if err := os.Truncate(name, 3*entrySize-1); err != nil {
		t.Fatal(err)
	}
	if got, err := readLog(name); err != nil || !slices.Equal(got, want[:2]) {
		t.Errorf("torn: read %v, %v; want %v", got, err, want[:2])
	}
	if err := os.WriteFile(name, make([]byte, entrySize), 0o644); err != nil {
		t.Fatal(err)
	}
	if got, err := readLog(name); err == nil {
		t.Errorf("no log was read as %v", got)
	}
	if _, err := createLog(name); err == nil {
		t.Error("a log was written over")
	}
}

func TestFlat(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	steady := make([]sample, 30)
	for i := range steady {
		steady[i] = sample{20 << 20, 30 << 20}
	}
	with := func(change func([]sample)) []sample {
		s := slices.Clone(steady)
		change(s)
		return s
	}
	for _, c := range []struct {
		name    string
		samples []sample
		ok      bool
	}{
		{"steady", steady, true},
		{"one peak", with(func(s []sample) { s[25].alloc = 90 << 20 }), true},
		{"grows", with(func(s []sample) {
			for i := range s {
				s[i].alloc += uint64(i) << 20
			}
		}), false},
		{"too large", with(func(s []sample) { s[3].inuse = 300 << 20 }), false},
		{"too few", steady[:8], false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := flat(c.samples); (err == nil) != c.ok {
				t.Errorf("flat: %v, want ok %v", err, c.ok)
			}
		})
	}
}
