package main

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
)

// promise is a guarantee and the broker to keep it on.
type promise struct {
	name      string
	guarantee processor.Guarantee
	broker    []string // flags
	kip93     bool
}

var promises = []promise{
	{name: "draft95", guarantee: processor.Staged},
	{name: "kip93", guarantee: processor.Staged, broker: []string{"--profile", "kip93"}, kip93: true},
	{name: "ledger", guarantee: processor.Ledger, broker: []string{"--stock44"}},
	{name: "ack-after-commit", guarantee: processor.AckAfterCommit, broker: []string{"--stock44"}},
}

// fate is what becomes of a transaction's records.
type fate int

const (
	undecided    fate = iota // nothing is published; they come again
	acknowledged             // published and acknowledged
	found                    // published; they come again, are found done and not handled
	doubled                  // published; they come again and are published twice
	racing                   // published; whether they come again is a race with what acknowledges them
)

// stepAt is a step at which a service's process kills itself.
type stepAt struct {
	step    string
	handled bool // by then the handler has run
	decided bool // by then the transaction commits, whoever lives
	settled bool // by then acknowledgements are under way
}

var steps = []stepAt{
	{step: "polled"},
	{step: "looked"},
	{step: "handled", handled: true},
	{step: "begun", handled: true},
	{step: "produced", handled: true},
	{step: "checked", handled: true},
	{step: "frozen", handled: true},
	{step: "staged", handled: true},
	{step: answered, handled: true, decided: true},
	{step: "ended", handled: true, decided: true},
	{step: "settled", handled: true, decided: true, settled: true},
}

func (s stepAt) fate(g processor.Guarantee) fate {
	switch {
	case !s.decided:
		return undecided
	case g == processor.Staged:
		return acknowledged
	case s.settled:
		return racing
	case g == processor.Ledger:
		return found
	default:
		return doubled
	}
}

// serve starts the broker of some cases and makes what they need.
func (p promise) serve(ctx context.Context, t *testing.T, cases []job) *killable {
	t.Helper()
	addr := free(ctx, t)
	b := &killable{t: t, args: append([]string{"broker", "--listen", addr, "--data", t.TempDir()}, p.broker...)}
	for i := range cases {
		j := &cases[i]
		j.Seed, j.Guarantee, j.KIP93 = addr, p.guarantee, p.kip93
		b.args = append(b.args, "--topic", j.in(), "--topic", j.out(), "--topic", j.dead())
	}
	b.start(ctx)
	t.Cleanup(b.kill)
	return b
}

// A service's process is killed at a step of its first transaction and another one
// comes after it: what is published and acknowledged by then, and what in the end.
// Nothing is published twice, but with guarantee AckAfterCommit what was
// committed and not acknowledged; and all of it survives the broker's own death.
func TestServiceKilled(t *testing.T) {
	t.Parallel()
	for _, p := range promises {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			ctx := testkit.Deadline(t, 8*time.Minute)
			var at []stepAt
			var cases []job
			for _, s := range steps {
				if s.step != "checked" || p.guarantee == processor.Ledger { // only the ledger is asked
					at, cases = append(at, s), append(cases, job{Case: s.step, Step: s.step})
				}
			}
			b := p.serve(ctx, t, cases)
			before := make([]map[string]int, len(cases))
			for i, j := range cases {
				t.Run(j.Step, func(t *testing.T) {
					a := observe(ctx, t, j)
					a.serviceKilled(at[i])
					before[i] = visible(ctx, t, a.cl, j.out())
				})
			}
			b.kill()
			b.start(ctx)
			for i, j := range cases {
				a := observe(ctx, t, j)
				if after := visible(ctx, t, a.cl, j.out()); !maps.Equal(before[i], after) || a.lag() != 0 {
					t.Errorf("%s: %v before the broker's death, then %v with lag %d", j.Step, before[i], after, a.lag())
				}
			}
		})
	}
}

func (a *audit) serviceKilled(s stepAt) {
	t, j := a.t, a.job
	if s.step == "staged" && j.KIP93 {
		// What was staged is free when its lock ends, and the test waits for that.
		if err := groupconfig.Set(a.ctx, a.cl, j.Case, groupconfig.LockDuration(15*time.Second)); err != nil {
			t.Fatal(err)
		}
	}
	a.feed()
	first := spawn(a.ctx, t, j)
	first.dead()
	want := s.fate(j.Guarantee)
	// EndTxn was answered when all of it was done, so what is there now is there by itself.
	published := visible(a.ctx, t, a.cl, j.out())
	if s.decided != (len(published) > 0) {
		t.Errorf("by then %d inputs' outputs are there", len(published))
	}
	if done, least := a.done(), len(published); want != racing && done != map[fate]int{acknowledged: least}[want] {
		t.Errorf("by then %d inputs are acknowledged and %d published", done, least)
	}
	if calls := first.lines(wordCall); s.handled != (len(calls) > 0) {
		t.Errorf("by then the handler has run for %q", calls)
	}

	j.Step = ""
	second := spawn(a.ctx, t, j)
	a.drained(second)
	second.stop()
	out, again, doubles := visible(a.ctx, t, a.cl, j.out()), second.lines(wordCall), 0
	for _, v := range inputs() {
		least, most, handled := 1, 1, true
		if published[v] > 0 {
			switch want {
			case acknowledged, found:
				handled = false
			case doubled:
				least, most = 2, 2
			case racing:
				handled = slices.Contains(again, v)
				if j.Guarantee == processor.AckAfterCommit {
					most = 2
				} else if handled {
					t.Errorf("input %s was published and is handled again", v)
				}
			}
		}
		if n := out[v]; n < least || n > most || handled != slices.Contains(again, v) {
			t.Errorf("input %s: %d outputs, want %d to %d; handled again: %v, want %v", v, n, least, most, slices.Contains(again, v), handled)
		}
		doubles += out[v] - 1
	}
	if len(out) != len(inputs()) {
		t.Errorf("outputs %v", out)
	}
	if want == doubled && doubles == 0 {
		t.Error("nothing was published twice: the death came too late")
	}
	if dead := visible(a.ctx, t, a.cl, j.dead()); len(dead) > 0 {
		t.Errorf("dead letters %v", dead)
	}
	if known := second.lines(wordDone); want == found && len(known) == 0 || want != racing && want != found && len(known) > 0 {
		t.Errorf("the ledger told %q records to be done", known)
	}
}
