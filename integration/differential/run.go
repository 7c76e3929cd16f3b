package differential

import (
	"context"
	"fmt"
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
// loaded, when a start offset is told, when a trimmed log is noticed.
const patience = 3 * time.Second

// run runs the list on both sides; nil if every answer was the same.
func run(ctx context.Context, a, b *side, ops []Op) (*Difference, error) {
	var have held
	for i, o := range ops {
		acks := have.resolve(o)
		if len(acks) == 0 && (o.Verb == Ack || o.Verb == Renew) {
			continue // nothing is named
		}
		x, y, err := both(ctx, a, b, o, acks)
		if err != nil {
			return nil, fmt.Errorf("operation %d, %v: %w", i+1, o, err)
		}
		// Asked again is only what changed nothing.
		again := o
		if o.Verb == FetchAck {
			again.Verb = Fetch
		}
		for end := time.Now().Add(patience); x.text != y.text && time.Now().Before(end); {
			switch {
			case o.Verb == Describe:
				x, y, err = both(ctx, a, b, o, nil)
			case x.empty && !y.empty && y.acquired != nil && o.Verb == Fetch:
				x, err = a.do(ctx, again, nil)
			case y.empty && !x.empty && x.acquired != nil && o.Verb == Fetch:
				y, err = b.do(ctx, again, nil)
			default:
				end = time.Time{}
			}
			if err != nil {
				return nil, fmt.Errorf("operation %d, %v, again: %w", i+1, o, err)
			}
		}
		if x.text != y.text {
			return &Difference{i, o, acks, x.text, y.text}, nil
		}
		have.update(o, acks, x)
	}
	return nil, nil
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
// held and goes on as long as these are neighbours.
func (h *held) resolve(o Op) (acks []byhand.Ack) {
	mine := h[o.Member][o.Partition]
	for _, r := range o.Ranges {
		switch {
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
	if got.gave && o.Verb != Fetch {
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
