package quake

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sharetxn/sharetxn/examples/data"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// event is a line of the feed with the given magnitude and type.
func event(mag, typ string) string {
	return `{"id":"x1","properties":{"mag":` + mag + `,"type":` + typ + `,"time":5},"geometry":{"coordinates":[-122.2,46.2,3]},"new":{"a":1}}`
}

const quake = `"earthquake"`

func TestTransform(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	out := func(mag, class string) string {
		return `{"event":"x1","time":5,"magnitude":` + mag + `,"class":"` + class + `","cell":"40/-130"}`
	}
	for name, c := range map[string]struct{ line, enriched, alert, reason string }{
		"small":              {line: event("0.31", quake), enriched: out("0.31", "micro")},
		"zero":               {line: event("0", quake), enriched: out("0", "micro")},
		"negative":           {line: event("-0.5", quake), enriched: out("-0.5", "micro")},
		"just below alert":   {line: event("4.49", quake), enriched: out("4.49", "light")},
		"exactly alert":      {line: event("4.5", quake), enriched: out("4.5", "light"), alert: `{"event":"x1","magnitude":4.5,"cell":"40/-130"}`},
		"other type":         {line: event("5", `"explosion"`), reason: `type "explosion"`},
		"type of other case": {line: event("5", `"Earthquake"`), reason: `type "Earthquake"`},
		"type is a number":   {line: event("5", "7"), reason: `type ""`},
		"null magnitude":     {line: event("null", quake), reason: "no magnitude"},
		"quoted magnitude":   {line: event(`"2.5"`, quake), reason: "no magnitude"},
		"text magnitude":     {line: event(`"big"`, quake), reason: "no magnitude"},
		"absurd magnitude":   {line: event("1e999", quake), reason: "no magnitude"},
		"no magnitude":       {line: `{"id":"x1","properties":{"type":"earthquake"}}`, reason: "no magnitude"},
		"name of other case": {line: `{"id":"x1","properties":{"type":"earthquake","Mag":5}}`, reason: "no magnitude"},
		"no properties":      {line: `{"id":"x1"}`, reason: `type ""`},
		"odd properties":     {line: `{"id":"x1","properties":[1]}`, reason: `type ""`},
		"no JSON":            {line: "hello", reason: "not a JSON object"},
		"empty":              {line: "", reason: "not a JSON object"},
		"null":               {line: "null", reason: "not a JSON object"},
		"a list":             {line: "[1]", reason: "not a JSON object"},
		"cut short":          {line: event("5", quake)[:40], reason: "not a JSON object"},
		"two objects":        {line: event("5", quake) + event("5", quake), reason: "not a JSON object"},
		"bad UTF-8":          {line: strings.Replace(event("5", quake), "x1", "\xff", 1), reason: "not a JSON object"},
		"spaces around":      {line: " " + event("1", quake) + "\t", enriched: out("1", "micro")},
		"no coordinates":     {line: `{"id":"y","properties":{"mag":1,"type":"earthquake"}}`, enriched: `{"event":"y","magnitude":1,"class":"micro","cell":"none"}`},
		"null coordinates":   {line: `{"id":"y","properties":{"mag":1,"type":"earthquake"},"geometry":{"coordinates":[null,null]}}`, enriched: `{"event":"y","magnitude":1,"class":"micro","cell":"none"}`},
		"other members odd":  {line: `{"id":7,"properties":{"mag":1,"type":"earthquake","time":"now","place":{}},"geometry":3}`, enriched: `{"event":"","magnitude":1,"class":"micro","cell":"none"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := Transform([]byte(c.line))
			if string(r.Enriched) != c.enriched || string(r.Alert) != c.alert || r.Reason != c.reason {
				t.Fatalf("got %s, %s, %q", r.Enriched, r.Alert, r.Reason)
			}
			if r.Rejected() != (c.enriched == "") {
				t.Fatal("rejected and enriched at once, or neither")
			}
		})
	}
}

// Whatever is long in a line, what it becomes stays short, so that it fits into
// a record; and it is whole characters.
func TestTransformBounds(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	const huge = 300_000
	long := strings.Repeat("ü", huge)
	for name, c := range map[string]struct {
		line   string
		reason string // beginning; empty: enriched
	}{
		"id":        {line: strings.Replace(event("5", quake), "x1", long, 1), reason: "id too long"},
		"type":      {line: event("5", `"`+long+`"`), reason: `type "ü`},
		"place":     {line: strings.Replace(event("5", quake), `"time"`, `"place":"`+strings.Repeat("<", huge)+`","time"`, 1)},
		"not JSON":  {line: long, reason: "not a JSON object"},
		"elsewhere": {line: strings.Replace(event("5", quake), `"a":1`, `"a":"`+long+`"`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			if len(c.line) < huge {
				t.Fatal("the line is not long")
			}
			r := Transform([]byte(c.line))
			if !strings.HasPrefix(r.Reason, c.reason) || r.Rejected() != (c.reason != "") {
				t.Errorf("reason %.40q", r.Reason)
			}
			if n := len(r.Key) + len(r.Enriched) + len(r.Reason); n > 100_000 {
				t.Errorf("%d bytes", n)
			}
			if !utf8.Valid(r.Key) || !utf8.ValidString(r.Reason) || (r.Enriched != nil && !json.Valid(r.Enriched)) {
				t.Error("cut within a character")
			}
		})
	}
}

func TestClass(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		mag  float64
		want string
	}{
		{-1, "micro"}, {2.99, "micro"}, {3, "minor"}, {4, "light"}, {4.99, "light"}, {5, "moderate"}, {6, "strong"}, {7, "major"}, {7.99, "major"}, {8, "great"}, {12, "great"},
	} {
		if got := Class(c.mag); got != c.want {
			t.Errorf("magnitude %v is %s, want %s", c.mag, got, c.want)
		}
	}
}

