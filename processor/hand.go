package processor

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// item is one held record on its way.
type item struct {
	rec      *shareconsumer.Record
	batch    *shareconsumer.Batch // that has the record now
	bytes    int
	failures int       // of its own, in this delivery
	cause    error     // of the last failure
	doomed   error     // why it goes to the dead letter, once that is decided
	since    time.Time // when it came
	waits    time.Time // since when for the ledger; zero: it does not
}

func newItems(b *shareconsumer.Batch) []*item {
	var items []*item
	now := time.Now()
	for _, r := range b.Records() {
		items = append(items, &item{rec: r, batch: b, bytes: size(r.Record), since: now})
	}
	return items
}

// byBatch tells items apart by the batches that have them, in the order in which
// they come.
func byBatch(items []*item) (out [][]*item) {
	at := make(map[*shareconsumer.Batch]int)
	for _, it := range items {
		i, seen := at[it.batch]
		if !seen {
			i = len(out)
			at[it.batch] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], it)
	}
	return out
}

func recordsOf(items []*item) []*shareconsumer.Record {
	recs := make([]*shareconsumer.Record, len(items))
	for i, it := range items {
		recs[i] = it.rec
	}
	return recs
}

func bytesOf(items []*item) (n int) {
	for _, it := range items {
		n += it.bytes
	}
	return n
}

func size(r *kgo.Record) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// unit is what was decided for some records together: their verdict and outputs
// are never split.
type unit struct {
	items   []*item
	reject  bool
	outputs []*kgo.Record
	reason  error // of a reject
	bytes   int   // inputs and outputs
}

func newUnit(items []*item, reject bool, reason error, outputs []*kgo.Record) *unit {
	u := &unit{items: items, reject: reject, reason: reason, outputs: outputs, bytes: bytesOf(items)}
	for _, o := range outputs {
		u.bytes += size(o)
	}
	return u
}

// last tells whether its record was never decided.
func (u *unit) last() bool { return errors.Is(u.reason, errNeverDecided) }

// group are records that go into transactions together and with no others,
// unless it is fresh. It belongs to the member's loop.
type group struct {
	todo    []*item // not yet handled, in order
	running int     // items in calls under way
	ready   []*unit // decided
	born    time.Time
	since   time.Time // when the first of ready was decided
	due     time.Time // nothing of it is handled before
	aborts  int       // transactions that aborted with just these records
	fresh   bool      // straight from a poll: may be joined with others that are
	release bool      // at due its items are released
	suspect bool      // to be handled with nothing beside it

	records int       // in ready
	bytes   int       // of all but what is running
	lasts   int       // units in ready that were never decided
	lockAt  time.Time // when to look at the locks of ready; zero: never
}

func newGroup(now time.Time, items ...*item) *group {
	g := &group{born: now}
	g.more(items)
	return g
}

// more adds items to handle.
func (g *group) more(items []*item) {
	g.todo = append(g.todo, items...)
	g.bytes += bytesOf(items)
}

// drop forgets what is still to be handled.
func (g *group) drop() {
	g.bytes -= bytesOf(g.todo)
	g.todo = nil
}

// start takes items to handle now.
func (g *group) start(n int) []*item {
	items := g.todo[:n:n]
	g.todo = g.todo[n:]
	g.running += n
	g.bytes -= bytesOf(items)
	return items
}

// back takes items that were not handled after all.
func (g *group) back(items []*item) {
	g.todo = append(items[:len(items):len(items)], g.todo...)
	g.bytes += bytesOf(items)
}

// add makes a unit of what was running, or was never to be handled, ready.
func (g *group) add(now time.Time, u *unit) {
	if len(g.ready) == 0 {
		g.since = now
	}
	g.ready = append(g.ready, u)
	if u.last() {
		g.lasts++
	}
	g.records += len(u.items)
	g.bytes += u.bytes
	g.watch(u)
}

func (g *group) watch(u *unit) {
	for _, it := range u.items {
		if d := it.rec.AcquisitionDeadline(); g.lockAt.IsZero() || d.Before(g.lockAt) {
			g.lockAt = d
		}
	}
}

// take removes the first n units.
func (g *group) take(now time.Time, n int) []*unit {
	units := slices.Clone(g.ready[:n])
	g.ready = slices.Delete(g.ready, 0, n)
	for _, u := range units {
		if u.last() {
			g.lasts--
		}
		g.records -= len(u.items)
		g.bytes -= u.bytes
	}
	g.since, g.lockAt = now, time.Time{}
	for _, u := range g.ready {
		g.watch(u)
	}
	return units
}

func (g *group) size() int { return len(g.todo) + g.running + g.records }

// settleSoon is how long what is decided waits for neighbours whose handlers
// are slow.
const settleSoon = time.Second

// limits are what transactions are filled to.
type limits struct {
	records int
	bytes   int
	wait    time.Duration
	lock    time.Duration // with less than this left of a lock its record waits for nothing
}

