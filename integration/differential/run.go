package differential

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
)

// Difference is where two clusters answered an operation differently.
type Difference struct {
	At   int // index of the operation
	Op   Op
	Acks []byhand.Ack
	A, B string
}

// String implements fmt.Stringer.
func (d *Difference) String() string {
	return fmt.Sprintf("operation %d, %v, offsets %v:\n\treference: %s\n\tother:     %s", d.At+1, d.Op, d.Acks, d.A, d.B)
}

// held is what a member holds of each partition, by the reference's answers.
type held [members][partitions][]int64

// patience is for what the protocol leaves open: when a share partition is
// loaded, when a start offset is told.
const patience = 3 * time.Second

// run runs the list on both sides; nil if every answer was the same.
func run(ctx context.Context, a, b *side, ops []Op) (*Difference, error) {
	var have held
	var loose [partitions]bool
	for i, o := range ops {
		acks := have.resolve(o, a.unseen[o.Partition])
		if len(acks) == 0 && (o.Verb == Ack || o.Verb == Renew) {
			continue // nothing is named
		}
		x, y, err := both(ctx, a, b, o, acks)
		if err == nil && !x.same(y) {
			x, y, err = settle(ctx, a, b, o, x, y, loose[o.Partition] || givesBack(o) || soft(o, x, y))
		}
		if err != nil {
			return nil, fmt.Errorf("operation %d, %v: %w", i+1, o, err)
		}
		if !x.same(y) {
			return &Difference{i, o, acks, x.String(), y.String()}, nil
		}
		have.update(o, acks, x)
		switch o.Verb {
		case Close: // what it gives back is there some time after the answer
			loose = [partitions]bool{true, true}
		case Fetch, FetchAck:
			loose[o.Partition] = false
		case Produce, Commit, Abort, Ack, Renew, Astray, Describe:
		}
	}
	return nil, nil
}

// givesBack tells whether a fetch carries releases: they are there some time
// after it, with its answer or later.
func givesBack(o Op) bool {
	const release = 2
	return o.Verb == FetchAck && slices.ContainsFunc(o.Ranges, func(r Range) bool { return slices.Contains(r.Types, release) })
}

// soft tells whether the size of an answer is a broker's own affair: where not
// exactly so many records are asked for, whole batches come, as they lie in the
// log or as they were handed out before; exactly so many are a bound, below which
// a broker may stay that read too little of its log; and what was delivered often
// is handed out in small parts.
func soft(o Op, x, y answer) bool {
	const often = 3 // half of the delivery limit
	switch {
	case x.most() >= often || y.most() >= often:
		return true
	case o.Limit:
		return x.offsets() <= o.N && y.offsets() <= o.N && x.offsets() > 0 && y.offsets() > 0
	}
	return x.offsets() >= o.N && y.offsets() >= o.N
}

func (a answer) offsets() (n int) {
	for _, r := range a.acquired {
		n += int(r.Last - r.First + 1)
	}
	return n
}

// most is the highest delivery count.
func (a answer) most() (n int16) {
	for _, r := range a.acquired {
		n = max(n, r.Count)
	}
	return n
}

// settle asks again where an answer may come later on one side than on the
// other. It never forgives a difference in codes.
func settle(ctx context.Context, a, b *side, o Op, x, y answer, loose bool) (answer, answer, error) {
	var err error
	switch {
	case o.Verb == Describe:
		for end := time.Now().Add(patience); err == nil && !x.same(y) && time.Now().Before(end); {
			x, y, err = both(ctx, a, b, o, nil)
		}
	case x.text == y.text && x.fine && loose:
		// Which of several available records a limited fetch takes depends on
		// when they became available; all of them together do not.
		if err = a.drain(ctx, o, &x); err == nil {
			err = b.drain(ctx, o, &y)
		}
	case x.text == y.text && x.fine:
		for end := time.Now().Add(patience); err == nil && !x.same(y) && time.Now().Before(end); {
			switch {
			case x.got == "":
				err = a.again(ctx, o, &x)
			case y.got == "":
				err = b.again(ctx, o, &y)
			default:
				return x, y, nil
			}
		}
	}
	return x, y, err
}

