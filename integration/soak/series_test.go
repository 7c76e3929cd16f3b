package soak

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// of makes a series of a sample a minute.
func of(minutes int, value func(minute int) float64) *series {
	s := &series{Name: "n < m", Unit: "MiB", Grow: 0.1, Slack: 5}
	for m := range minutes {
		s.add(time.Duration(m)*time.Minute, value(m))
	}
	return s
}

// The first fifth does not count; what grows by more than a tenth and 5 is not
// flat.
func TestTrend(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		s     *series
		grown float64
		flat  bool
	}{
		"constant":            {of(101, func(int) float64 { return 50 }), 0, true},
		"up at first":         {of(101, func(m int) float64 { return float64(min(m, 20)) }), 0, true},
		"up and down":         {of(101, func(m int) float64 { return 50 + 40*float64(m%2) }), 0, true},
		"down":                {of(101, func(m int) float64 { return 200 - float64(m) }), -80, true},
		"up by a little":      {of(101, func(m int) float64 { return 100 + float64(m)/10 }), 8, true},
		"up by too much":      {of(101, func(m int) float64 { return 100 + float64(m) }), 80, false},
		"up, with a sawtooth": {of(101, func(m int) float64 { return 100 + float64(m) + 30*float64(m%2) }), 80, false},
	} {
		t.Run(name, func(t *testing.T) {
			tr, err := c.s.trend()
			if err != nil {
				t.Fatal(err)
			}
			if math.Abs(tr.Grown-c.grown) > 1 || tr.flat() != c.flat {
				t.Errorf("%+v, flat %v; want grown by %v, flat %v", tr, tr.flat(), c.grown, c.flat)
			}
			if math.Abs(tr.Slope*80*60-tr.Grown) > 1e-6 {
				t.Errorf("slope %v a second does not give %v", tr.Slope, tr.Grown)
			}
		})
	}
	if _, err := of(few, func(int) float64 { return 1 }).trend(); err == nil {
		t.Error("a trend of too few samples")
	}
}

// The plot is XML, whatever names say, with a point for each sample.
func TestPlot(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	text := plot("a & b", []*series{of(30, func(m int) float64 { return float64(m) }), of(40, func(int) float64 { return 0 })})
	points := 0
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, text)
		}
		e, ok := token.(xml.StartElement)
		if !ok || e.Name.Local != "polyline" {
			continue
		}
		for _, a := range e.Attr {
			if a.Name.Local == "points" {
				points += len(strings.Fields(a.Value))
			}
		}
	}
	if points != 70 || strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
		t.Errorf("%d points, want 70:\n%s", points, text)
	}
	for _, want := range []string{"a &amp; b", "n &lt; m, MiB", ">29<", ">29m0s<", ">39m0s<"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in it", want)
		}
	}
}
