package fault

import (
	"fmt"
	"math/rand/v2"
)

// Always is a When without an end.
const Always = -1

// When says at which of those that match a fault fires. The zero When is the
// first, once.
type When struct {
	Nth    int     // at the Nth from when the fault was planned; 0 means the first
	Every  int     // then at each Every-th; 0 means each
	Times  int     // how often in all; 0 means once; Always: no end
	Chance float64 // above 0: at each of these only with this probability
}

func (w When) String() string {
	s := fmt.Sprintf("number %d", w.Nth)
	if w.Times == 1 {
		return s
	}
	if w.Every > 1 {
		s += fmt.Sprintf(" and each %d. after", w.Every)
	} else {
		s += " and those after"
	}
	if w.Chance > 0 {
		s += fmt.Sprintf(" with chance %g", w.Chance)
	}
	if w.Times > 0 {
		s += fmt.Sprintf(", %d times", w.Times)
	}
	return s
}

func (w When) withDefaults() When {
	w.Nth, w.Every = max(w.Nth, 1), max(w.Every, 1)
	if w.Times == 0 {
		w.Times = 1
	}
	return w
}

// enough tells whether what fired so often did what was planned. Where chance or
// no end is in it once is enough.
func (w When) enough(fired int) bool {
	if w.Times == Always || w.Chance > 0 {
		return fired > 0
	}
	return fired >= w.Times
}

// counter is how far a When has come.
type counter struct {
	When
	dice  *rand.Rand
	seen  int
	fired int
	owed  int // due, but another fault had the request
}

// match counts one that matches and tells whether the fault is due.
func (c *counter) match() bool {
	if c.spent() {
		return false
	}
	c.seen++
	due := c.seen >= c.Nth && (c.seen-c.Nth)%c.Every == 0 && (c.Chance <= 0 || c.dice.Float64() < c.Chance)
	if due {
		c.owed++
	}
	return c.owed > 0
}

// spent tells whether it fired as often as it may.
func (c *counter) spent() bool { return c.Times != Always && c.fired >= c.Times }

// fire counts that it did.
func (c *counter) fire() {
	c.owed--
	c.fired++
}
