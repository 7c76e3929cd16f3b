package demo

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/link"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// director brings the planned strikes about, one after the other. It sees every
// request of the processes before it leaves; the strike whose turn it is hits when
// one is in the window that it is aimed at, as far as the site can tell. Safe for
// concurrent use.
type director struct {
	site   site
	reader reader
	fleet  *fleet
	fail   func(error) // ends the run
	tell   func(string)

	mu      sync.Mutex
	queue   []faults.Strike
	chances int // of the first in the queue, so far
	tally   faults.Tally
	under   map[*slot]faults.Kind // struck, and not over it
	staged  map[txn.Key]*records  // what each open transaction has staged
	woken   map[txn.Key]bool      // zombies that may commit: whether they tried
	over    int                   // strikes that are over: for progress
}

func newDirector(at site, r reader, plan faults.Plan, tell func(string), fail func(error)) *director {
	return &director{
		site: at, reader: r, fail: fail, tell: tell, queue: slices.Clone(plan.Strikes), tally: plan.Tally(),
		under: make(map[*slot]faults.Kind), staged: make(map[txn.Key]*records), woken: make(map[txn.Key]bool),
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

// handlerFired counts a failure of the handler if it hits its window: the record
// is held.
func (d *director) handlerFired(k faults.Kind, in *processor.Record) (hit bool) {
	if hit = d.site.handed(in.Partition, in.Offset); hit {
		d.fired(k, fmt.Sprintf("%s-%d offset %d", in.Topic, in.Partition, in.Offset))
	}
	return hit
}

func (d *director) fired(k faults.Kind, where string) {
	d.mu.Lock()
	d.tally[k].Fired++
	n := d.tally[k]
	d.mu.Unlock()
	d.tell(fmt.Sprintf("fault %v %d of %d: %s", k, n.Fired, n.Planned, where))
}

// watch is what the link of each process asks; ctx is the run's.
func (d *director) watch(ctx context.Context, p *process, q frame.Request) link.Fate {
	m := d.reader.message(q)
	if m == nil {
		return link.Fate{}
	}
	var fate link.Fate
	sees := []func(kmsg.Response){d.site.observe(d.reader, m)}
	if c, ok := d.chance(p, m); ok && d.fleet.process(p.slot) == p {
		if s, ok := d.next(c); ok {
			var see func(kmsg.Response)
			fate, see = d.strike(ctx, s, c)
			sees = append(sees, see)
		}
	}
	sees = slices.DeleteFunc(sees, func(see func(kmsg.Response)) bool { return see == nil })
	if len(sees) > 0 {
		fate.Then = func(raw []byte) {
			answer, err := frame.ReadResponse(raw, m)
			if err != nil {
				answer = nil
			}
			for _, see := range sees {
				see(answer)
			}
		}
	}
	return fate
}

// chance reads a request of a process. It keeps what transactions stage until
// they end, and whether zombies try to.
func (d *director) chance(p *process, m kmsg.Request) (c chance, ok bool) {
	c, ok = d.reader.chance(m)
	if !ok {
		return c, false
	}
	c.process = p
	d.mu.Lock()
	defer d.mu.Unlock()
	switch c.at {
	case staging:
		if d.staged[c.key] == nil {
			d.staged[c.key] = &records{member: c.records.member}
		}
		d.staged[c.key].places = append(d.staged[c.key].places, c.records.places...)
	case ending:
		if x := d.staged[c.key]; x != nil {
			c.records = *x
			delete(d.staged, c.key)
		}
		if _, woken := d.woken[c.key]; woken && c.commit {
			d.woken[c.key] = true
		}
		return c, c.commit
	case acking:
	}
	return c, true
}

// next takes the strike whose turn it is, if it can strike now and its chance has
// come.
func (d *director) next(c chance) (s faults.Strike, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.queue) == 0 || !d.fits(d.queue[0].Kind, c) {
		return s, false
	}
	s = d.queue[0]
	if d.chances++; d.chances < s.Nth {
		return s, false
	}
	d.queue, d.chances = d.queue[1:], 0
	d.under[c.slot()] = s.Kind
	return s, true
}

// fits tells whether a fault of a kind can strike now; d.mu is held.
func (d *director) fits(k faults.Kind, c chance) bool {
	_, struck := d.under[c.slot()]
	return !struck && d.possible(k) && c.at == window(d.reader.guarantee, k) && d.site.fresh(c.records) && d.site.held(c)
}

// window is the moment that a fault is aimed at. Without staging it is what lies
// between the commit and the acknowledgement.
func window(g processor.Guarantee, k faults.Kind) moment {
	switch {
	case k == faults.Zombie || k == faults.LostEndTxnAnswer:
		return ending
	case g != processor.Staged:
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
	delete(d.under, c.slot())
	d.over++
}

func (c chance) String() string {
	if c.at == acking {
		return "process " + c.slot().name
	}
	return fmt.Sprintf("process %s, transaction %s (%d/%d)", c.slot().name, c.id, c.key.ProducerID, c.key.ProducerEpoch)
}

// await asks until something is true; false if ctx or the bound came first.
func await(ctx context.Context, bound time.Duration, is func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
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
