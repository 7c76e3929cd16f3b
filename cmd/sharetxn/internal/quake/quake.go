// Package quake is the demo's transform: what becomes of one line of the
// earthquake feed. Pure; the pipeline applies it and the audit recomputes it.
package quake

import (
	"encoding/json"
	"fmt"
	"math"
	"unicode/utf8"
)

// AlertFrom is the magnitude from which an event is an alert too.
const AlertFrom = 4.5

// Outputs must fit into a record beside a line of the longest length that the
// demo takes, whatever the line holds.
const (
	maxID    = 256    // bytes; longer ones are cut in the key of a dead letter
	maxPlace = 10_000 // bytes; JSON may make six of each
	maxType  = 64     // bytes of a type that a reason quotes
)

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

// object is decoded member by member, since one member of an odd type says
// nothing about the others, and by exact names, which struct fields are not.
type object map[string]json.RawMessage

// get decodes a member into v; false if it is absent, null or of another type.
func (o object) get(name string, v any) bool {
	raw, ok := o[name]
	return ok && string(raw) != "null" && json.Unmarshal(raw, v) == nil
}

type enriched struct {
	Event     string  `json:"event"`
	Time      int64   `json:"time,omitempty"`
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

// Transform is deterministic: the same line gives the same bytes. An event is
// enriched if its type is "earthquake" and its magnitude a number; what else is
// missing or odd is left out of the output.
func Transform(line []byte) Result {
	var event, props, geometry object
	if !utf8.Valid(line) || json.Unmarshal(line, &event) != nil || event == nil {
		return Result{Reason: "not a JSON object"}
	}
	event.get("properties", &props)
	event.get("geometry", &geometry)
	var id, typ, place string
	event.get("id", &id)
	props.get("type", &typ)
	props.get("place", &place)
	key := []byte(cut(id, maxID))
	var mag float64
	switch {
	case typ != "earthquake":
		return Result{Key: key, Reason: fmt.Sprintf("type %q", cut(typ, maxType))}
	case len(id) > maxID:
		return Result{Key: key, Reason: "id too long"}
	case !props.get("mag", &mag): // also for a number beyond float64
		return Result{Key: key, Reason: "no magnitude"}
	}
	var when int64
	props.get("time", &when)
	var coordinates []*float64 // null is not 0
	geometry.get("coordinates", &coordinates)
	cell := Cell(coordinates)
	r := Result{Key: key, Enriched: mustJSON(enriched{Event: id, Time: when, Magnitude: mag, Class: Class(mag), Cell: cell, Place: cut(place, maxPlace)})}
	if mag >= AlertFrom {
		r.Alert = mustJSON(alert{Event: id, Magnitude: mag, Cell: cell})
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
// corner as "latitude/longitude"; "none" without a place on earth. The pole and
// the date line belong to the last cell.
func Cell(coordinates []*float64) string {
	if len(coordinates) < 2 || coordinates[0] == nil || coordinates[1] == nil {
		return "none"
	}
	lon, lat := *coordinates[0], *coordinates[1]
	if math.Abs(lon) > 180 || math.Abs(lat) > 90 {
		return "none"
	}
	corner := func(x, last float64) int { return int(min(math.Floor(x/10)*10, last)) }
	return fmt.Sprintf("%d/%d", corner(lat, 80), corner(lon, 170))
}

// cut shortens s to at most n bytes, between characters.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil { // no infinite number gets this far
		panic(err)
	}
	return b
}
