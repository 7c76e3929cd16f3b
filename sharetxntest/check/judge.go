package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Judge holds a history against all rules. It is pure.
func Judge(h *History) Report {
	j := &judge{story: fold(h)}
	if len(j.Outputs) == 0 {
		j.outputs = j.published()
	} else {
		j.outputs = j.Outputs
	}
	for _, t := range j.txns {
		if t.ours && t.committed() {
			j.report.Transactions++
		}
	}
	for _, at := range j.places() {
		j.partition(at)
	}
	j.rest()
	j.shown()
	j.letters()
	j.reports()
	j.fenced()
	j.readRules()
	j.bound()
	j.report.Findings = join(j.report.Findings)
	j.report.Unjudged = j.unjudged()
	return j.report
}

type judge struct {
	*story
	outputs []string
	report  Report
}

func (j *judge) add(rule Rule, kind Kind, at Range, txns []Txn, format string, args ...any) *Finding {
	j.report.Findings = append(j.report.Findings, Finding{Rule: rule, Kind: kind, Range: at, Txns: txns, What: fmt.Sprintf(format, args...)})
	return &j.report.Findings[len(j.report.Findings)-1]
}

// sourced tells whether a topic is one that the group consumes.
func (j *judge) sourced(topic string) bool {
	for p := range j.shares {
		if p.Topic == topic {
			return true
		}
	}
	return slices.ContainsFunc(j.sources, func(s Source) bool { return s.Topic == topic })
}

// published gives the topics that the group's transactions wrote to, but for
// its sources and its ledger.
func (j *judge) published() []string {
	all := make(map[string]bool)
	for _, t := range j.txns {
		if !t.ours {
			continue
		}
		for _, r := range t.produced {
			all[r.Topic] = true
		}
	}
	delete(all, j.Ledger)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(all)), j.sourced)
}

func one(p Place, offset int64) Range { return Range{p, offset, offset} }

func by(claims []claim) (out []Txn) {
	for _, c := range claims {
		out = append(out, c.by)
	}
	return out
}

// txnName is how a transaction is called in findings.
func (j *judge) txnName(k Txn) string {
	if t := j.txns[k]; t != nil && t.id != "" {
		return fmt.Sprintf("transaction %s (%d/%d)", t.id, k.Producer, k.Epoch)
	}
	return fmt.Sprintf("transaction %d/%d", k.Producer, k.Epoch)
}

func (j *judge) txnNames(all []Txn) string {
	names := make([]string, len(all))
	for i, k := range all {
		names[i] = j.txnName(k)
	}
	return strings.Join(names, ", ")
}

// partition judges what became of the source records of one partition.
func (j *judge) partition(at Place) {
	share, read := j.shares[at]
	if n := share.Acquired + share.Staged; n > 0 {
		j.add(I3, Left, Range{at, share.Start, max(share.Start, share.End-1)}, nil, "%d acquired and %d staged at rest", share.Acquired, share.Staged)
	}
	for offset, last := range j.records[at] {
		if last.source == nil {
			continue
		}
		here := one(at, offset)
		for _, r := range j.rounds(at, offset) {
			j.round(here, r)
		}
		if set, ok := j.resets[at]; !ok || offset >= set.start {
			j.done(here, last, j.counted(last), share, read)
		}
	}
}

// round judges a source record's way from a reset to the next.
func (j *judge) round(here Range, r *record) {
	if r.miscounted {
		j.add(I7, Miscounted, here, nil, "a delivery did not count one more")
	}
	if r.astray {
		j.add(I1, Contradiction, here, by(r.claims), "its acknowledgement did not follow its transaction")
	}
	claims := j.counted(r)
	if len(claims) > 0 {
		j.report.Acknowledged++
	}
	j.decided(here, r, claims)
	j.complete(here, r, claims)
	j.late(here, r, claims)
}

// late judges what was begun before a reset and committed after it: the record was
// set back by then, and is done once more.
func (j *judge) late(here Range, r *record, claims []claim) {
	for _, c := range claims {
		if r.until > 0 && j.txns[c.by].ended > r.until {
			j.add(I1, Duplicate, here, []Txn{c.by}, "%s committed it after a reset of the group, which has it done once more", j.txnName(c.by))
		}
	}
}

// counted gives the claims that count: committed, and of the newest generation of
// the ledger.
func (j *judge) counted(r *record) []claim {
	all := j.committed(r)
	newest := int64(0)
	for _, c := range all {
		newest = max(newest, c.generation)
	}
	return slices.DeleteFunc(all, func(c claim) bool { return c.generation < newest })
}

