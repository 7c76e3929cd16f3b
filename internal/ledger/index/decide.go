package index

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/sharetxn/sharetxn/internal/ledger/entry"
)

// Verdict is what the ledger says of one source offset.
type Verdict uint8

const (
	// Unsure: continuity was lost, and no start was told that settles it. Wait, as
	// for Open. The zero value.
	Unsure Verdict = iota
	// Fresh: nothing covers it that is committed or undecided. Work on it.
	Fresh
	// Done: a transaction that covers it has committed. Accept it, no work.
	Done
	// Open: a transaction that covers it is undecided. Wait, and look again.
	Open
	// Below: it lies below the share partition's start. Whoever still holds it
	// lost it long ago: neither work on it nor acknowledge it in any way.
	Below
)

func (v Verdict) String() string {
	switch v {
	case Unsure:
		return "unsure"
	case Fresh:
		return "fresh"
	case Done:
		return "done"
	case Open:
		return "open"
	case Below:
		return "below"
	}
	return "Verdict(" + strconv.Itoa(int(v)) + ")"
}

// Look says what the ledger says of one source offset.
func (x *Index) Look(topic [16]byte, offset int64) Verdict {
	v, _ := x.judge(topic, offset, math.MaxInt64, Producer{ID: -1})
	return v
}

// judge gives the verdict on an offset as far as entries before the ledger offset
// before tell that are not of a producer's own transaction, and the last offset
// up to which it is the same.
func (x *Index) judge(topic [16]byte, offset, before int64, own Producer) (v Verdict, last int64) {
	v, last = Fresh, math.MaxInt64
	s := x.sources[topic]
	if !x.settled(s) {
		v = Unsure
	}
	if s == nil {
		return v, last
	}
	if offset < s.floor {
		return Below, s.floor - 1
	}
	if i := s.done.seek(offset); i < len(s.done) {
		if s.done[i].First <= offset {
			return Done, s.done[i].Last
		}
		last = s.done[i].First - 1
	}
	for _, pe := range s.open {
		if pe.at >= before || pe.producer == own {
			continue
		}
		i := seek(pe.Ranges, offset)
		switch {
		case i == len(pe.Ranges):
		case pe.Ranges[i].First <= offset:
			return Open, min(last, pe.Ranges[i].Last)
		default:
			last = min(last, pe.Ranges[i].First-1)
		}
	}
	return v, last
}

// settled reports whether no gap leaves a doubt about a source partition: since
// the last one, a start was read, the log was told up to where it ended then,
// and it still names the generation in force.
func (x *Index) settled(s *source) bool {
	return !x.gapped || s != nil && s.asOf >= x.resumed && x.next >= s.end && x.written >= 0
}

// Kind is what may become of a transaction.
type Kind uint8

const (
	// Unread: the log was not told past the entry yet. Ask again when it was. The
	// zero value.
	Unread Kind = iota
	// Commit: nothing speaks against it.
	Commit
	// Conflict: an offset is not, or not surely, this transaction's to decide.
	// Abort, and look again.
	Conflict
	// Ended: the entry is not there, or its transaction was ended by somebody
	// else. Abort.
	Ended
	// Stale: the ledger is in another generation, or being reset. Abort, and stop.
	Stale
)

func (k Kind) String() string {
	switch k {
	case Unread:
		return "unread"
	case Commit:
		return "commit"
	case Conflict:
		return "conflict"
	case Ended:
		return "ended"
	case Stale:
		return "stale"
	}
	return "Kind(" + strconv.Itoa(int(k)) + ")"
}

// Decision is whether a transaction may commit as far as one of its entries
// goes. Of a Conflict it has the offsets that are in the way, ascending.
type Decision struct {
	Kind                      Kind
	Done, Open, Below, Unsure []entry.Range
}

func (d Decision) String() string {
	if d.Kind != Conflict {
		return d.Kind.String()
	}
	return fmt.Sprintf("conflict: done %v, open %v, below %v, unsure %v", d.Done, d.Open, d.Below, d.Unsure)
}

// Decide says whether the transaction of p may commit as far as its entry at the
// ledger offset at goes: it may if no offset of the entry is covered by an
// earlier one of another transaction that is committed or undecided. The answer
// holds for good once it is Commit: whoever comes later sees this entry.
func (x *Index) Decide(at int64, p Producer) Decision {
	if at >= x.next {
		return Decision{Kind: Unread}
	}
	own := x.find(at, p)
	switch {
	case own == nil:
		return Decision{Kind: Ended}
	case !x.active(own.Generation):
		return Decision{Kind: Stale}
	}
	d := Decision{Kind: Commit}
	for _, r := range own.Ranges {
		for offset := r.First; offset <= r.Last; {
			v, last := x.judge(own.TopicID, offset, at, p)
			last = min(last, r.Last)
			piece := entry.Range{First: offset, Last: last}
			switch v {
			case Done:
				d.Done = append(d.Done, piece)
			case Open:
				d.Open = append(d.Open, piece)
			case Below:
				d.Below = append(d.Below, piece)
			case Unsure:
				d.Unsure = append(d.Unsure, piece)
			}
			if v != Fresh {
				d.Kind = Conflict
			}
			offset = last + 1
		}
	}
	return d
}

// find gives the entry at the offset at if its transaction, of p, is undecided.
func (x *Index) find(at int64, p Producer) *pending {
	t := x.open[p.ID]
	if t == nil || t.epoch != p.Epoch {
		return nil
	}
	i := slices.IndexFunc(t.entries, func(pe *pending) bool { return pe.at == at })
	if i < 0 {
		return nil
	}
	return t.entries[i]
}

// active reports whether a generation is, as far as it was told, the one in force
// and nobody sets the group's offsets.
func (x *Index) active(generation int64) bool {
	return x.clash == nil && x.number == generation && x.generation.Number == generation && x.generation.Phase == entry.Active
}
