package processor

import (
	"context"
	"errors"
	"slices"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transaction is one transaction of a member and how it went. Until it has
// ended, only records and bytes may be read beside it.
type transaction struct {
	records, bytes int  // as it began
	last           bool // with records that were never decided

	units   []*unit
	leftOut []*item // of units that could not be bound
	aborts  int     // with these records, before it
	outcome sharetxn.Outcome
	err     error
}

// items of all units.
func (t *transaction) items() (items []*item) {
	for _, u := range t.units {
		items = append(items, u.items...)
	}
	return items
}

// held are the items that are still ours.
func held(items []*item) (ours []*item) {
	for _, it := range items {
		if it.rec.Held() {
			ours = append(ours, it)
		}
	}
	return ours
}

// transact binds, stages and ends: one transaction with the units whose records
// are all still held. Unknown is left only if ctx has ended or the error is
// fatal; otherwise the outcome was settled here. It runs beside the member's
// loop, at most one at a time.
func (m *member) transact(ctx context.Context, t *transaction) {
	t.outcome = sharetxn.Aborted
	m.screen(t)
	parts := bindable(t)
	if len(t.units) == 0 {
		return // all were lost, or are not ours to decide
	}
	g := &commitGuard{core: m.core, group: m.cfg.Group, ledger: m.ledger}
	if m.ledger != nil {
		for i, p := range parts {
			parts[i] = unhurried{p}
		}
		parts = slices.Insert(parts, 0, producer.Acknowledgements(g))
	}
	txn, err := m.producer.Begin(ctx, parts...)
	if err != nil {
		t.err = err
		return
	}
	m.core.Step("begun")
	if m.ledger != nil {
		if g.entries, err = m.ledger.Entries(txn.TransactionalID(), positions(t.items())); err != nil {
			t.err = errors.Join(err, txn.Abort(ctx))
			return
		}
	}
	outputs := slices.Clone(g.entries) // first, so that the ledger is read meanwhile
	for _, u := range t.units {
		outputs = append(outputs, m.decide(u)...)
	}
	_ = txn.Produce(ctx, outputs...) // sticky: Commit aborts and names it
	t.outcome, t.err = txn.Commit(ctx)
	if t.outcome == sharetxn.Unknown && !sharetxn.IsFatal(t.err) {
		m.settle(ctx, t, txn)
	}
	if t.outcome == sharetxn.Aborted && m.ledger != nil && !conflict(t.err) {
		m.untilDecided(ctx, t)
	}
}

// decide decides the records of a unit and gives its outputs.
func (m *member) decide(u *unit) []*kgo.Record {
	outputs := u.outputs
	for _, it := range u.items {
		if !u.reject {
			it.rec.Accept()
			continue
		}
		outputs = m.cfg.DeadLetter.letter(newRecord(it.rec), u.reason)
		it.rec.Reject()
	}
	return outputs
}

// bindable puts the records of the transaction into batches of their own. Units
// with a record that was lost are left out: it comes back to some member, and
// what was made of it with others must not be published without it.
func bindable(t *transaction) (parts []producer.Acknowledgements) {
	var units []*unit
	for _, u := range t.units {
		if len(held(u.items)) < len(u.items) {
			t.leftOut = append(t.leftOut, u.items...)
			continue
		}
		units = append(units, u)
	}
	t.units = units
	for _, items := range byBatch(t.items()) {
		parts = append(parts, separate(items[0].batch, items))
	}
	return parts
}

// separate gives the batch that has just these items.
func separate(b *shareconsumer.Batch, items []*item) *shareconsumer.Batch {
	if b.Len() == len(items) {
		return b
	}
	part, err := b.Split(recordsOf(items)...)
	if err != nil { // some were lost this moment: Begin says so
		return b
	}
	for _, it := range items {
		it.batch = part
	}
	return part
}

// settle asks until it is known how the transaction has ended; nothing else is
// begun before.
func (m *member) settle(ctx context.Context, t *transaction, txn *producer.Txn) {
	m.log.Warn("sharetxn: outcome unknown, asking until it is settled", "member", m.n, "err", t.err)
	for attempt := 1; ; attempt++ {
		err := m.producer.InitTransactions(ctx)
		if t.outcome = txn.Outcome(); t.outcome != sharetxn.Unknown || sharetxn.IsFatal(err) {
			t.err = errors.Join(t.err, err)
			return
		}
		if !lapse.For(ctx, backoff(attempt)) {
			return
		}
	}
}
