package sweep

import (
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest"
)

var (
	whole = flag.Bool("whole", false, "every fault at every request, in place of a slice that is drawn")
	seed  = flag.Uint64("seed", 1, "draws the slice")
)

// hour is a deadline in real time: what hangs is to be told from what is slow.
const hour = time.Hour

// tally is what a sweep did.
type tally struct{ runs, fired atomic.Int64 }

func (c *tally) live(t *testing.T, on setting, faults ...sharetxntest.Fault) []bool {
	t.Helper()
	fired := live(t, on, faults...)
	c.count(fired)
	return fired
}

func (c *tally) count(fired []bool) {
	c.runs.Add(1)
	for _, f := range fired {
		if f {
			c.fired.Add(1)
		}
	}
}

func (c *tally) tell(t *testing.T) {
	t.Helper()
	t.Logf("%d runs, %d faults fired", c.runs.Load(), c.fired.Load())
}

// dice are the slice's own in each subtest, so that no other moves them.
func dice(t *testing.T) *rand.Rand {
	h := fnv.New64()
	h.Write([]byte(t.Name()))
	return rand.New(rand.NewPCG(*seed, h.Sum64()))
}

// No request of a service's life is left out of the table.
func TestTableIsComplete(t *testing.T) {
	for _, on := range settings {
		t.Run(on.name, func(t *testing.T) {
			testkit.Deadline(t, 2*time.Minute)
			listed := make(map[sharetxntest.Key]bool)
			for _, a := range apisOf(on) {
				listed[a.key] = true
			}
			var others []sharetxntest.Fault
			for k := range sharetxntest.Key(93) { // staging's own is listed as two
				if !listed[k] {
					others = append(others, sharetxntest.Fault{Key: k, Action: sharetxntest.Delay(time.Nanosecond)})
				}
			}
			for i, sent := range live(t, on, others...) {
				if sent {
					t.Errorf("it sends %v, which is not in the table", others[i].Key)
				}
			}
		})
	}
}

// Whatever happens to one request of a service's life, whichever that is, each
// record is published once: of each API the first request meets with it, then, in
// another life, the second, until a life goes by without the fault.
func TestOneFault(t *testing.T) {
	var all tally
	t.Run("all", func(t *testing.T) {
		for _, on := range settings {
			for _, a := range apisOf(on) {
				t.Run(fmt.Sprintf("%s, %v", on.name, a.key), func(t *testing.T) {
					if *whole {
						t.Parallel()
					}
					testkit.Deadline(t, hour)
					for _, k := range a.drawn(t) {
						at := func(n int) bool {
							return all.live(t, on, sharetxntest.Fault{Key: a.key, Nth: n, Action: k.action()})[0]
						}
						if n := sweep(t, at); n == 0 {
							t.Errorf("%s: it never fired", k.name)
						}
					}
				})
			}
		}
	})
	all.tell(t)
}

// sweep calls at for 1, 2, ... until it says that the fault has not fired, and
// gives at how many it has. A slice begins where it is drawn, and ends with the
// first that fires.
func sweep(t *testing.T, at func(n int) bool) (fired int) {
	if *whole {
		for at(fired + 1) {
			fired++
		}
		return fired
	}
	for n := 1 + dice(t).IntN(8); n > 0; n /= 2 {
		if at(n) {
			return 1
		}
	}
	return 0
}

// drawn are the kinds to go through: all, or a slice of them.
func (a api) drawn(t *testing.T) []kind {
	all := a.kinds()
	if *whole {
		return all
	}
	return all[dice(t).IntN(len(all)):][:1]
}
