//go:build chaos

package chaos

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
)

var (
	records   = flag.Int("records", 10_000, "`records` to produce")
	during    = flag.Duration("during", 40*time.Second, "how long faults last at least")
	guarantee = flag.String("guarantee", "ledger", "`guarantee` of the members")
)

// atLeast is how much time there is for each record, whatever the machine.
const atLeast = 5 * time.Millisecond

// required must happen in a trial, or it has proved nothing: in a storm, and
// what is rare there in duels at the latest.
func required(guarantee string) (storm, rare []string) {
	all := []string{
		"kill outside", "kill at poison", "stop outside", "stop outside, replaced", "fenced by another of its name",
		"brokers killed", "requests with acknowledgements lost", "acknowledgements lost", "answers to EndTxn lost",
		"handler failed", "handler released",
		"leader moves of source", "leader moves of output", "leader moves of transaction state", "leader moves of share state",
	}
	for _, s := range steps {
		all = append(all, "kill at "+s)
	}
	if guarantee != "ledger" {
		return slices.DeleteFunc(all, func(s string) bool { return slices.Contains(ledgers, s) }), nil
	}
	all = append(all, "leader moves of ledger", "records found done", "records found wait", "ledger truncated", "ledger offsets truncated")
	if long() {
		rare = []string{"conflicts on done", "conflicts on open", "ledger gap"}
	}
	return all, rare
}

// long tells whether there is time for what happens seldom; a short trial leaves
// that to scenes.
func long() bool { return *during >= time.Minute }

// odd distances spread what comes that often over partitions.
func odd(n int) int { return n | 1 }

// markersDropped is what a transaction coordinator logs when it leaves out the
// markers of partitions that have no leader: what was written there is then ended
// by the next transaction of the same id, however that ends.
const markersDropped = "Couldn't find leader endpoint"

// ledgers are steps that only a ledger has.
var ledgers = []string{"kill at loaded", "kill at checked", "kill at truncating"}

// All at once, until everything has happened, and then calm. What is visible in
// the end is what the source asks for, once each.
func TestChaos(t *testing.T) {
	within := 5*time.Minute + 4**during + time.Duration(*records)*atLeast
	all := testkit.Deadline(t, within+time.Minute)
	ctx, cancel := context.WithTimeout(all, within) // leaves time to end processes
	defer cancel()
	k := three(ctx, t)
	w := newWorld(ctx, t, k, setup{
		name: "chaos", guarantee: *guarantee, lock: 2 * time.Second, seed: *seed, members: 2, sources: 2,
		poison: task.Poison{Reject: odd(min(*records/12, 1_000)), Fail: odd(min(*records/8, 5_000)), Kill: odd(min(*records/4, 10_000)), Kills: 5},
		// Each record that fails at every delivery holds up what lies behind it for some seconds.
		bulk: task.Poison{Reject: 1_001, Fail: 50_001},
	})
	w.job.MaxRecords = 50 // so that there are many transactions to come to harm
	t.Cleanup(func() { t.Logf("seed %d, %s, %d processes%s", *seed, *guarantee, w.lives.Load(), w.figures()) })
	began := time.Now()
	storm, rare := required(*guarantee)
	must(t, w.storm(ctx, *records, *during, storm))
	must(t, w.duels(ctx, rare))
	stormed := time.Since(began)
	w.job.MaxRecords = 0 // as a Processor has by itself
	must(t, w.calm(ctx, processes))
	took := time.Since(began)
	if long() && *guarantee == processor.Ledger.String() {
		from := began.Add(stormed * 3 / 4)
		if from.Before(w.produced) {
			from = w.produced
		}
		must(t, w.again(ctx, from))
	}
	v, err := w.verify(ctx)
	must(t, err)
	dropped, err := k.Said(markersDropped)
	must(t, err)
	t.Logf("%d times brokers dropped markers of a transaction, since a partition had no leader", dropped)
	t.Logf("faults for %.0fs, all done after %.0fs, %.0f records/s", stormed.Seconds(), took.Seconds(), float64(w.sent())/took.Seconds())
	t.Log(v)
	if v.Sources != w.sent() || len(v.Findings) > 0 {
		t.Error("the promise is broken")
	}
}
