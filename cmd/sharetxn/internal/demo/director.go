package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// director brings the planned strikes about, one after the other. It sees every
// request before it is handled; the strike whose turn it is hits when a process
// is in the window that it is aimed at, by the brokers' own state. Safe for
// concurrent use.
type director struct {
	b       *broker.Cluster
	pattern pattern
	fleet   *fleet
	fail    func(error) // ends the run
	tell    func(string)

	mu      sync.Mutex
	queue   []faults.Strike
	chances int // of the first in the queue, so far
	tally   faults.Tally
	under   map[*slot]faults.Kind // struck, and not over it
	open    map[txn.Key]*records  // what each transaction has staged
	woken   map[txn.Key]bool      // zombies that may commit: whether they tried
	over    int                   // strikes that are over: for progress
}

func newDirector(b *broker.Cluster, p pattern, plan faults.Plan, tell func(string), fail func(error)) *director {
	return &director{
		b: b, pattern: p, fail: fail, tell: tell, queue: slices.Clone(plan.Strikes), tally: plan.Tally(),
		under: make(map[*slot]faults.Kind), open: make(map[txn.Key]*records), woken: make(map[txn.Key]bool),
	}
}

// settled tells whether all strikes are over.
func (d *director) settled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue) == 0 && len(d.under) == 0
}

// idle tells whether none is under way.
func (d *director) idle() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.under) == 0
}

// hungry tells whether one is to come and could strike now.
func (d *director) hungry() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.queue) > 0 && d.possible(d.queue[0].Kind)
}

// possible tells whether a fault of a kind may strike now: one process always
// works, and where locks are to run out no leader moves, which would free the
// records first. d.mu is held.
func (d *director) possible(k faults.Kind) bool {
	crowded := len(d.under) >= max(1, len(d.fleet.slots)-1)
	paused := slices.Contains(slices.Collect(maps.Values(d.under)), faults.Paused)
	return !crowded && (k != faults.LeaderMove || !paused)
}

func (d *director) sofar() (t faults.Tally, over int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.tally, d.over
}

// handlerFired counts a failure of the handler if it hit its window: the record
// is held.
func (d *director) handlerFired(k faults.Kind, in *processor.Record) {
	if s, _, _, ok := d.b.StateOf(group, in.Topic, in.Partition, in.Offset); ok && s == share.Acquired {
		d.fired(k, fmt.Sprintf("%s-%d offset %d", in.Topic, in.Partition, in.Offset))
	}
}

func (d *director) fired(k faults.Kind, where string) {
	d.mu.Lock()
	d.tally[k].Fired++
	n := d.tally[k]
	d.mu.Unlock()
	d.tell(fmt.Sprintf("fault %v %d of %d: %s", k, n.Fired, n.Planned, where))
}

// intercept is a broker.Intercept; ctx is the run's.
func (d *director) intercept(ctx context.Context, r broker.Request) broker.Action {
	c, ok := d.chance(r)
	if !ok {
		return broker.Action{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 || !d.fits(d.queue[0].Kind, c) {
		return broker.Action{}
	}
	s := d.queue[0]
	if d.chances++; d.chances < s.Nth {
		return broker.Action{}
	}
	d.queue, d.chances = d.queue[1:], 0
	d.under[c.slot] = s.Kind
	return d.strike(ctx, s, c)
}

// chance reads a request. It keeps what transactions stage until they end.
func (d *director) chance(r broker.Request) (c chance, ok bool) {
	const endTxn, shareAcknowledge = 26, 79
	switch {
	case r.Staging():
		m, read := r.Message().(*wire.Request)
		if !read || m.TransactionalID == nil {
			return c, false
		}
		c.at, c.id, c.key = staging, *m.TransactionalID, txn.Key{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch}
		c.records.addStaged(d.b, m)
		d.mu.Lock()
		if d.open[c.key] == nil {
			d.open[c.key] = &records{}
		}
		d.open[c.key].addStaged(d.b, m)
		d.mu.Unlock()
		c.slot = d.fleet.owner(c.id)
	case r.Key == endTxn:
		m, read := r.Message().(*kmsg.EndTxnRequest)
		if !read {
			return c, false
		}
		c.at, c.id, c.key = ending, m.TransactionalID, txn.Key{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch}
		d.mu.Lock()
		if x := d.open[c.key]; x != nil {
			c.records = *x
			delete(d.open, c.key)
		}
		if _, woken := d.woken[c.key]; woken && m.Commit {
			d.woken[c.key] = true
		}
		d.mu.Unlock()
		if !m.Commit {
			return c, false
		}
		c.slot = d.fleet.owner(c.id)
	case r.Key == shareAcknowledge && d.pattern == commitThenAck:
		m, read := r.Message().(*kmsg.ShareAcknowledgeRequest)
		if !read || m.MemberID == nil {
			return c, false
		}
		c.at = acking
		c.records.addAcked(d.b, m)
		c.slot = d.fleet.member(*m.MemberID)
	}
	return c, c.slot != nil
}

// most is how many deliveries a record may have had to be struck once more.
const most = deliveryLimit / 2

// fits tells whether a fault of a kind can strike now, by the brokers' state;
// d.mu is held.
func (d *director) fits(k faults.Kind, c chance) bool {
	_, struck := d.under[c.slot]
	return !struck && d.possible(k) && c.at == d.pattern.window(k) && c.records.fresh(d.b, most) && c.held(d.b, d.pattern)
}

// window is the moment that a fault is aimed at. Without staging it is what lies
// between the commit and the acknowledgement.
func (p pattern) window(k faults.Kind) moment {
	switch {
	case k == faults.Zombie || k == faults.LostEndTxnAnswer:
		return ending
	case p == commitThenAck:
		return acking
	case k == faults.LostStageAnswer || k == faults.Paused:
		return staging
	}
	return ending
}

// done ends a strike: it hit its window, or has to come again.
func (d *director) done(s faults.Strike, c chance, hit bool) {
	if hit {
		d.fired(s.Kind, c.String())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !hit {
		d.queue = append(d.queue, s)
	}
	delete(d.under, c.slot)
	d.over++
}

func (c chance) String() string {
	if c.at == acking {
		return "process " + c.slot.name
	}
	return fmt.Sprintf("process %s, transaction %s (%d/%d)", c.slot.name, c.id, c.key.ProducerID, c.key.ProducerEpoch)
}

// await asks until something is true; false if ctx or the bound came first.
func await(ctx context.Context, bound time.Duration, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}
