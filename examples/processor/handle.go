package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	// alertFrom is the magnitude from which a quake sets off an alert.
	alertFrom = 4.5
	// feltFrom is the magnitude from which people may have felt a quake. Such a
	// report waits, unless a person has reviewed it, until it is settled: the
	// first figures are often corrected.
	feltFrom = 2.5
	settled  = time.Minute
)

// report is what the handler reads of a GeoJSON feature.
type report struct {
	ID         string `json:"id"`
	Properties struct {
		Type   string   `json:"type"`
		Mag    *float64 `json:"mag"`
		Place  string   `json:"place"`
		Time   int64    `json:"time"` // milliseconds since 1970
		Status string   `json:"status"`
	} `json:"properties"`
}

// quake is what the service makes of one.
type quake struct {
	ID        string    `json:"id"`
	Time      time.Time `json:"time"`
	Magnitude float64   `json:"magnitude"`
	Place     string    `json:"place"`
}

// handle has one way out for each verdict: reject, release, accept with no, one
// or two outputs.
func handle(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
	var r report
	if err := json.Unmarshal(in.Value, &r); err != nil {
		return nil, processor.Reject(fmt.Errorf("no report: %w", err))
	}
	if r.Properties.Type != "earthquake" {
		return nil, nil // explosions and the like are read and done
	}
	if r.ID == "" || r.Properties.Mag == nil {
		return nil, processor.Reject(errors.New("no id, or no magnitude"))
	}
	q := quake{ID: r.ID, Time: time.UnixMilli(r.Properties.Time).UTC(), Magnitude: *r.Properties.Mag, Place: r.Properties.Place}
	if wait := time.Until(in.Timestamp.Add(settled)); wait > 0 && q.Magnitude >= feltFrom && r.Properties.Status != "reviewed" {
		return nil, processor.Release(wait)
	}
	value, err := json.Marshal(q)
	if err != nil {
		return nil, err // fails the record: tried again, and in the end a dead letter
	}
	out := []*kgo.Record{{Topic: "quakes.condensed", Key: []byte(q.ID), Value: value}}
	if q.Magnitude >= alertFrom {
		out = append(out, &kgo.Record{Topic: "quakes.alerts", Key: []byte(q.ID), Value: value})
	}
	return out, nil
}
