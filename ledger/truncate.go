package ledger

import (
	"context"
	"errors"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
)

// Truncate deletes from the log of a group's ledger what decides nothing any more:
// what comes before the first entry whose transaction is open, or committed with
// offsets at or above the start of its share partition. It gives how many offsets
// were deleted. Processors do it by themselves, about once a minute each; it is for
// the ledger of a group that does not run. It may run beside them. Safe for
// concurrent use.
//
// Errors: ErrMissing, ErrNoGeneration, ErrMixed, ErrResetting; fatal, with what to
// grant, where brokers refuse (Delete on the topic); what brokers were not reached
// for is abortable. deleted counts also with an error.
func Truncate(ctx context.Context, cl *sharetxn.Cluster, group string) (deleted int64, err error) {
	const op = "Truncate"
	if err := check(op, cl, group); err != nil {
		return 0, err
	}
	l, err := tail.Open(ctx, core.Of(cl), group, tail.Options{Observe: true})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	if _, err := agreed(l.Status()); err != nil {
		return 0, unusable(op, group, err)
	}
	return l.Truncate(ctx)
}
