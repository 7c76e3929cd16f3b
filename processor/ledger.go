package processor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupLedger is what members ask of their group's commit ledger.
type groupLedger interface {
	Look(positions []tail.Position) []index.Verdict
	Changed() <-chan struct{}
	Entries(transactionalID string, positions []tail.Position) ([]*kgo.Record, error)
	Decide(ctx context.Context, produced []*kgo.Record) error
	Done() <-chan struct{}
	Err() error
	Close() error
}

var _ groupLedger = (*tail.Ledger)(nil)

func positions(items []*item) []tail.Position {
	out := make([]tail.Position, len(items))
	for i, it := range items {
		tp, offset := it.rec.Position()
		out[i] = tail.Position{Topic: tp.Topic, TopicID: tp.TopicID, Partition: tp.Partition, Offset: offset, Since: it.since}
	}
	return out
}

// sift asks the ledger about records before they are worked on, and gives those
// that are to be. What an earlier transaction has committed is accepted, what lies
// below the share partition's start is dropped, and what is in a transaction that
// is not decided waits for that under its lock: released, it would come again at
// once, and so use up its deliveries.
func (m *member) sift(now time.Time, items []*item) (fresh []*item) {
	if m.ledger == nil {
		return items
	}
	var done, below, wait []*item
	for i, v := range m.ledger.Look(positions(items)) {
		switch it := items[i]; v {
		case index.Fresh:
			fresh = append(fresh, it)
		case index.Done:
			done = append(done, it)
		case index.Below:
			below = append(below, it)
		case index.Open, index.Unsure:
			wait = append(wait, it)
		}
	}
	m.tellLedger(now, sharetxn.LedgerDone, done)
	m.forget(done)
	part(held(done), acceptDone)
	m.tellLedger(now, sharetxn.LedgerBelow, below)
	part(below, (*shareconsumer.Batch).Forget)
	m.await(now, wait)
	return fresh
}

// acceptDone accepts all of a batch plainly: a transaction of before has committed
// what was made of it.
func acceptDone(b *shareconsumer.Batch) {
	h := b.Bind()
	if h.Hold() != nil { // lost this moment: it comes again, and is as done then
		b.Forget()
		return
	}
	b.AcceptRest()
	h.Settle(bind.Settlement{Outcome: uint8(sharetxn.Committed), Plain: true})
}

// await has records wait for what the ledger says next of them. At a stop they go
// back, to wait elsewhere, if that leaves them a delivery to be handled in.
func (m *member) await(now time.Time, items []*item) {
	var first []*item
	for _, it := range items {
		if m.stopping && !m.history(it).last() {
			m.wait(now, it, true)
			continue
		}
		if it.waits.IsZero() {
			it.waits = now
			first = append(first, it)
		}
		m.hand.waiting.add(it)
	}
	m.tellLedger(now, sharetxn.LedgerWait, first)
}

// How often what waits is looked at: not more often than lookPause, whatever is
// told of the ledger, and not less often than lookEvery, since locks are lost in
// silence.
const (
	lookPause = 10 * time.Millisecond
	lookEvery = time.Second
)

// watch is when a member looks again at what waits.
type watch struct {
	changed <-chan struct{} // closed when the ledger has changed since the last look; nil: look
	wake    <-chan struct{} // what the loop waits for: changed, or nothing while it is too early
	from    time.Time       // not before
	by      time.Time       // not after
}

// due tells whether to look now, or when.
func (w *watch) due(now time.Time) (bool, time.Time) {
	news := w.changed == nil
	select {
	case <-w.changed:
		news = true
	default:
	}
	w.wake = nil
	switch {
	case !news && now.Before(w.by):
		w.wake = w.changed
		return false, w.by
	case now.Before(w.from):
		return false, w.from
	}
	return true, time.Time{}
}

