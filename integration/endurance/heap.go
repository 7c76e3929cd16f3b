package endurance

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// sample is the heap after a collection, in bytes.
type sample struct {
	alloc uint64 // of what is reachable
	inuse uint64 // of spans that hold it
}

// sampleHeap writes a sample each second until ctx ends.
func sampleHeap(ctx context.Context, name string) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		if _, err := fmt.Fprintln(f, m.HeapAlloc, m.HeapInuse); err != nil {
			return err
		}
	}
}

func readHeap(name string) (samples []sample, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for {
		var s sample
		if n, _ := fmt.Fscanln(f, &s.alloc, &s.inuse); n != 2 {
			return samples, nil
		}
		samples = append(samples, s)
	}
}

// flat tells whether memory stayed where it was: the last third of the samples
// not above the first by more than half and 4 MiB, and none out of bounds.
// What is held at one moment varies, so thirds are told by their medians.
func flat(samples []sample) error {
	const slack, bound, few = 4 << 20, 256 << 20, 9
	if len(samples) < few {
		return fmt.Errorf("%d samples of the heap are too few to judge", len(samples))
	}
	median := func(s []sample) uint64 {
		var all []uint64
		for _, one := range s {
			all = append(all, one.alloc)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	third := len(samples) / 3
	first, last := median(samples[:third]), median(samples[len(samples)-third:])
	if last > first+first/2+slack {
		return fmt.Errorf("the heap grew from %d to %d KiB", first>>10, last>>10)
	}
	for _, s := range samples {
		if s.inuse > bound {
			return fmt.Errorf("the heap took %d MiB", s.inuse>>20)
		}
	}
	return nil
}
