package processor

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestFlow(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	a, b, c := source{"x", 0}, source{"x", 1}, source{"y", 0}
	most := amount{records: 10, bytes: 100}
	for name, tc := range map[string]struct {
		of            map[source]amount
		paused        []source
		pause, resume []source
	}{
		"nothing waits":                           {},
		"few wait":                                {of: map[source]amount{a: {5, 50}, b: {5, 50}}},
		"many of one":                             {of: map[source]amount{a: {3, 3}, b: {11, 11}}, pause: []source{b}},
		"much of one":                             {of: map[source]amount{a: {3, 3}, b: {2, 101}}, pause: []source{b}},
		"many of all: no more than is needed":     {of: map[source]amount{a: {6, 6}, b: {5, 5}, c: {5, 5}}, pause: []source{a}},
		"as many of each":                         {of: map[source]amount{b: {6, 6}, c: {6, 6}, a: {6, 6}}, pause: []source{a, b}},
		"what is paused does not count":           {of: map[source]amount{a: {50, 500}, b: {10, 100}}, paused: []source{a}},
		"paused, and few are left":                {of: map[source]amount{a: {1, 1}}, paused: []source{a}},
		"paused, and none is left":                {of: map[source]amount{b: {1, 1}}, paused: []source{a}, resume: []source{a}},
		"one is paused instead of another":        {of: map[source]amount{b: {11, 1}}, paused: []source{a}, pause: []source{b}, resume: []source{a}},
		"one more, since others have become many": {of: map[source]amount{a: {11, 1}, b: {4, 1}, c: {7, 1}}, paused: []source{a}, pause: []source{c}},
	} {
		t.Run(name, func(t *testing.T) {
			w := waiting{of: tc.of, paused: make(map[source]bool)}
			for _, s := range tc.paused {
				w.paused[s] = true
			}
			pause, resume := w.flow(most)
			if !slices.Equal(pause, tc.pause) || !slices.Equal(resume, tc.resume) {
				t.Errorf("pause %v and resume %v, want %v and %v", pause, resume, tc.pause, tc.resume)
			}
			if pause, resume := w.flow(most); len(pause)+len(resume) > 0 {
				t.Errorf("asked again at once: pause %v and resume %v", pause, resume)
			}
		})
	}
}
