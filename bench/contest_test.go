package main

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// scripted gives a way that takes these times for 100 each, one a run, and
// notes that it ran.
func scripted(ran *[]string, name string, took ...time.Duration) way {
	return way{name, func(context.Context) (lap, error) {
		*ran = append(*ran, name)
		l := lap{100, took[0]}
		took = took[1:]
		return l, nil
	}}
}

func TestHold(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	var ran []string
	// The machine is ten times slower in the second round that counts.
	c := contest{"work", []way{
		scripted(&ran, "a", time.Hour, time.Second, 10*time.Second, time.Second),
		scripted(&ran, "b", time.Hour, 500*time.Millisecond, 5*time.Second, 250*time.Millisecond),
	}}
	s, err := c.hold(ctx, 3)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "b", "a", "a", "b", "b", "a"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
	if got, want := s.ratios(1), []float64{2, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("ratios %v, want %v", got, want)
	}
	var out bytes.Buffer
	write(&out, []standing{s})
	for _, want := range []string{
		"work",
		"a 100 10 100 1.00 1.00 1.00",
		"b 200 20 400 2.00 2.00 4.00",
	} {
		if got := strings.Join(strings.Fields(out.String()), " "); !strings.Contains(got, want) {
			t.Errorf("%q is not in the table:\n%s", want, &out)
		}
	}
}

func TestHoldEndsWithWhatWentWrong(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	broken := errors.New("broken")
	for _, c := range []struct {
		name string
		lap  lap
		err  error
		want string
	}{
		{"an error", lap{100, time.Second}, broken, "work: b: broken"},
		{"nothing done", lap{0, time.Second}, nil, "work: b: did 0 in 1s, so nothing was measured"},
		{"no time", lap{100, 0}, nil, "work: b: did 100 in 0s, so nothing was measured"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var ran []string
			b := way{"b", func(context.Context) (lap, error) { return c.lap, c.err }}
			_, err := contest{"work", []way{scripted(&ran, "a", time.Second, time.Second), b}}.hold(ctx, 1)
			if err == nil || err.Error() != c.want || c.err != nil && !errors.Is(err, c.err) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

func TestSpread(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		figures []float64
		want    spread
	}{
		{[]float64{7}, spread{7, 7, 7}},
		{[]float64{3, 1, 2}, spread{2, 1, 3}},
		{[]float64{4, 1, 3, 2}, spread{2.5, 1, 4}},
	} {
		if got := spreadOf(c.figures); got != c.want {
			t.Errorf("%v: %+v, want %+v", c.figures, got, c.want)
		}
	}
}
