// Package faults says what is to go wrong in a run of the demo, in which order
// and at which moment. Pure: the same level and seed give the same plan.
package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Kind of a fault; each is aimed at a window in which it could lose or double a
// record.
type Kind uint8

const (
	HandlerError     Kind = iota // the handler fails while the record is held
	HandlerPanic                 // it panics
	Killed                       // a process dies in between: of staging and commit, or of commit and acknowledgement
	Zombie                       // a process stops before its commit, another takes over, then it wakes and commits
	LostStageAnswer              // what was staged, or acknowledged, is not confirmed
	LostEndTxnAnswer             // what was committed is not confirmed
	LeaderMove                   // the leader of a source partition moves in between, as for Killed
	Paused                       // a process stops before staging, or acknowledging, until its locks have run out, then wakes
)

var kinds = [...]string{
	"handler-error", "handler-panic", "killed", "zombie", "lost-stage-answer", "lost-endtxn-answer", "leader-move", "paused",
}

func (k Kind) String() string { return kinds[k] }

// Kinds gives all kinds in order.
func Kinds() []Kind {
	out := make([]Kind, len(kinds))
	for i := range out {
		out[i] = Kind(i)
	}
	return out
}

// Handler tells whether the handler does it, and not processes or brokers.
func (k Kind) Handler() bool { return k == HandlerError || k == HandlerPanic }

// Level is how much goes wrong.
type Level uint8

const (
	Light Level = iota // each kind once
	Heavy              // each kind three times
	Off
)

var levels = [...]string{"light", "heavy", "off"}

func (l Level) String() string { return levels[l] }

// Set implements flag.Value.
func (l *Level) Set(s string) error {
	i := slices.Index(levels[:], s)
	if i < 0 {
		return fmt.Errorf("%q: want one of %s", s, strings.Join(levels[:], ", "))
	}
	*l = Level(i)
	return nil
}

// each is how often each kind is planned.
func (l Level) each() int { return [...]int{1, 3, 0}[l] }

// Strike is one planned fault of processes or brokers.
type Strike struct {
	Kind Kind
	Nth  int   // at the so-many-th chance after the strike before it, from 1
	Hops int32 // LeaderMove: so many brokers on
}

// Plan is what is to go wrong.
type Plan struct {
	Strikes []Strike
	// Handler is in which calls the handler fails: by number of the input record,
	// from 0, when it is handled first.
	Handler map[int]Kind
	Left    []Kind // left out of the level
}

const (
	maxNth  = 2
	maxHops = 2 // of three brokers
)

// New makes the plan for an input of so many records. Of a short input some
// handler faults are left out; all else does not depend on it.
func New(level Level, seed uint64, records int) Plan {
	rng := rand.New(rand.NewPCG(seed, 0))
	p := Plan{Handler: make(map[int]Kind)}
	for range level.each() {
		for _, k := range Kinds() {
			if !k.Handler() {
				p.Strikes = append(p.Strikes, Strike{Kind: k, Nth: 1 + rng.IntN(maxNth), Hops: 1 + rng.Int32N(maxHops)})
			}
		}
	}
	rng.Shuffle(len(p.Strikes), func(i, j int) { p.Strikes[i], p.Strikes[j] = p.Strikes[j], p.Strikes[i] })
	failing := rng.Perm(records)
	for range level.each() {
		for _, k := range Kinds() {
			if k.Handler() && len(failing) > 0 {
				p.Handler[failing[0]], failing = k, failing[1:]
			}
		}
	}
	return p
}

// Without leaves out the strikes of a kind.
func (p Plan) Without(k Kind) Plan {
	p.Strikes = slices.DeleteFunc(slices.Clone(p.Strikes), func(s Strike) bool { return s.Kind == k })
	p.Left = append(slices.Clone(p.Left), k)
	return p
}

// Tally is planned against fired, by kind.
type Tally [len(kinds)]struct{ Planned, Fired int }

// Tally gives what is planned, with nothing fired.
func (p Plan) Tally() (t Tally) {
	for _, s := range p.Strikes {
		t[s.Kind].Planned++
	}
	for _, k := range p.Handler {
		t[k].Planned++
	}
	return t
}

// Unfired names the kinds that fired less often than planned, or not at all at
// a level that has them; of those left out of it nothing is asked.
func (t Tally) Unfired(l Level, left ...Kind) (out []string) {
	for _, k := range Kinds() {
		if slices.Contains(left, k) {
			continue
		}
		if x := t[k]; x.Fired < max(x.Planned, l.each()) {
			out = append(out, fmt.Sprintf("%v %d of %d", k, x.Fired, max(x.Planned, l.each())))
		}
	}
	return out
}

func (t Tally) String() string {
	var out []string
	for _, k := range Kinds() {
		if x := t[k]; x.Planned > 0 {
			out = append(out, fmt.Sprintf("%v %d/%d", k, x.Fired, x.Planned))
		}
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, ", ")
}
