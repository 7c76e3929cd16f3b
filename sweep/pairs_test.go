package sweep

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/sharetxntest"
)

// An outcome and an identity are asked for by two requests, EndTxn and
// InitProducerId: what becomes of a first fault there is decided by what comes
// next, and to that a second one happens.
var (
	firsts = []sharetxntest.Key{sharetxntest.EndTxnKey, sharetxntest.InitProducerIDKey}
	nexts  = []sharetxntest.Key{
		sharetxntest.EndTxnKey, sharetxntest.InitProducerIDKey, sharetxntest.FindCoordinatorKey, sharetxntest.ProduceKey, sharetxntest.StageKey,
	}
	// kindsOfFirst leave in question what was done; kindsOfSecond do so again, or
	// end the question.
	kindsOfFirst  = []string{"request lost", "answer lost", "answer late", "done, and code 16"}
	kindsOfSecond = []string{"request lost", "answer lost", "answer late", "done, and code 16", "code 90"}
)

// near is how many requests of each API after the first fault meet the second.
const near = 2

// named are the kinds of an API of these names; it need not have all.
func (a api) named(names []string) (out []kind) {
	for _, k := range a.kinds() {
		if slices.Contains(names, k.name) {
			out = append(out, k)
		}
	}
	return out
}

func find(on setting, key sharetxntest.Key) (api, bool) {
	all := apisOf(on)
	i := slices.IndexFunc(all, func(a api) bool { return a.key == key })
	if i < 0 {
		return api{}, false
	}
	return all[i], true
}

// Whatever happens to a request that asks for an outcome or an identity, and then
// to one that follows it, each record is published once.
func TestTwoFaults(t *testing.T) {
	var all tally
	seconds := make(map[string]*atomic.Int64) // that fired, by setting and API
	t.Run("all", func(t *testing.T) {
		for _, on := range settings {
			for _, first := range firsts {
				for _, second := range nexts {
					a, _ := find(on, first)
					b, sent := find(on, second)
					if !sent {
						continue
					}
					name := fmt.Sprintf("%s, %v", on.name, second)
					if seconds[name] == nil {
						seconds[name] = new(atomic.Int64)
					}
					t.Run(fmt.Sprintf("%s, %v, %v", on.name, first, second), func(t *testing.T) {
						if *whole {
							t.Parallel()
						}
						testkit.Deadline(t, hour)
						all.pairs(t, on, a, b, seconds[name])
					})
				}
			}
		}
	})
	for name, n := range seconds {
		if n.Load() == 0 && *whole {
			t.Errorf("%s: it was never the second to meet a fault", name)
		}
	}
	all.tell(t)
}

func (c *tally) pairs(t *testing.T, on setting, a, b api, both *atomic.Int64) {
	for _, p := range pairsOf(t, a, b) {
		sweep(t, func(n int) bool {
			first := false
			for m := 1; m <= near; m++ {
				fired := c.liveTwo(t, on, sharetxntest.Fault{Key: a.key, Nth: n, Action: p[0].action()}, sharetxntest.Fault{Key: b.key, Nth: m, Action: p[1].action()})
				first = first || fired[0]
				if !fired[1] {
					break
				}
				both.Add(1)
			}
			return first
		})
	}
}

// pairsOf are the kinds to go through: all, or a slice of them.
func pairsOf(t *testing.T, a, b api) (out [][2]kind) {
	for _, x := range a.named(kindsOfFirst) {
		for _, y := range b.named(kindsOfSecond) {
			out = append(out, [2]kind{x, y})
		}
	}
	if *whole {
		return out
	}
	return out[dice(t).IntN(len(out)):][:1]
}

// liveTwo is live with a second fault that counts from when the first has fired.
func (c *tally) liveTwo(t *testing.T, on setting, first, second sharetxntest.Fault) (fired [2]bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := start(t, on)
		told := w.inject(t, first)
		second.After = told
		again := w.inject(t, second)
		w.keepRunning(t)
		fired = [2]bool{closed(told), closed(again)}
		w.judge(t, true)
		if t.Failed() {
			t.Logf("%s with %v number %d, then %v number %d", on.name, first.Key, first.Nth, second.Key, second.Nth)
		}
	})
	c.count(fired[:])
	return fired
}