// recheck looks again at what waits, if it is time, and says when it will be.
func (m *member) recheck(now time.Time) (at time.Time) {
	if m.hand.waiting.size() == 0 {
		m.watch = watch{}
		return time.Time{}
	}
	due, at := m.watch.due(now)
	if !due {
		return at
	}
	// Asked for before it is looked, so that no change falls between.
	m.watch = watch{changed: m.ledger.Changed(), from: now.Add(lookPause), by: now.Add(lookEvery)}
	m.watch.wake = m.watch.changed
	items := m.hand.waiting.take()
	m.forget(items)
	m.goOn(now, m.sift(now, held(items)))
	return m.watch.by
}

// goOn takes up records that were looked at and are to be worked on.
func (m *member) goOn(now time.Time, items []*item) {
	var todo []*item
	for _, it := range items {
		it.waits = time.Time{}
		if it.doomed != nil {
			m.doom(now, it, it.doomed, 0)
			continue
		}
		todo = append(todo, it)
	}
	todo = m.suspect(now, todo)
	switch {
	case len(todo) == 0:
	case m.stopping:
		m.takeLast(now, todo)
	default:
		for some := range slices.Chunk(todo, m.cfg.MaxRecords) { // more than that of several polls may have waited
			m.join(now, some)
		}
	}
}

// screen looks at the records of a transaction right before it begins, since
// while they were handled another may have begun, or even committed. Units with
// any that are not to be worked on any more are left out.
func (m *member) screen(t *transaction) {
	if m.ledger == nil {
		return
	}
	verdicts := m.ledger.Look(positions(t.items()))
	var units []*unit
	for _, u := range t.units {
		clear := true
		for range u.items {
			clear = clear && verdicts[0] == index.Fresh
			verdicts = verdicts[1:]
		}
		if clear {
			units = append(units, u)
		} else {
			t.leftOut = append(t.leftOut, u.items...)
		}
	}
	t.units = units
}

// untilDecided waits, after an abort, until the ledger shows that too. Records that
// are run again in parts, to find the one at fault, would be found undecided else,
// and be put together again. It runs beside the loop, and no longer than the
// broker may take to end a transaction that nobody ends.
func (m *member) untilDecided(ctx context.Context, t *transaction) {
	enough := time.NewTimer(m.timeout)
	defer enough.Stop()
	at := positions(t.items())
	for {
		changed := m.ledger.Changed()
		if !slices.Contains(m.ledger.Look(at), index.Open) {
			return
		}
		select {
		case <-changed:
		case <-m.ledger.Done():
			return
		case <-enough.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// conflict tells whether an aborted transaction may be one too many for some of
// its records; they are looked at again, and none has failed. Where only its own
// entries are not as they should be, it is an abort like others.
func conflict(err error) bool {
	c, ok := errors.AsType[*tail.ConflictError](err)
	return ok && c.Done+c.Open+c.Below+c.Unsure > 0
}

// entryRefused tells of an abort because an entry could not be written, as where the
// right to write into the ledger was taken away: no other record has a better
// chance, so they are held until it can, and none has failed.
func (m *member) entryRefused(err error) bool {
	e := produceError(err)
	return m.ledger != nil && e != nil && e.Topic == topic.Name(m.cfg.Group)
}

// tellLedger tells the hooks what the ledger says of items, by partition.
func (m *member) tellLedger(now time.Time, kind sharetxn.LedgerKind, items []*item) {
	if len(m.ledgerHooks) == 0 {
		return
	}
	at := make(map[source]int)
	var events []sharetxn.LedgerEvent
	for _, it := range items {
		s := sourceOf(it)
		i, seen := at[s]
		if !seen {
			i = len(events)
			at[s] = i
			events = append(events, sharetxn.LedgerEvent{Group: m.cfg.Group, Event: kind, Topic: s.topic, Partition: s.partition})
		}
		events[i].Records++
		if !it.waits.IsZero() {
			events[i].Took = max(events[i].Took, now.Sub(it.waits))
		}
	}
	for _, e := range events {
		for _, h := range m.ledgerHooks {
			h.OnLedger(e)
		}
	}
}
