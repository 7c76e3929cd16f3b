package processor

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ackPatience is how long a committed record's acknowledgement may wait for others
// under guarantee Ledger. Whoever gets the record meanwhile finds it committed, so
// nothing depends on it but when the broker can give out the record's lock. Alone it
// is a request, and a write of the broker, for each transaction.
const ackPatience = 100 * time.Millisecond

// unhurried are acknowledgements that may be settled a little later.
type unhurried struct{ producer.Acknowledgements }

// Bind implements producer.Acknowledgements.
func (u unhurried) Bind() bind.Handle { return patient{u.Acknowledgements.Bind()} }

type patient struct{ bind.Handle }

// Settle implements bind.Handle.
func (p patient) Settle(s bind.Settlement) {
	s.Patience = ackPatience
	p.Handle.Settle(s)
}

// commitGuard is the ledger's part in a transaction: it is bound before the batches, has
// no records of its own, and refuses the commit where the ledger does.
type commitGuard struct {
	core    *core.Cluster
	group   string
	ledger  groupLedger
	entries []*kgo.Record // that the transaction has produced
}

var _ bind.Handle = (*commitGuard)(nil)

// Bind implements producer.Acknowledgements.
func (g *commitGuard) Bind() bind.Handle { return g }

// Offer implements bind.Handle.
func (g *commitGuard) Offer() {}

// Hold implements bind.Handle.
func (g *commitGuard) Hold() error { return nil }

// Freeze implements bind.Handle: everything was delivered, and the locks of the
// batches, which are frozen after it, are still renewed while the ledger is read
// past the transaction's own entries. What it says then holds for good: whoever
// comes later sees these entries, and waits.
func (g *commitGuard) Freeze(ctx context.Context) (bind.Frozen, error) {
	err := g.ledger.Decide(ctx, g.entries)
	g.core.Step("checked")
	return bind.Frozen{}, err
}

// Check implements bind.Handle.
func (g *commitGuard) Check() error { return g.ledger.Err() }

// Keep implements bind.Handle.
func (g *commitGuard) Keep() {}

// Settle implements bind.Handle.
func (g *commitGuard) Settle(bind.Settlement) {}

// Group implements bind.Handle.
func (g *commitGuard) Group() string { return g.group }

// Cluster implements bind.Handle.
func (g *commitGuard) Cluster() any { return g.core }
