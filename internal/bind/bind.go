// Package bind is how a transaction takes hold of polled records: the contract
// between package producer, which drives it, and package shareconsumer, which
// keeps the records. It is internal so that no caller outside the module can
// settle a batch by hand.
package bind

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
)

// Handle is what a transaction may do with records it binds. The order is
// Hold, Freeze, Settle; a transaction that aborts before staging goes from
// Hold to Settle. Safe for concurrent use.
type Handle interface {
	// Offer says that a transaction is asked to take the records, whatever comes
	// of it: who offers them has not forgotten them.
	Offer()

	// Hold takes the records: open -> held. Until Freeze their locks are
	// renewed in the background; every other use answers ErrStale. It does no
	// I/O. Errors: ErrStale if the records are not open or were lost.
	Hold() error

	// Freeze ends renewing, waiting for a renewal under way, and gives the
	// verdicts as they are now; later verdicts count as late. Handles are frozen
	// in the order in which they were bound, when every output was delivered, so
	// one that has a say in the commit and must wait for it (the ledger's) does so
	// here, before those with records: these are renewed meanwhile. Errors:
	// ErrUndecided (*RecordsError), ErrStale if records were lost since Hold or
	// a verdict was late. After an error the only way on is Settle.
	Freeze(ctx context.Context) (Frozen, error)

	// Check says, right before the transaction is ended, whether a verdict came
	// too late to be part of it; the transaction must then abort.
	Check() error

	// Keep is told between a proven commit that is to be acknowledged plainly and
	// Settle, which comes when the commit has landed: until then the locks are
	// renewed again, since nothing was staged that a renewal could meet. The verdicts
	// stay frozen. It does no I/O.
	Keep()

	// Settle tells the proven outcome, or Unknown; after Unknown it is called
	// once more with the proven one. It does not block on I/O.
	Settle(Settlement)

	// Group is the share group, for hooks and errors.
	Group() string

	// Cluster is the identity of the cluster the records came from: the
	// *core.Cluster.
	Cluster() any
}

// Frozen is what a transaction stages.
type Frozen struct {
	Member    groupmeta.ShareGroupMetadata // as fresh as the consumer knows it
	LockUntil time.Time                    // earliest acquisition deadline among Batches; zero if Batches is empty
	Batches   map[acks.TopicIDPartition][]acks.AcknowledgementBatch
	Records   int // offsets in Batches
}

// Settlement is how a transaction ended for the records bound to it.
type Settlement struct {
	// Outcome is a sharetxn.Outcome: 0 unknown, 1 aborted, 2 committed.
	Outcome uint8
	// Plain says that the verdicts were not staged: with a proven commit they are
	// to be sent as plain acknowledgements now.
	Plain bool
	// Patience is how long plain acknowledgements may wait for a request that goes
	// anyway, since nothing depends on when they come. They never wait for a moment
	// at which a lock could end.
	Patience time.Duration
	// Freed tells whether an abort may have made the partition's staged records
	// available to anyone: a request that named it may have reached a broker of
	// such a profile (Draft95). They are then forgotten, never acknowledged and
	// never released. Where false they are still held and open again; of profile
	// KIP93 also those that were staged. Nil means none.
	Freed func(acks.TopicIDPartition) bool
	// Outcast says that the group did not take the records' consumer for a member
	// when it staged them: it is to ask whether it is one.
	Outcast bool
}

// Owner is a consumer of this process; the cluster's registry finds it by
// group and member id, for the KIP's form of sending acknowledgements.
type Owner interface {
	// Claim takes exactly the offsets of batches out of the open records that
	// the consumer holds, gives them the verdicts of batches and returns them
	// held. All or nothing. Errors: ErrStale (*RecordsError) for offsets that
	// are not open here.
	Claim(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch) (Handle, error)
}
