// Package data bundles the real events that the demo works on; README.md names
// their source.
package data

import _ "embed"

// Earthquakes is one GeoJSON feature a line.
//
//go:embed earthquakes.ndjson
var Earthquakes []byte