// plain tells whether acknowledgements follow their transactions.
func (j *judge) plain() bool { return j.Guarantee != GuaranteeStaged }

// decided holds a record's acknowledgement against the transactions that
// committed it: there must be one of each.
func (j *judge) decided(here Range, r *record, claims []claim) {
	accepted := r.accepted > 0
	switch {
	case len(claims) > 1:
		j.duplicate(here, r, claims)
	case len(claims) == 1 && accepted && !j.plain():
		j.add(I1, Duplicate, here, by(claims), "acknowledged by %s, and plainly", j.txnName(claims[0].by))
	case len(claims) > 0:
	case r.atLimit:
		j.add(I7, Discarded, here, nil, "archived after %d deliveries, its limit%s", r.count, j.health(r))
	case j.workless(r):
	case accepted && j.plain():
		j.add(I1, Missed, here, nil, "acknowledged, and %s", j.missingClaim())
	case accepted:
		j.add(I1, Missed, here, nil, "accepted plainly, outside of any transaction")
	case r.rejected > 0 && j.Guarantee == GuaranteeLedger && !j.linked:
		j.add(I1, Missed, here, nil, "rejected, and %s", j.missingClaim())
	case r.state.done() && r.rejected == 0:
		j.add(I1, Missed, here, nil, "%s by no committed transaction", r.state)
	}
	j.early(here, r, claims)
}

// health says how often handlers failed a record, where they tell.
func (j *judge) health(r *record) string {
	if !j.told["handled"] {
		return ""
	}
	return fmt.Sprintf("; handlers failed %d times", r.failed)
}

// workless tells whether nothing need be visible of a record, where outputs are
// the only trace of work.
func (j *judge) workless(r *record) bool {
	return j.linked && r.source.Outputs != nil && *r.source.Outputs == 0
}

func (j *judge) missingClaim() string {
	if j.linked {
		return "no visible output names it"
	}
	return "no committed entry of the ledger covers it"
}

// early judges whether a plain acknowledgement came before the commit that it
// relies on: had the process died in between, the record would be lost.
func (j *judge) early(here Range, r *record, claims []claim) {
	at := max(r.accepted, r.rejected)
	if at == 0 || !j.plain() || len(claims) == 0 || !j.told["ended"] {
		return
	}
	if !slices.ContainsFunc(claims, func(c claim) bool { t := j.txns[c.by]; return t.ended > 0 && t.ended < at }) {
		j.add(I1, Early, here, by(claims), "acknowledged before %s had committed", j.txnNames(by(claims)))
	}
}

// duplicate judges a record of several committed transactions. Profile KIP93
// concedes it where all of them but one had lost the record before they ended;
// guarantee AckAfterCommit always.
func (j *judge) duplicate(here Range, r *record, claims []claim) {
	window := j.concession(r, claims)
	why := "not conceded"
	if window != "" {
		why = "conceded: " + window
		j.report.Doubled++
	}
	rule := I1
	if j.overlapped(r, claims) {
		rule = I6
	}
	f := j.add(rule, Duplicate, here, by(claims), "acknowledged by %s (%s)", j.txnNames(by(claims)), why)
	f.Conceded, f.Window = window != "", window
}

// concession says what allows a duplicate; "" if nothing does.
func (j *judge) concession(r *record, claims []claim) string {
	if j.Guarantee == GuaranteeAckAfterCommit {
		return "at least once"
	}
	if j.Guarantee != GuaranteeStaged || j.Profile != ProfileKIP93 {
		return ""
	}
	var windows []string
	for _, c := range claims {
		switch c.lost {
		case LostLock:
			windows = append(windows, "its lock ended while it was staged")
		case LostLeader:
			windows = append(windows, "its leader or broker was lost while it was staged")
		}
	}
	if len(windows) < len(claims)-1 {
		return ""
	}
	slices.Sort(windows)
	return strings.Join(slices.Compact(windows), "; ")
}

// overlapped tells whether two published a record that both held: the earlier
// delivery had ended without its holder's act, and the later one began before
// the earlier holder's transaction was decided.
func (j *judge) overlapped(r *record, claims []claim) bool {
	for _, a := range claims {
		for _, b := range claims {
			ended := j.txns[a.by].ended
			if j.Guarantee == GuaranteeStaged && !j.linked {
				if a.delivery < b.delivery && b.delivery < ended && slices.Contains(r.ghosts, a.delivery) {
					return true
				}
				continue
			}
			// Whose delivery a plain acknowledgement's transaction was of, nothing tells.
			if a.by != b.by && slices.ContainsFunc(r.ghosts, func(g int) bool { return g < ended }) {
				return true
			}
		}
	}
	return false
}

