package demo

import (
	"math/rand/v2"
	"sync"
)

// dice says which batches fail on purpose: one of every abortEvery, drawn from
// the seed. Safe for concurrent use.
type dice struct {
	mu    sync.Mutex
	rng   *rand.Rand
	turn  int
	fails int // which of the present abortEvery
}

func newDice(seed uint64) *dice { return &dice{rng: rand.New(rand.NewPCG(seed, 0))} }

// unlucky draws for one run of a batch.
func (d *dice) unlucky() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := d.turn % abortEvery
	if at == 0 {
		d.fails = d.rng.IntN(abortEvery)
	}
	d.turn++
	return at == d.fails
}
