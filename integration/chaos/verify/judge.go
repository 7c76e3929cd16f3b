package verify

import (
	"math/bits"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
)

// Judge holds what is visible against what the source asks for. First it is told
// all of the source and the rounds, then of what is visible, in any order.
type Judge struct {
	limit     int
	verdict   Verdict
	source    map[Part][]want // by offset, without gaps
	rounds    []Round
	seen      []map[Part][]got // by round
	delivered map[delivery]int // the most that was logged
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

// NewJudge for a group with that limit of deliveries.
func NewJudge(limit int, rounds ...Round) *Judge {
	j := &Judge{limit: limit, rounds: rounds, source: make(map[Part][]want), delivered: make(map[delivery]int)}
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
	d := delivery{round, at}
	j.delivered[d] = max(j.delivered[d], count)
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
	switch count := bits.OnesCount8(g.indexes); {
	case g.dead || g.doubled: // told as a duplicate if there are outputs too
	case count > 0 && count < int(w.outputs):
		j.verdict.found(Partial, at, "%d of %d outputs", count, w.outputs)
	case count > 0 || !must:
	case j.delivered[delivery{round, at}] >= j.limit:
		j.verdict.Archived = append(j.verdict.Archived, at)
	default:
		j.verdict.found(Missing, at, "kind %c, round %d, the last delivery logged is the %d. of %d", w.kind, round, j.delivered[delivery{round, at}], j.limit)
	}
}