// complete judges the outputs that name a record.
func (j *judge) complete(here Range, r *record, claims []claim) {
	for _, v := range append(slices.Clone(r.outputs), r.letters...) {
		if v.Txn == nil || j.linked || slices.ContainsFunc(claims, func(c claim) bool { return c.by == *v.Txn }) {
			continue
		}
		if slices.ContainsFunc(j.committed(r), func(c claim) bool { return c.by == *v.Txn }) {
			continue // of an older generation of the ledger
		}
		j.add(I1, Foreign, here, []Txn{*v.Txn}, "%s-%d offset %d is an output of it by %s, which did not acknowledge it", v.Topic, v.Partition, v.First, j.txnName(*v.Txn))
	}
	for _, c := range claims {
		if c.verdict == Reject || r.rejected > 0 || slices.ContainsFunc(r.letters, func(v *Visible) bool { return v.Txn != nil && *v.Txn == c.by }) {
			continue
		}
		j.whole(here, r, c.by)
	}
}

// whole judges whether a record has all of its outputs by a transaction, once.
func (j *judge) whole(here Range, r *record, k Txn) {
	seen, count, want := make(map[int]int), 0, -1
	for _, v := range r.outputs {
		if v.Txn == nil || *v.Txn != k {
			continue
		}
		count++
		if v.Nth > 0 {
			seen[v.Nth]++
		}
		if v.Of > 0 {
			want = v.Of
		}
	}
	if r.source.Outputs != nil {
		want = *r.source.Outputs
	}
	for nth, n := range seen {
		if n > 1 {
			j.add(I1, Partial, here, []Txn{k}, "output %d of it is there %d times by %s", nth, n, j.txnName(k))
		}
	}
	if want >= 0 && count != want {
		j.add(I1, Partial, here, []Txn{k}, "%d of its %d outputs are visible by %s", count, want, j.txnName(k))
	}
}

// done judges whether a record is done for the group.
func (j *judge) done(here Range, r *record, claims []claim, share Share, read bool) {
	undone := !r.state.done()
	if !j.Observed { // only the share partition tells
		undone = !read || here.First >= share.Start
	}
	switch {
	case !undone:
	case !read || here.First >= share.Start:
		if read || j.told["share"] {
			j.add(I3, Left, here, by(claims), "not done for the group")
		}
	case r.state != "" || !j.Observed:
		j.add(I1, Missed, here, nil, "passed over by the group's start offset while it was %s", r.state)
	}
	if !j.Observed && !undone && len(claims) == 0 && !j.workless(r) {
		j.add(I1, Missed, here, nil, "done for the group, and no visible output names it")
	}
}

// rest judges what lies in the cluster when all is over.
func (j *judge) rest() {
	for p, l := range j.logs {
		if l.Stable < l.End {
			j.add(I3, Hanging, Range{p, l.Stable, l.End - 1}, nil, "the last stable offset is below the high watermark: a transaction has not ended")
		}
	}
}

// shown holds what is visible against the transactions that committed.
func (j *judge) shown() {
	for p, records := range j.visible {
		if !slices.Contains(j.outputs, p.Topic) {
			continue
		}
		for offset, v := range records {
			here := one(p, offset)
			switch {
			case v.Txn == nil:
				j.add(I1, Stray, here, nil, "visible, and written outside of any transaction")
			case !j.Observed:
				j.report.Outputs++
			default:
				j.output(here, *v.Txn)
			}
		}
	}
	if !j.Observed {
		return
	}
	for _, t := range j.txns {
		if t.ours && t.commit {
			j.missing(t)
		}
	}
}

func (j *judge) output(here Range, k Txn) {
	switch t := j.txns[k]; {
	case t == nil || !t.commit:
		j.add(I4, Stray, here, []Txn{k}, "visible, and %s did not commit", j.txnName(k))
	case t.acks <= 0 && !j.linked:
		j.add(I1, Unacknowledged, here, []Txn{k}, "published by %s, which acknowledged nothing", j.txnName(k))
	case t.ours:
		j.report.Outputs++
	}
}

// missing judges whether all that a committed transaction wrote is visible.
func (j *judge) missing(t *transaction) {
	for _, r := range t.produced {
		switch {
		case r.Topic == j.Ledger, j.sourced(r.Topic):
		case !slices.Contains(j.outputs, r.Topic):
			j.add(I1, Elsewhere, r, []Txn{t.Txn}, "published by %s, on a topic that is not among the outputs", j.txnName(t.Txn))
		default:
			for o := max(r.First, j.logs[r.Place].Start); o <= r.Last; o++ {
				if v := j.visible[r.Place][o]; v == nil || v.Txn == nil || *v.Txn != t.Txn {
					j.add(I4, Missing, one(r.Place, o), []Txn{t.Txn}, "%s committed it, and it is not visible", j.txnName(t.Txn))
				}
			}
		}
	}
}

