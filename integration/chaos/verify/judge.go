package verify

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
)

// Judge holds what is visible against what the source asks for. First it is told
// all of the source and the rounds, then of what is visible, in any order, and
// then of what there is besides.
type Judge struct {
	terms     Terms
	verdict   Verdict
	source    map[Part][]want // by offset, without gaps
	rounds    []Round
	seen      []map[Part][]got    // by round
	delivered map[delivery]counts // that were logged
	traces    map[delivery][]Txn  // of what is not visible
}

// Terms are what a judge goes by, beside the source and what is visible.
type Terms struct {
	// Limit of deliveries.
	Limit int
	// Cuts is how often a process, a broker or a connection between them was cut
	// off: each can have kept one delivery of a record from its member's log.
	Cuts int
	// Written is what the brokers have written last of an offset, in a round.
	Written func(round int, p Part, offset int64) (Delivery, int)
}

// counts are a set of delivery counts: bit n is the n-th.
type counts uint64

func (c counts) String() string {
	var all []string
	for n := range 64 {
		if c&(1<<n) != 0 {
			all = append(all, fmt.Sprint(n))
		}
	}
	return "[" + strings.Join(all, " ") + "]"
}

// Round is a time in which the group's offsets were not reset.
type Round struct {
	// From is where it began. Below Through every record must be through, once;
	// above none has to be. Both by partition; what is not named is 0.
	From, Through map[Part]int64
}

type want struct {
	digest  uint64
	kind    task.Kind
	outputs uint8
}

// got is what is visible of a source record in one round.
type got struct {
	indexes uint8 // a bit for each output
	dead    bool
	doubled bool // told already
	txn     Txn
}

type delivery struct {
	round int
	at    task.At
}

// NewJudge has been told nothing yet.
func NewJudge(terms Terms, rounds ...Round) *Judge {
	j := &Judge{terms: terms, rounds: rounds, verdict: Verdict{Written: make(map[Delivery]int)}, source: make(map[Part][]want), delivered: make(map[delivery]counts), traces: make(map[delivery][]Txn)}
	for range rounds {
		j.seen = append(j.seen, make(map[Part][]got))
	}
	return j
}

// Source is told of a partition's records in their order, from offset 0 on.
func (j *Judge) Source(p Part, value []byte) {
	w := want{task.Digest(value), task.KindOf(value), uint8(task.Outputs(value))}
	j.source[p] = append(j.source[p], w)
	for _, seen := range j.seen {
		seen[p] = append(seen[p], got{})
	}
	j.verdict.Sources++
}

// Visible is told of an output or dead letter that readers see.
func (j *Judge) Visible(t task.Tag, txn Txn) {
	p := Part{t.At.Topic, t.At.Partition}
	switch {
	case t.Round < 1 || t.Round > len(j.rounds):
		j.verdict.found(Wrong, t.At, "of round %d, which was not", t.Round)
		return
	case t.At.Offset >= int64(len(j.source[p])):
		j.verdict.found(Wrong, t.At, "there is no such source record")
		return
	}
	w, g := j.source[p][t.At.Offset], &j.seen[t.Round-1][p][t.At.Offset]
	if t.Digest != w.digest {
		j.verdict.found(Wrong, t.At, "made from other contents than the source has")
	}
	if t.At.Offset < j.rounds[t.Round-1].From[p] {
		j.verdict.found(Wrong, t.At, "round %d began above it", t.Round)
	}
	fresh := g.indexes == 0 && !g.dead
	if t.Index == 0 {
		j.dead(t, w, g)
	} else {
		j.output(t, w, g)
	}
	if fresh {
		g.txn = txn
	} else if g.txn != txn && !g.doubled {
		j.verdict.found(Split, t.At, "transactions %v and %v", g.txn, txn)
	}
}

func (j *Judge) output(t task.Tag, w want, g *got) {
	j.verdict.Outputs++
	switch bit := uint8(1) << min(t.Index-1, 7); {
	case t.Index > int(w.outputs):
		j.verdict.found(Wrong, t.At, "output %d of %d", t.Index, w.outputs)
	case w.kind != task.Plain:
		j.verdict.found(Wrong, t.At, "an output of what nobody can handle")
	case g.indexes&bit != 0 || g.dead:
		j.double(t, g)
	default:
		g.indexes |= bit
	}
}