// again fetches once more, without acknowledgements, and keeps the first
// answer's codes.
func (s *side) again(ctx context.Context, o Op, to *answer) error {
	o.Verb, o.Ranges = Fetch, nil
	more, err := s.do(ctx, o, nil)
	if err != nil {
		return err
	}
	if !more.fine {
		return fmt.Errorf("fetched again: %s", more.text)
	}
	to.bring(more.acquired, more.records)
	return nil
}

// drain fetches until nothing is left and adds it to the answer.
func (s *side) drain(ctx context.Context, o Op, to *answer) error {
	const all, enough = 500, 3
	o.N, o.Limit = all, false
	acquired, records := to.acquired, maps.Clone(to.records)
	for nothing := 0; nothing < enough; {
		var more answer
		if err := s.again(ctx, o, &more); err != nil {
			return err
		}
		nothing++
		if len(more.acquired) > 0 {
			nothing = 0
		}
		acquired = append(acquired, more.acquired...)
		maps.Copy(records, more.records)
	}
	to.bring(acquired, records)
	return nil
}

func both(ctx context.Context, a, b *side, o Op, acks []byhand.Ack) (x, y answer, err error) {
	var other error
	var wg sync.WaitGroup
	wg.Go(func() { y, other = b.do(ctx, o, acks) })
	x, err = a.do(ctx, o, acks)
	wg.Wait()
	if err != nil {
		return x, y, fmt.Errorf("on the reference: %w", err)
	}
	if other != nil {
		return x, y, fmt.Errorf("on the other: %w", other)
	}
	return x, y, nil
}

// resolve gives the ranges as offsets. A held one begins at the At-th offset
// held and goes on as long as these are neighbours. Raw ones are left out where aborted records
// were passed over: these are done, but when the start moves over them, and so
// what an acknowledgement of them is answered, is a broker's own affair.
func (h *held) resolve(o Op, unseen bool) (acks []byhand.Ack) {
	mine := h[o.Member][o.Partition]
	for _, r := range o.Ranges {
		switch {
		case !r.Held && unseen:
		case !r.Held:
			acks = append(acks, byhand.Ack{First: int64(r.At), Last: int64(r.At + r.Len - 1), Types: r.Types})
		case len(mine) > 0:
			at := r.At % len(mine)
			first, last := mine[at], mine[at]
			for at++; at < len(mine) && mine[at] == last+1 && last-first+1 < int64(r.Len); at++ {
				last++
			}
			types := r.Types
			if n := int(last - first + 1); len(types) == r.Len && len(types) > 1 {
				types = types[:n]
			}
			acks = append(acks, byhand.Ack{First: first, Last: last, Types: types})
		}
	}
	return acks
}

// update takes over what an answer changed.
func (h *held) update(o Op, acks []byhand.Ack, got answer) {
	mine := &h[o.Member][o.Partition]
	if got.taken && o.Verb != Fetch {
		*mine = slices.DeleteFunc(*mine, func(at int64) bool {
			return slices.ContainsFunc(acks, func(a byhand.Ack) bool { return a.First <= at && at <= a.Last && !renewed(a, at) })
		})
	}
	if o.Verb == Close {
		h[o.Member] = [partitions][]int64{}
	}
	for _, a := range got.acquired {
		for at := a.First; at <= a.Last; at++ {
			if !slices.Contains(*mine, at) {
				*mine = append(*mine, at)
			}
		}
	}
	slices.Sort(*mine)
}

func renewed(a byhand.Ack, at int64) bool {
	const renew = 4
	if len(a.Types) == 1 {
		return a.Types[0] == renew
	}
	return int(at-a.First) < len(a.Types) && a.Types[at-a.First] == renew
}