// letters holds dead letters against rejected records.
func (j *judge) letters() {
	if len(j.DeadLetters) == 0 {
		return
	}
	for at, records := range j.records {
		for offset, last := range records {
			if last.source == nil {
				continue
			}
			for _, r := range j.rounds(at, offset) {
				j.letter(one(at, offset), r)
			}
		}
	}
	for p, records := range j.visible {
		if !slices.Contains(j.DeadLetters, p.Topic) {
			continue
		}
		for offset, v := range records {
			if v.From == nil {
				j.add(I2, Letter, one(p, offset), nil, "it does not say which record it is of")
			} else if r := j.records[v.From.Place][v.From.Offset]; r == nil || r.source == nil {
				j.add(I2, Letter, one(p, offset), nil, "it is of %s-%d offset %d, which is no source record", v.From.Topic, v.From.Partition, v.From.Offset)
			}
		}
	}
}

func (j *judge) letter(here Range, r *record) {
	claims := j.counted(r)
	window := ""
	if len(claims) > 1 {
		window = j.concession(r, claims)
	}
	rejected := r.rejected > 0
	for _, c := range claims {
		rejected = rejected || c.verdict == Reject
	}
	letters := slices.DeleteFunc(slices.Clone(r.letters), func(v *Visible) bool {
		return v.Txn != nil && !slices.ContainsFunc(claims, func(c claim) bool { return c.by == *v.Txn }) &&
			slices.ContainsFunc(j.committed(r), func(c claim) bool { return c.by == *v.Txn }) // an older generation's
	})
	var f *Finding
	switch n := len(letters); {
	case n == 0 && rejected:
		j.add(I2, Letter, here, by(claims), "rejected, and there is no dead letter of it")
	case n > 1:
		f = j.add(I2, Letter, here, by(claims), "%d dead letters of it", n)
	case n == 1 && !rejected && j.Guarantee == GuaranteeStaged:
		f = j.add(I2, Letter, here, by(claims), "there is a dead letter of it, and it was not rejected")
	case n == 1 && len(r.outputs) > 0 && len(claims) == 1:
		j.add(I2, Letter, here, by(claims), "there are a dead letter and outputs of it")
	}
	if f != nil {
		f.Conceded, f.Window = window != "", window
	}
}

// unjudged says which rules nothing tells of.
func (j *judge) unjudged() map[Rule]string {
	out := make(map[Rule]string)
	need := func(rule Rule, what string, events ...string) {
		if !slices.ContainsFunc(events, func(e string) bool { return j.told[e] }) {
			out[rule] = what
		}
	}
	need(I1, "no source records", "source")
	if j.linked && !slices.ContainsFunc(j.Lines, func(l Line) bool { v, ok := l.Event.(Visible); return ok && v.From != nil }) {
		out[I1] = "no visible record names its source, and nothing else tells what a transaction did"
	}
	if len(j.resets) > 0 {
		need(I1, "the group was reset, and nothing tells which transactions had ended", "ended")
	}
	if len(j.DeadLetters) == 0 {
		out[I2] = "no dead letter topic is named"
	}
	need(I3, "no share partitions", "share")
	need(I3, "no bounds of logs", "log")
	need(I4, "no reports of clients", "reported")
	need(I5, "no InitProducerId", "initialised")
	need(I6, "no deliveries", "delivered")
	need(I7, "no deliveries", "delivered")
	need(I8, "no reader", "read", "reached")
	need(I9, "nobody says when faults were over", "calm")
	if j.Bound == 0 {
		out[I9] = "no bound is set"
	}
	return out
}

// bound judges whether all was done in time.
func (j *judge) bound() {
	if j.Bound == 0 {
		return
	}
	for _, p := range j.calm {
		took := p.to.Sub(p.from)
		switch {
		case !p.drained:
			j.add(I9, Slow, Range{}, nil, "nobody saw that all was done after the faults were over at %s (no drained after that calm)", p.from.Format(time.RFC3339Nano))
		case took > j.Bound:
			j.add(I9, Slow, Range{}, nil, "all was done %v after the faults were over at %s, and not in %v", took, p.from.Format(time.RFC3339Nano), j.Bound)
		}
	}
}
