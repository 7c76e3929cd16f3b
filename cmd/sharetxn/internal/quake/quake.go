// Package quake is the demo's transform: what becomes of one line of the
// earthquake feed. Pure; the pipeline applies it and the audit recomputes it.
package quake

import (
	"encoding/json"
	"fmt"
	"math"
)

// AlertFrom is the magnitude from which an event is an alert too.
const AlertFrom = 4.5

// Result is what one input becomes: Enriched and, from AlertFrom, Alert; or a
// Reason why it is rejected.
type Result struct {
	Key      []byte
	Enriched []byte
	Alert    []byte
	Reason   string
}

// Rejected tells whether the input is to be rejected.
func (r Result) Rejected() bool { return r.Reason != "" }

type feature struct {
	ID         string `json:"id"`
	Properties struct {
		Type  string       `json:"type"`
		Mag   *json.Number `json:"mag"`
		Place string       `json:"place"`
		Time  int64        `json:"time"`
	} `json:"properties"`
	Geometry struct {
		Coordinates []float64 `json:"coordinates"`
	} `json:"geometry"`
}

type enriched struct {
	Event     string  `json:"event"`
	Time      int64   `json:"time"`
	Magnitude float64 `json:"magnitude"`
	Class     string  `json:"class"`
	Cell      string  `json:"cell"`
	Place     string  `json:"place,omitempty"`
}

type alert struct {
	Event     string  `json:"event"`
	Magnitude float64 `json:"magnitude"`
	Cell      string  `json:"cell"`
}

// Transform is deterministic: the same line gives the same bytes.
func Transform(line []byte) Result {
	var f feature
	if err := json.Unmarshal(line, &f); err != nil {
		return Result{Reason: "not a JSON event"}
	}
	key := []byte(f.ID)
	switch {
	case f.Properties.Type != "earthquake":
		return Result{Key: key, Reason: fmt.Sprintf("type %q", f.Properties.Type)}
	case f.Properties.Mag == nil:
		return Result{Key: key, Reason: "no magnitude"}
	}
	mag, err := f.Properties.Mag.Float64()
	if err != nil || math.IsInf(mag, 0) {
		return Result{Key: key, Reason: "no magnitude"}
	}
	cell := Cell(f.Geometry.Coordinates)
	r := Result{Key: key, Enriched: mustJSON(enriched{Event: f.ID, Time: f.Properties.Time, Magnitude: mag, Class: Class(mag), Cell: cell, Place: f.Properties.Place})}
	if mag >= AlertFrom {
		r.Alert = mustJSON(alert{Event: f.ID, Magnitude: mag, Cell: cell})
	}
	return r
}

// Class names a magnitude as the Geological Survey does.
func Class(mag float64) string {
	for _, c := range []struct {
		below float64
		name  string
	}{{3, "micro"}, {4, "minor"}, {5, "light"}, {6, "moderate"}, {7, "strong"}, {8, "major"}} {
		if mag < c.below {
			return c.name
		}
	}
	return "great"
}

// Cell is the ten-degree cell of [longitude, latitude, ...], by its south-west
// corner; "none" without a place on earth.
func Cell(coordinates []float64) string {
	if len(coordinates) < 2 {
		return "none"
	}
	lon, lat := coordinates[0], coordinates[1]
	if !(lon >= -180 && lon <= 180 && lat >= -90 && lat <= 90) {
		return "none"
	}
	floor := func(x float64) int { return int(math.Floor(x/10)) * 10 }
	return fmt.Sprintf("%d/%d", floor(lat), floor(lon))
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // no infinite number gets this far
		panic(err)
	}
	return b
}
