package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kerr"
)

// standing tells whether what a Processor works under still stands.
type standing interface {
	Done() <-chan struct{} // closed when it does not any more
	Err() error            // why, then
}

var (
	_ standing = groupLedger(nil)
	_ standing = (*bond)(nil)
)

// bond is the standing of a guarantee without a ledger in use. A group is bound to
// one while it has no members, but a process that was cut off for so long comes
// back as a member, and must not go on with what it was started under: who has a
// ledger would not find there what it does.
type bond struct {
	cl        *sharetxn.Cluster
	group     string
	guarantee Guarantee
	seen      map[int32]int64 // how far the ledger's partitions had come when it was read

	done chan struct{}
	err  error // set before done is closed
}

func newBond(cl *sharetxn.Cluster, group string, g Guarantee) *bond {
	return &bond{cl: cl, group: group, guarantee: g, done: make(chan struct{})}
}

// Done implements standing.
func (b *bond) Done() <-chan struct{} { return b.done }

// Err implements standing; it is for after Done.
func (b *bond) Err() error { return b.err }

// bondEvery is how often it is looked at. It costs little while nothing is written
// into a ledger, and without one.
const bondEvery = 10 * time.Second

// watch looks until ctx ends or the group is bound otherwise. A group that can have
// no ledger is bound to nothing.
func (b *bond) watch(ctx context.Context) {
	if topic.CheckGroup("Run", b.group) != nil {
		return
	}
	for next := time.Second; lapse.For(ctx, next); next = bondEvery { // soon at first: it may have been bound while the members joined
		if err := b.look(ctx); err != nil {
			b.err = &sharetxn.Error{Op: "Run", Class: sharetxn.ClassFatal, Group: b.group, Err: err}
			close(b.done)
			return
		}
	}
}

// look tells why the guarantee does not stand any more; nil also where that cannot
// be seen now.
func (b *bond) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startFor)
	defer cancel()
	ends, err := topic.Ends(ctx, core.Of(b.cl), b.group)
	if err != nil || maps.Equal(ends, b.seen) {
		return nil
	}
	g, err := topic.Recorded(ctx, core.Of(b.cl), b.group)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed), err != nil && !sharetxn.IsFatal(err):
		return nil
	case err != nil: // it is being moved
		return err
	case g != entry.Generation{} && g.Guarantee != b.guarantee.String():
		return fmt.Errorf("%w: it was moved to %s while this process worked under %v; start it anew with that in Config.Guarantee", ErrGuarantee, g.Guarantee, b.guarantee)
	}
	b.seen = ends
	return nil
}
