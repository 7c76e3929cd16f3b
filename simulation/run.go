package simulation

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/lapse"
)

// Result is what became of a run.
type Result struct {
	Wrong     []string // what breaks a promise, a line each; nil: nothing
	Published published
	Tally     map[Rare]int
	Journal   []string
	Took      time.Duration // of virtual time
	Fed       []fed
}

// Run runs a script in a bubble of its own. What is wrong with the run's end is in
// the Result and does not fail the test.
func Run(t *testing.T, s Script) (r Result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, s.Setup)
		if !s.movesOutputs() {
			w.kit.ReadAlong(t, topicOut, topicSide, topicDead)
		}
		w.play(s.Ops)
		w.note("-- everything heals")
		w.heal()
		w.kit.Calm()
		left := w.drain()
		for _, l := range left {
			r.Wrong = append(r.Wrong, fmt.Sprintf("left: %v after everything had healed: %s", drainsWithin, l))
		}
		r.Took = time.Since(w.began)
		w.note("-- all stop")
		for _, name := range w.stopAll() {
			r.Wrong = append(r.Wrong, fmt.Sprintf("late: process %s had not stopped after %v", name, endsWithin))
		}
		lapse.For(context.Background(), lastTimeouts)
		if len(left) == 0 {
			got, wrong := w.judge()
			r.Published, r.Wrong = got, append(r.Wrong, wrong...)
		}
		w.countBrokers()
		r.Wrong = append(r.Wrong, w.wrong...)
		r.Tally, r.Journal, r.Fed = w.tally, w.lines, w.fed
	})
	return r
}

// movesOutputs tells whether the leader of an output's partition moves. kfake then
// tells a reader that it does not know the epoch that the reader has read up to,
// unless something was written since; kgo takes that for a loss and begins anew,
// which rule I8 would be right to find. Kafka tells the log's end.
func (s Script) movesOutputs() bool {
	return slices.ContainsFunc(s.Ops, func(o Op) bool {
		words := append([]string{o.Verb}, o.Args...)
		i := slices.Index(words, "leader")
		return i >= 0 && words[i+1] != topicIn
	})
}

// countBrokers adds what only the brokers know.
func (w *world) countBrokers() {
	for _, f := range w.plan.Firings() {
		if f.Marker != nil {
			w.count(MarkerLate)
		}
	}
	facts, err := w.broker.Facts(context.Background(), group)
	if err != nil {
		w.t.Errorf("the brokers' history: %v", err)
	}
	for _, e := range facts.Events {
		if e, ok := e.(share.Event); ok && e.Kind == share.EventExpired {
			w.count(LockPassed)
			break
		}
	}
}
