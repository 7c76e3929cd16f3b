package simulation

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/sharetxntest"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
)

// compare holds what is published against what must be. Each record's outputs
// are there all of them or none, and as often as it is to be published; more often
// only for the records that may says, and then all of them as often.
func compare(all []fed, got published, may func(value string) bool) (wrong []string) {
	want := make(published)
	for _, f := range all {
		times := got.times(f.value)
		for s, n := range expected([]string{f.value}) {
			want[s] = n
			switch {
			case got[s] == 0 && f.times > 0:
				wrong = append(wrong, fmt.Sprintf("lost: %v is not there", s))
			case got[s] != n*times:
				wrong = append(wrong, fmt.Sprintf("torn: %v is there %d times, and the record was published %d times", s, got[s], times))
			case times < f.times:
				wrong = append(wrong, fmt.Sprintf("lost: %v is there %d times, want %d", s, got[s], n*f.times))
			case times > f.times && !may(f.value):
				wrong = append(wrong, fmt.Sprintf("duplicate: %v is there %d times, want %d", s, got[s], n*f.times))
			}
		}
	}
	for s, n := range got {
		if want[s] == 0 {
			wrong = append(wrong, fmt.Sprintf("stray: %v is there %d times, and no record makes it", s, n))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// promise is what a transaction said of itself, and what is visible of it.
type promise struct {
	outcome           sharetxn.Outcome
	produced, visible int
}

// promised finds those that are broken; one that told nothing is visible all of it
// or not at all.
func promised(all []promise) (wrong []string) {
	for n, p := range all {
		kept := p.outcome != sharetxn.Committed && p.visible == 0 || p.outcome != sharetxn.Aborted && p.visible == p.produced
		if !kept {
			wrong = append(wrong, fmt.Sprintf("broken promise: attempt %d said %v, and %d of its %d records are visible", n, p.outcome, p.visible, p.produced))
		}
	}
	return wrong
}

// published reads what is there now, and how many records each attempt has in it.
func (w *world) published() (got published, by map[int]int, wrong []string) {
	ctx := context.Background()
	got, by = make(published), make(map[int]int)
	for _, name := range []string{topicOut, topicSide, topicDead} {
		rs, err := w.broker.Committed(ctx, name)
		if err != nil {
			return got, by, []string{fmt.Sprintf("unread: %s: %v", name, err)}
		}
		for _, r := range rs {
			got[spot{name, string(r.Value)}]++
			for _, h := range r.Headers {
				if n, err := strconv.Atoi(string(h.Value)); err == nil && h.Key == byHeader {
					by[n]++
				}
			}
		}
	}
	return got, by, nil
}

// done is what came of the run, and what was said of each attempt at it.
func (w *world) done() (got published, said []promise, wrong []string) {
	if w.setup.Form == FormAcknowledger {
		return w.stored()
	}
	got, by, wrong := w.published()
	for i, a := range w.attempts {
		said = append(said, promise{a.tx.Outcome(), a.produced, by[i]})
	}
	return got, said, wrong
}

// judge holds the end of a run against what was promised.
func (w *world) judge() (got published, wrong []string) {
	got, said, wrong := w.done()
	if wrong != nil {
		return got, wrong
	}
	conceded, found := w.audit()
	wrong = slices.Concat(found, compare(w.fed, got, func(v string) bool { return conceded[v] }))
	return got, slices.Concat(wrong, promised(said), w.hanging(), w.archived())
}

// audit holds the history against the rules of package check. What a guarantee or
// a profile concedes is no finding: the values of those records come back.
func (w *world) audit() (conceded map[string]bool, found []string) {
	e := sharetxntest.Expect{
		Group: group, Guarantee: check.Guarantee(w.setup.Guarantee.String()), Outputs: []string{topicOut, topicSide, topicDead}, DeadLetters: []string{topicDead},
		Source: origin, Want: func(in *kgo.Record) int { return len(outputs(string(in.Value))) }, Bound: drainsWithin,
	}
	if w.setup.Form == FormAcknowledger { // nothing of it is in Kafka
		e.DeadLetters, e.Want = nil, func(*kgo.Record) int { return 0 }
	}
	h := w.kit.History(w.t, e)
	conceded = make(map[string]bool)
	for _, f := range check.Judge(h).Findings {
		if !f.Conceded {
			found = append(found, f.String())
			continue
		}
		w.note("conceded: %v", f)
		for _, r := range w.fed {
			if f.Topic == topicIn && r.partition == f.Partition && f.First <= r.offset && r.offset <= f.Last {
				conceded[r.value] = true
			}
		}
	}
	return conceded, found
}

// hanging finds logs in which a transaction has not ended.
func (w *world) hanging() (found []string) {
	for _, name := range []string{topicIn, topicOut, topicSide, topicDead, topic.Name(group)} {
		for p := range w.broker.Partitions(name) {
			switch b, err := w.broker.Bounds(name, p); {
			case err != nil:
				found = append(found, fmt.Sprintf("unread: %s-%d: %v", name, p, err))
			case b.LastStable < b.End:
				found = append(found, fmt.Sprintf("hanging: %s-%d: last stable offset %d of %d", name, p, b.LastStable, b.End))
			}
		}
	}
	return found
}

// archived finds records that went at their delivery limit: a script must leave
// enough deliveries for that never to be.
func (w *world) archived() (found []string) {
	for _, s := range w.broker.PartitionStates(group) {
		if s.ArchivedAtLimit > 0 {
			found = append(found, fmt.Sprintf("archived: %s-%d: %d records at their delivery limit", topicIn, s.Partition, s.ArchivedAtLimit))
		}
	}
	return found
}

// rule is the word that a finding begins with.
func rule(finding string) string {
	r, _, _ := strings.Cut(finding, ":")
	return r
}
