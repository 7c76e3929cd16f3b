package main

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestTicks(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		stat string
		want time.Duration
	}{
		{"77 (java) S 1 77 77 0 -1 4194304 5 0 0 0 250 51 9 9 20 0 40", 3010 * time.Millisecond},
		{"77 (a) b) c) S 1 77 77 0 -1 4194304 5 0 0 0 1 2 9 9 20 0 40", 30 * time.Millisecond},
		{"77 (java) S 1 77", 0},
		{"", 0},
	} {
		if got := ticks([]byte(c.stat)); got != c.want {
			t.Errorf("%q: %v, want %v", c.stat, got, c.want)
		}
	}
}

func TestHighWater(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		status string
		want   int64
	}{
		{"Name:\tjava\nVmPeak:\t 9999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t 1 kB\n", 2 << 20},
		{"VmHWM:\tmuch\n", 0},
		{"Name:\tjava\n", 0},
	} {
		if got := highWater([]byte(c.status)); got != c.want {
			t.Errorf("%q: %d, want %d", c.status, got, c.want)
		}
	}
}
