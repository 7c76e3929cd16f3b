//go:build race

package sharetxntest

import (
	"runtime"
	"sync"
	"testing"
)

// With Go 1.26 two goroutines of a bubble that find a timer due at the same
// moment can bring the race detector down: it has one context for all timers of
// a bubble. Seen as a SIGSEGV below (*timer).maybeRunChan. One processor at a
// time keeps them apart, and takes nothing from what the detector sees, which is
// order and not coincidence.
var oneProcessor struct {
	mu    sync.Mutex
	users int
	procs int
}

func guardRaceDetector(t testing.TB) {
	p := &oneProcessor
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.users++; p.users == 1 {
		p.procs = runtime.GOMAXPROCS(1)
	}
	t.Cleanup(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.users--; p.users == 0 {
			runtime.GOMAXPROCS(p.procs)
		}
	})
}