// ripe says whether what is ready of the group should be committed now, or
// else when to look again (zero: when something happens).
func (g *group) ripe(now time.Time, l limits, stopping bool) (ok bool, at time.Time) {
	idle := len(g.todo) == 0 && g.running == 0
	switch {
	case len(g.ready) == 0:
		return false, time.Time{}
	case now.Before(g.due):
		return false, g.due
	case g.records >= l.records, g.bytes >= l.bytes, idle && (!g.fresh || stopping):
		return true, time.Time{}
	}
	at = g.since.Add(max(settleSoon, l.wait))
	if idle {
		at = g.born.Add(l.wait)
	}
	if lock := g.lockAt.Add(-l.lock); !now.Before(lock) { // unless it was renewed
		g.lockAt = time.Time{}
		for _, u := range g.ready {
			g.watch(u)
		}
	}
	if lock := g.lockAt.Add(-l.lock); lock.Before(at) {
		at = lock
	}
	return !now.Before(at), at
}

// hand is everything that a member holds, but for what is in a transaction or
// in a call. It belongs to the member's loop.
type hand struct {
	groups  []*group
	waiting waiting // for the ledger
}

func (h *hand) size() (n int) {
	n = h.waiting.size()
	for _, g := range h.groups {
		n += g.size()
	}
	return n
}

func (h *hand) bytes() (n int) {
	n = h.waiting.bytes()
	for _, g := range h.groups {
		n += g.bytes
	}
	return n
}

// startable gives the first group with something to handle now, or else when
// there will be one; zero: not by time alone. A suspect comes after all others,
// and only if nothing is under way.
func (h *hand) startable(now time.Time, idle bool) (*group, time.Time) {
	var at time.Time
	var suspect *group
	for _, g := range h.groups {
		if len(g.ready) > 0 && !now.Before(g.due) || g.running > 0 { // a refused dead letter may be due for ever
			idle = false
		}
		switch {
		case len(g.todo) == 0 || g.release:
		case now.Before(g.due):
			at = earlier(at, g.due)
		case !g.suspect:
			return g, time.Time{}
		case suspect == nil || before(g.todo[0].rec, suspect.todo[0].rec):
			suspect = g
		}
	}
	if suspect != nil && idle {
		return suspect, time.Time{}
	}
	return nil, at
}

// before orders suspects: those with the fewest deliveries left first, forwards
// in one delivery and backwards in the next.
func before(a, b *shareconsumer.Record) bool {
	if a.DeliveryCount() != b.DeliveryCount() {
		return a.DeliveryCount() > b.DeliveryCount()
	}
	order := cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.Offset, b.Offset))
	if a.DeliveryCount()%2 == 0 {
		return order > 0
	}
	return order < 0
}

// lastOnes tells whether a record that was never decided waits for its first
// way to the dead letter: nothing that may end the process is begun before.
func (h *hand) lastOnes(now time.Time) bool {
	return slices.ContainsFunc(h.groups, func(g *group) bool { return g.lasts > 0 && !now.Before(g.due) })
}

func lastOnes(units []*unit) bool { return slices.ContainsFunc(units, (*unit).last) }

// suspects tells whether there are any that are not decided.
func (h *hand) suspects() bool {
	return slices.ContainsFunc(h.groups, func(g *group) bool { return g.suspect && len(g.todo)+g.running > 0 })
}

// take removes what is ready for one transaction: of the first ripe group, and
// if that is fresh of others that are, up to the limits. Otherwise it says when
// to look again.
func (h *hand) take(now time.Time, l limits, stopping bool) (units []*unit, aborts int, at time.Time) {
	records, bytes, joining := 0, 0, false
	for _, g := range h.groups {
		switch {
		case len(units) == 0:
			ok, when := g.ripe(now, l, stopping)
			if !ok {
				at = earlier(at, when)
				continue
			}
			joining, aborts = g.fresh, g.aborts
		case !joining || !g.fresh:
			continue
		}
		n := 0
		for _, u := range g.ready {
			if len(units)+n > 0 && (records+len(u.items) > l.records || bytes+u.bytes > l.bytes) {
				break
			}
			records, bytes, n = records+len(u.items), bytes+u.bytes, n+1
		}
		units = append(units, g.take(now, n)...)
	}
	h.tidy()
	return units, aborts, at
}

// earlier of two moments, of which zero is none.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// tidy drops groups that are done with.
func (h *hand) tidy() {
	h.groups = slices.DeleteFunc(h.groups, func(g *group) bool { return g.size() == 0 })
}

// releasable removes groups whose release is due, or says when one will be.
func (h *hand) releasable(now time.Time) (items []*item, at time.Time) {
	h.groups = slices.DeleteFunc(h.groups, func(g *group) bool {
		switch {
		case !g.release:
			return false
		case !now.Before(g.due):
			items = append(items, g.todo...)
			return true
		}
		at = earlier(at, g.due)
		return false
	})
	return items, at
}
