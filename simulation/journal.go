package simulation

import (
	"fmt"
	"sync"
	"time"
)

// journal is what happened in a run, as text with the time since its start, and how
// often what is rare.
type journal struct {
	began time.Time

	mu    sync.Mutex
	lines []string
	tally map[Rare]int
}

func newJournal() *journal { return &journal{began: time.Now(), tally: make(map[Rare]int)} }

func (j *journal) note(format string, args ...any) {
	line := fmt.Sprintf("%10v  ", time.Since(j.began).Round(time.Millisecond)) + fmt.Sprintf(format, args...)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, line)
}

func (j *journal) count(r Rare) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.tally[r]++
}

// Rare is a state that a run seldom reaches, and that its seeds together must.
type Rare string

const (
	StageUnanswered  Rare = "stage unanswered"
	UnknownCommitted Rare = "unknown, found committed"
	UnknownAborted   Rare = "unknown, found aborted"
	Fenced           Rare = "fenced"
	LockPassed       Rare = "lock passed"
	MarkerLate       Rare = "marker late"
	MovedStaged      Rare = "leader moved while staged"
	ConflictDone     Rare = "conflict on done"
	ConflictOpen     Rare = "conflict on open"
)

// occurs are the states that runs of a kind can reach.
func occurs(kind string) []Rare {
	all := []Rare{UnknownCommitted, UnknownAborted, Fenced, LockPassed, MarkerLate}
	switch kind {
	case "ledger":
		all = append(all, ConflictDone, ConflictOpen)
	case "ack-after-commit":
	default:
		all = append(all, StageUnanswered, MovedStaged)
	}
	return all
}
