package processor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/shareconsumer"
)

// quietAfter is when no fetch of another member that stops as well can be parked
// at a broker any more: given back earlier, a record would be acquired by that
// one, and cost one delivery for each.
const quietAfter = maxWait + 100*time.Millisecond

// windDown begins the soft stop: what is in hand is finished, what only waits
// for another attempt is given back, unless this is its last delivery.
func (m *member) windDown(hard context.Context, now time.Time) {
	m.stopping, m.fetching = true, true
	go func() {
		_ = m.consumer.Drain(hard) // its end tells of itself
		lapse.For(hard, time.Until(now.Add(quietAfter)))
		m.quiet <- struct{}{}
	}()
	m.enter(stopping)
	var back []*item
	for _, g := range m.hand.groups {
		if len(g.todo) > 0 && now.Before(g.due) {
			back = append(back, g.todo...)
			g.drop()
		}
	}
	m.hand.tidy()
	m.takeLast(now, back)
	m.await(now, m.hand.waiting.take())
}

// takeLast has records on their last delivery handled now and the others given
// back when it is quiet.
func (m *member) takeLast(now time.Time, items []*item) {
	for _, it := range items {
		if m.history(it).last() {
			m.hand.groups = append(m.hand.groups, newGroup(now, it))
			continue
		}
		m.wait(now, it, true)
	}
}

// drain takes what the consumer has fetched and nobody polled: closing it would
// release that, and the broker would archive what is on its last delivery.
func (m *member) drain(now time.Time) {
	for told := 0; told <= mostTold; {
		b, err := m.glance()
		switch {
		case b != nil:
			m.take(now, b)
		case errors.Is(err, context.Canceled), sharetxn.IsFatal(err):
			return
		default: // it is told once, and stands before what was fetched
			told++
		}
	}
}

// mostTold is how many errors of a consumer are passed over for what is behind
// them.
const mostTold = 100

// giveBack releases records, which costs each a delivery; one on its last goes
// to the dead letter instead.
func (m *member) giveBack(now time.Time, items []*item) {
	var back []*item
	for _, it := range items {
		switch {
		case !m.history(it).last():
			back = append(back, it)
		case it.cause != nil:
			m.doom(now, it, it.cause, 0)
		default:
			m.doom(now, it, errGivenBack, 0)
		}
	}
	part(back, (*shareconsumer.Batch).Close)
}

// forget drops the items that are not ours any more.
func (m *member) forget(items []*item) {
	var lost []*item
	for _, it := range items {
		if !it.rec.Held() {
			lost = append(lost, it)
		}
	}
	part(lost, (*shareconsumer.Batch).Forget)
}

// part ends the batches of items, apart from all other records in them.
func part(items []*item, end func(*shareconsumer.Batch)) {
	for _, items := range byBatch(items) {
		b := items[0].batch
		if whole, err := b.Split(recordsOf(items)...); err == nil {
			end(whole)
			continue
		}
		for _, it := range items { // some are gone already
			if one, err := b.Split(it.rec); err == nil {
				end(one)
			}
		}
	}
}

// lastWords bounds what is done after a hard stop, or after what was fatal.
const lastWords = 5 * time.Second

// close ends the member after its loop: calls end, the transaction under way
// ends, what is left is given back, and the group is left.
func (m *member) close(hard context.Context, fatal error) {
	m.enter(stopping)
	bound, cancel := context.WithTimeout(context.WithoutCancel(hard), lastWords)
	defer cancel()
	m.endCalls(bound)
	if m.txn != nil {
		select {
		case t := <-m.ended:
			_ = m.concluded(time.Now(), t) // the stop has a reason already
		case <-bound.Done():
		}
	}
	if m.polling { // its context has ended
		if p := <-m.polled; p.batch != nil {
			m.takeLast(time.Now(), newItems(p.batch))
		}
	}
	patience, enough := context.WithTimeout(bound, lastWords/2) // the rest is for dead letters
	defer enough()
	if err := m.consumer.Drain(patience); err != nil {
		m.log.Error("sharetxn: a fetch did not end at the stop; what it brings on its last delivery the broker archives", "group", m.cfg.Group, "member", m.n, "err", err)
	}
	m.drain(time.Now())
	m.leave(bound, fatal)
	unfinished := m.txn
	// What is committed is acknowledged when nothing can undo it, by a consumer that
	// is still there.
	landed := m.producer.Land(bound)
	err := errors.Join(landed, m.consumer.Close(), m.producer.Close())
	if unfinished != nil {
		<-m.ended // the producer's end is its end
	}
	if err != nil { // brokers out of reach: they release by their timers, and the id's next owner makes them decide
		m.log.Warn("sharetxn: member closed", "group", m.cfg.Group, "member", m.n, "err", err)
	}
}

