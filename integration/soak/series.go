package soak

import (
	"fmt"
	"math"
	"time"
)

// series is one figure over time. What it may grow by, from the first to the last
// sample that counts, is Grow of its mean and Slack.
type series struct {
	Name  string
	Unit  string
	Grow  float64
	Slack float64
	At    []time.Duration // since the beginning
	Value []float64
}

func (s *series) add(at time.Duration, value float64) {
	s.At, s.Value = append(s.At, at), append(s.Value, value)
}

// settled leaves out the first fifth, in which all grows to what it needs.
func (s *series) settled() (at []time.Duration, value []float64) {
	from := len(s.Value) / 5
	return s.At[from:], s.Value[from:]
}

// trend is a line through samples by least squares.
type trend struct {
	Mean  float64
	Slope float64 // a second
	Grown float64 // by the line, from the first sample to the last
	Bound float64 // of Grown
}

func (t trend) flat() bool { return t.Grown <= t.Bound }

// few is too few samples for a trend.
const few = 20

func (s *series) trend() (trend, error) {
	at, value := s.settled()
	if len(value) < few {
		return trend{}, fmt.Errorf("%s: %d samples are too few to judge", s.Name, len(value))
	}
	n := float64(len(value))
	var sumX, sumY, sumXX, sumXY float64
	for i, y := range value {
		x := (at[i] - at[0]).Seconds()
		sumX, sumY, sumXX, sumXY = sumX+x, sumY+y, sumXX+x*x, sumXY+x*y
	}
	t := trend{Mean: sumY / n}
	t.Slope = (n*sumXY - sumX*sumY) / (n*sumXX - sumX*sumX)
	t.Grown = t.Slope * (at[len(at)-1] - at[0]).Seconds()
	t.Bound = s.Grow*t.Mean + s.Slack
	return t, nil
}

// most of all samples.
func (s *series) most() float64 {
	most := math.Inf(-1)
	for _, v := range s.Value {
		most = max(most, v)
	}
	return most
}
