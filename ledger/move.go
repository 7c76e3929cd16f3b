package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Moved is what a Move did.
type Moved struct {
	From string // the guarantee before; as To if there was nothing to do
	To   string
	// Accepted are the records that were done and not acknowledged, and are
	// acknowledged now. Released are those that had to be taken hold of meanwhile and
	// were given back, which cost each a delivery.
	Accepted, Released int64
	// LastDelivery are those of Released that had no delivery left: the brokers have
	// archived them, undone. Nothing else is lost.
	LastDelivery []Offset
}

// Offset is a source record.
type Offset struct {
	Topic     string
	Partition int32
	Offset    int64
}

// Move puts a group under another guarantee: Ledger, Staged or AckAfterCommit. From
// Ledger it first sees that the ledger is not needed any more: it waits until no
// transaction with entries is open, and acknowledges what a committed transaction
// has done and nobody acknowledged. For that it joins the group itself, where the
// group's lag is not 0: it can only take what it looks for together with other
// records, which it gives back, for one delivery each; meanwhile it sets the
// group's delivery limit to 10 where the group has a lower one. So stop the
// producers and let the group do all it has first, where a delivery matters. What
// it has not seen after the group's lock duration was acknowledged before.
//
// The group must have no members. Until Move has ended processors do not start, under
// whichever guarantee; one that failed half-way leaves it so, and the next Move, to
// the same guarantee or back, completes it. Run one at a time. It returns when every
// partition of the ledger says the new guarantee, at most when ctx ends. The ledger
// topic stays, since it says what the group's guarantee is.
//
// Errors: ErrGroupNotEmpty, ErrMissing, ErrNoGeneration, ErrMixed, ErrResetting,
// ErrChanged; class usage for arguments; fatal, with what to grant, where brokers
// refuse; what brokers were not reached for, or ctx was too short for, is abortable.
func Move(ctx context.Context, cl *sharetxn.Cluster, group, to string) (Moved, error) {
	const op = "Move"
	if err := check(op, cl, group); err != nil {
		return Moved{}, err
	}
	if guarantees := []string{Ledger, Staged, AckAfterCommit}; !slices.Contains(guarantees, to) {
		return Moved{}, usage(op, group, "to: %q is no guarantee; there are %q", to, guarantees)
	}
	out := Moved{To: to}
	err := use(cl, op, group, func(client *kgo.Client) error {
		if err := empty(ctx, client, op, group); err != nil {
			return err
		}
		since := time.Now()
		co := core.Of(cl)
		states, err := read(ctx, co, client, group)
		if err != nil {
			return err
		}
		plan, err := planMove(states, to)
		if err != nil {
			return unusable(op, group, err)
		}
		if out.From = plan.from; plan.done {
			return nil
		}
		next := entry.Generation{Number: states.Number() + 1, Guarantee: to, Phase: entry.Resetting, Group: group}
		if plan.drain {
			if err := topic.WriteGeneration(ctx, co, group, next, states.All()); err != nil {
				return halfway(op, group, err)
			}
			d := drainage{cl: cl, client: client, op: op, group: group, partitions: len(states), since: since, out: &out}
			if err := d.run(ctx); err != nil {
				return halfway(op, group, err)
			}
		}
		next.Phase = entry.Active
		return install(ctx, co, client, op, next, states.All())
	})
	return out, err
}

// movePlan is what a move has to do.
type movePlan struct {
	from  string
	done  bool // nothing
	drain bool // the ledger may be needed for what was done
}

// planMove decides by what the ledger says. One that another move left half-way is
// completed: what that had begun to drain is drained, what it had begun to put in
// force was drained.
func planMove(states topic.States, to string) (movePlan, error) {
	current, err := states.Current()
	switch {
	case err == nil:
		return movePlan{from: current.Guarantee, done: current.Guarantee == to, drain: current.Guarantee == Ledger && to != Ledger}, nil
	case errors.Is(err, topic.ErrMoving):
		return movePlan{from: Ledger, drain: true}, nil
	case !errors.Is(err, topic.ErrMixed) || states.Number() > current.Number:
		return movePlan{}, err
	}
	from := ""
	for _, s := range states {
		switch g := s.Generation; {
		case g == current:
		case g.Moving():
			from = Ledger
		case g.Phase == entry.Active && g.Guarantee != Ledger:
			from = g.Guarantee
		default: // of a reset, or something that no move leaves
			return movePlan{}, fmt.Errorf("%w (no move left it so)", err)
		}
	}
	return movePlan{from: from}, nil
}