// endCalls ends the contexts of all calls and waits a little for them.
func (m *member) endCalls(bound context.Context) {
	now := time.Now()
	for c := range m.calls {
		c.end(now, errHardStop)
	}
	grace := time.NewTimer(callGrace)
	defer grace.Stop()
	for len(m.calls) > 0 {
		select {
		case c := <-m.called:
			m.stopCall(c)
			continue
		case <-grace.C:
		case <-bound.Done():
		}
		for c := range m.calls {
			m.log.Error("sharetxn: a handler did not return at the hard stop", "group", m.cfg.Group, "record", where(c.items[0]), "records", len(c.items))
			m.putBack(c)
		}
	}
	close(m.gone)
}

// stopCall takes the result of a call that a hard stop has ended, and which says
// nothing of its records.
func (m *member) stopCall(c called) {
	if _, ours := m.calls[c.call]; ours {
		m.putBack(c.call)
	}
}

// putBack puts a call's records back, undecided.
func (m *member) putBack(c *call) {
	m.over(c)
	m.hand.groups = append(m.hand.groups, newGroup(time.Now(), c.items...))
}

// leave gives back all that is in hand. What is on its last delivery goes to the
// dead letter if the producer is still good for that.
func (m *member) leave(bound context.Context, fatal error) {
	var items []*item
	for _, g := range m.hand.groups {
		items = append(items, g.todo...)
		for _, u := range g.ready {
			items = append(items, u.items...)
		}
	}
	m.hand.groups = nil
	m.giveBack(time.Now(), held(items))
	m.letGo(held(m.hand.waiting.take()))
	var last []*unit
	for _, g := range m.hand.groups {
		last = append(last, g.ready...)
	}
	for units := range slices.Chunk(last, m.cfg.MaxRecords) {
		m.bury(bound, units, fatal != nil || m.txn != nil)
	}
}

// letGo gives back what still waits for another transaction: only its end says what
// is to become of them, and whoever gets them waits for it too.
func (m *member) letGo(items []*item) {
	part(items, (*shareconsumer.Batch).Close)
	for _, it := range items {
		if m.limit.spent(it.rec.DeliveryCount()) {
			m.log.Error("sharetxn: a record on its last delivery still waited for an earlier transaction at the end; if that aborts, the record is lost, since the broker archives it",
				"group", m.cfg.Group, "record", where(it))
		}
	}
}

// bury puts records on their last delivery to the dead letter, in halves where
// that fails.
func (m *member) bury(bound context.Context, units []*unit, cannot bool) {
	t := &transaction{units: units}
	if !cannot {
		m.transact(bound, t)
		m.count(t)
		rest := m.sift(time.Now(), held(t.leftOut))
		m.letGo(append(rest, m.hand.waiting.take()...))
	}
	half := len(units) / 2
	switch {
	case t.outcome == sharetxn.Committed, len(t.units) == 0: // or lost: they come back to some member
	case t.outcome == sharetxn.Aborted && half > 0 && bound.Err() == nil && !sharetxn.IsFatal(t.err):
		m.bury(bound, units[:half], false)
		m.bury(bound, units[half:], false)
	default:
		m.log.Error("sharetxn: records on their last delivery could not be put to the dead letter at the end; where the group allows no further delivery the broker archives them",
			"group", m.cfg.Group, "record", where(units[0].items[0]), "records", len(units), "err", t.err)
	}
}
