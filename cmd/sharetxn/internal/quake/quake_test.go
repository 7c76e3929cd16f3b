package quake

import (
	"bytes"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/examples/data"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestTransform(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	event := func(mag, typ string) string {
		return `{"id":"x1","properties":{"mag":` + mag + `,"type":"` + typ + `","time":5},"geometry":{"coordinates":[-122.2,46.2,3]},"new":{"a":1}}`
	}
	for name, c := range map[string]struct{ line, enriched, alert, reason string }{
		"small":            {line: event("0.31", "earthquake"), enriched: `{"event":"x1","time":5,"magnitude":0.31,"class":"micro","cell":"40/-130"}`},
		"just below alert": {line: event("4.49", "earthquake"), enriched: `{"event":"x1","time":5,"magnitude":4.49,"class":"light","cell":"40/-130"}`},
		"exactly alert":    {line: event("4.5", "earthquake"), enriched: `{"event":"x1","time":5,"magnitude":4.5,"class":"light","cell":"40/-130"}`, alert: `{"event":"x1","magnitude":4.5,"cell":"40/-130"}`},
		"negative":         {line: event("-0.5", "earthquake"), enriched: `{"event":"x1","time":5,"magnitude":-0.5,"class":"micro","cell":"40/-130"}`},
		"quoted magnitude": {line: event(`"2.5"`, "earthquake"), enriched: `{"event":"x1","time":5,"magnitude":2.5,"class":"micro","cell":"40/-130"}`},
		"other type":       {line: event("5", "explosion"), reason: `type "explosion"`},
		"null magnitude":   {line: event("null", "earthquake"), reason: "no magnitude"},
		"absurd magnitude": {line: event("1e999", "earthquake"), reason: "no magnitude"},
		"text magnitude":   {line: event(`"big"`, "earthquake"), reason: "not a JSON event"},
		"no JSON":          {line: "hello", reason: "not a JSON event"},
		"empty":            {line: "", reason: "not a JSON event"},
		"a list":           {line: "[1]", reason: "not a JSON event"},
		"cut short":        {line: event("5", "earthquake")[:40], reason: "not a JSON event"},
		"no coordinates":   {line: `{"id":"y","properties":{"mag":1,"type":"earthquake"}}`, enriched: `{"event":"y","time":0,"magnitude":1,"class":"micro","cell":"none"}`},
		"bad UTF-8":        {line: "{\"id\":\"\xff\",\"properties\":{\"mag\":1,\"type\":\"earthquake\"}}", enriched: `{"event":"�","time":0,"magnitude":1,"class":"micro","cell":"none"}`},
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

func TestCell(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for want, at := range map[string][]float64{
		"0/0": {0, 0}, "-10/-10": {-0.1, -0.1}, "80/170": {179.9, 89.9}, "90/180": {180, 90}, "-90/-180": {-180, -90}, "none": {200, 0},
	} {
		if got := Cell(at); got != want {
			t.Errorf("%v lies in %s, want %s", at, got, want)
		}
	}
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