func (j *Judge) dead(t task.Tag, w want, g *got) {
	j.verdict.Rejected++
	if w.kind == task.Plain {
		j.verdict.Healthy++
	}
	if g.dead || g.indexes != 0 {
		j.double(t, g)
	}
	g.dead = true
}

// double tells of a source record once, however often it is there.
func (j *Judge) double(t task.Tag, g *got) {
	if !g.doubled {
		j.verdict.found(Duplicate, t.At, "round %d, seen first in transaction %v", t.Round, g.txn)
	}
	g.doubled = true
}

// Delivered is told what members logged: a record came for the count-th time.
func (j *Judge) Delivered(round int, at task.At, count int) {
	j.delivered[delivery{round, at}] |= 1 << min(count, 63)
}

// Trace is told of an output or dead letter that lies in a log, visible or not.
func (j *Judge) Trace(t task.Tag, txn Txn) {
	p := Part{t.At.Topic, t.At.Partition}
	if t.Round < 1 || t.Round > len(j.rounds) || t.At.Offset >= int64(len(j.source[p])) {
		return
	}
	if g := j.seen[t.Round-1][p][t.At.Offset]; g.dead || g.indexes != 0 {
		return
	}
	d := delivery{t.Round, t.At}
	if !slices.Contains(j.traces[d], txn) {
		j.traces[d] = append(j.traces[d], txn)
	}
}

// Verdict judges all that was told.
func (j *Judge) Verdict() *Verdict {
	for i, r := range j.rounds {
		for p, seen := range j.seen[i] {
			for o := r.From[p]; o < int64(len(seen)); o++ {
				j.complete(i+1, p, o, o < r.Through[p])
			}
		}
	}
	return &j.verdict
}

// complete looks whether a source record is through in a round.
func (j *Judge) complete(round int, p Part, offset int64, must bool) {
	w, g := j.source[p][offset], j.seen[round-1][p][offset]
	at := task.At{Topic: p.Topic, Partition: p.Partition, Offset: offset}
	if must {
		state, _ := j.terms.Written(round, p, offset)
		j.verdict.Written[state]++
	}
	switch count := bits.OnesCount8(g.indexes); {
	case g.dead || g.doubled: // told as a duplicate if there are outputs too
	case count > 0 && count < int(w.outputs):
		j.verdict.found(Partial, at, "%d of %d outputs", count, w.outputs)
	case count == 0 && must:
		j.gone(round, p, at, w)
	}
}

// gone judges a source record of which nothing is visible: it is archived where
// the brokers wrote so, at the limit of deliveries, and members logged them, but
// for those that were cut off. Whatever else the brokers wrote, it is missing.
func (j *Judge) gone(round int, p Part, at task.At, w want) {
	d := delivery{round, at}
	state, count := j.terms.Written(round, p, at.Offset)
	logged := j.delivered[d]
	const first = 2 // the first delivery is not logged
	unseen := 0
	for n := first; n <= j.terms.Limit; n++ {
		if logged&(1<<n) == 0 {
			unseen++
		}
	}
	if state == Archived && count >= j.terms.Limit && unseen <= j.terms.Cuts {
		j.verdict.Archived = append(j.verdict.Archived, Archive{At: at, Round: round, Kind: w.kind, Logged: logged, Unseen: unseen})
		return
	}
	why := "the brokers did not come to an end with it"
	switch {
	case state == Archived && count >= j.terms.Limit:
		why = fmt.Sprintf("archived at the limit, with %d deliveries that nobody logged, and only %d cuts", unseen, j.terms.Cuts)
	case state == Archived:
		why = "a member rejected it"
	case state == Acknowledged:
		why = "a member acknowledged it"
	}
	j.verdict.found(Missing, at, "kind %c, round %d: %s (%v at delivery %d of %d; logged: %v; its outputs lie in transactions %v, none of them committed)",
		w.kind, round, why, state, count, j.terms.Limit, logged, j.traces[d])
}