func TestCell(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		lon, lat float64
		want     string
	}{
		{0, 0, "0/0"}, {-0.1, -0.1, "-10/-10"}, {9.99, 10, "10/0"}, {179.9, 89.9, "80/170"},
		{180, 90, "80/170"}, {-180, -90, "-90/-180"}, {180.1, 0, "none"}, {0, -90.1, "none"},
	} {
		if got := Cell([]*float64{&c.lon, &c.lat}); got != c.want {
			t.Errorf("%v, %v lies in %s, want %s", c.lon, c.lat, got, c.want)
		}
	}
	one := 1.0
	for _, at := range [][]*float64{nil, {&one}, {nil, &one}, {&one, nil}} {
		if got := Cell(at); got != "none" {
			t.Errorf("%v lies in %s", at, got)
		}
	}
}

// Any input gives exactly one of output and reason, and twice the same.
func FuzzTransform(f *testing.F) {
	for _, s := range []string{event("5", quake), event("null", quake), event("1", `"ice quake"`), "", "{}", `{"properties":{"mag":-0,"type":"earthquake"}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		r, again := Transform(line), Transform(bytes.Clone(line))
		switch {
		case r.Rejected() == (r.Enriched != nil), r.Rejected() && r.Alert != nil:
			t.Fatalf("%+v", r)
		case !bytes.Equal(r.Key, again.Key) || !bytes.Equal(r.Enriched, again.Enriched) || !bytes.Equal(r.Alert, again.Alert) || r.Reason != again.Reason:
			t.Fatalf("%+v and %+v", r, again)
		case r.Enriched != nil && !json.Valid(r.Enriched), r.Alert != nil && !json.Valid(r.Alert):
			t.Fatalf("not JSON: %s, %s", r.Enriched, r.Alert)
		}
	})
}

// The bundled figures are facts about the data, told in shared places: README,
// CI, the issue.
func TestBundledFigures(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	var accepted, alerts, rejected int
	for line := range bytes.Lines(data.Earthquakes) {
		r := Transform(bytes.TrimRight(line, "\n"))
		switch {
		case r.Rejected():
			rejected++
		case r.Alert != nil:
			alerts++
			accepted++
		default:
			accepted++
		}
	}
	if accepted != 1679 || alerts != 85 || rejected != 28 {
		t.Fatalf("accepted %d, alerts %d, rejected %d", accepted, alerts, rejected)
	}
}
