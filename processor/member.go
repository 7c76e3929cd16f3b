package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// member is one member of the group with transactions of its own. One loop owns
// all that it holds; beside it run at most one poll, one transaction, and the
// calls of the handler.
type member struct {
	n     int
	cfg   *Config
	cl    *sharetxn.Cluster
	log   *slog.Logger
	core  *core.Cluster
	hooks func(ctx context.Context, e sharetxn.Handled)
	limit *limit

	ledgerHooks []sharetxn.HookLedger
	ledger      groupLedger   // with guarantee Ledger; else nil
	standing    standing      // of the guarantee
	timeout     time.Duration // of transactions

	mu       sync.Mutex
	row      MemberStatus
	consumer *shareconsumer.Consumer
	producer *producer.Producer

	// The rest belongs to the loop.
	hand      hand
	calls     map[*call]struct{}
	calling   int // bytes of inputs in calls
	inRow     int // how many records the next row has, at most
	abandoned int
	txn       *transaction // under way
	polling   bool
	pollAfter time.Time
	pollFails int
	stopping  bool

	suspectsFrom time.Time // when suspects may be handled; zero: there are none
	gathered     bool      // what was fetched beside them is in hand

	watch watch // over what waits for the ledger

	fetching bool // a stop waits until fetches are over before it gives back what was not begun

	called chan called
	ended  chan *transaction
	polled chan polled
	quiet  chan struct{} // fetches are over
	gone   chan struct{} // closed when nobody listens to calls any more
}

// polled is what a poll brought.
type polled struct {
	batch *shareconsumer.Batch
	err   error
}

func newMember(p *Processor, n int) *member {
	return &member{
		n: n, cfg: &p.cfg, cl: p.cl, log: p.log, core: core.Of(p.cl), limit: p.limit, hooks: p.onHandled, ledgerHooks: p.ledgerHooks,
		row:   MemberStatus{TransactionalID: p.cfg.transactionalID(n), State: created.String()},
		calls: make(map[*call]struct{}), inRow: 1,
		called: make(chan called), ended: make(chan *transaction, 1), polled: make(chan polled, 1), quiet: make(chan struct{}, 1), gone: make(chan struct{}),
	}
}

func (p *Processor) onHandled(ctx context.Context, e sharetxn.Handled) {
	for _, h := range p.hooks {
		h.OnHandled(ctx, e)
	}
}

// run is the member's life. start ends when a stop comes before it works, hard
// when it must end now; soft is closed when it must come to an end.
func (m *member) run(start, hard context.Context, soft <-chan struct{}, pr promise) (err error) {
	m.ledger, m.standing, m.timeout = pr.ledger, pr.standing, pr.timeout
	m.enter(starting)
	defer func() {
		m.see(func(r *MemberStatus) {
			r.State, r.Held, r.Waiting = stopped.String(), 0, 0
			if err != nil {
				r.State, r.Err = broken.String(), err
			}
		})
	}()
	p, err := m.cfg.newProducer(m.cl, m.n, pr.guarantee, pr.timeout)
	if err != nil {
		return err
	}
	c, err := m.cfg.newConsumer(m.cl)
	if err != nil {
		return errors.Join(err, p.Close())
	}
	m.use(c, p)
	if err := m.ready(start); err != nil {
		if start.Err() != nil && !sharetxn.IsFatal(err) { // stopped before it began
			err = nil
		}
		return errors.Join(err, c.Close(), p.Close())
	}
	m.enter(working)
	err = m.work(hard, soft)
	m.close(hard, err)
	return err
}

// startFor is how long brokers may be out of reach before a member that starts
// gives up.
const startFor = 30 * time.Second

// faultFor is the same where it is known why: more brokers may be about to start.
const faultFor = 10 * time.Second

// ready makes the producer ready, in spite of what passes by itself.
func (m *member) ready(start context.Context) error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		err := m.producer.InitTransactions(start)
		patience := startFor
		if _, known := errors.AsType[*sharetxn.InternalTopicsError](err); known {
			patience = faultFor
		}
		if err == nil || sharetxn.IsFatal(err) || time.Since(began) > patience || !lapse.For(start, backoff(attempt)) {
			return err
		}
		m.log.Warn("sharetxn: member not ready yet", "group", m.cfg.Group, "member", m.n, "err", err)
	}
}

// work is the loop: it returns when a soft stop is through, at a hard one, or
// with what is fatal.
func (m *member) work(hard context.Context, soft <-chan struct{}) error {
	polls, endPolls := context.WithCancel(hard)
	defer endPolls()
	alarm := time.NewTimer(0)
	defer alarm.Stop()
	for {
		now := time.Now()
		at, err := m.start(hard, polls, now)
		if err != nil {
			return err
		}
		if m.stopping && !m.fetching && !m.polling && m.txn == nil && m.hand.size() == 0 && len(m.calls) == 0 {
			return nil
		}
		if at.IsZero() {
			at = now.Add(time.Hour)
		}
		alarm.Reset(at.Sub(now))
		select {
		case <-alarm.C:
		case c := <-m.called:
			if hard.Err() != nil { // that ended its context too: no failure of its records
				m.stopCall(c)
				return nil
			}
			m.handled(time.Now(), c)
		case t := <-m.ended:
			if err := m.concluded(time.Now(), t); err != nil {
				return err
			}
		case p := <-m.polled:
			if err := m.received(time.Now(), p); err != nil {
				return err
			}
		case <-soft:
			soft = nil
			endPolls()
			m.windDown(hard, time.Now())
		case <-m.quiet:
			m.fetching = false
			m.drain(time.Now())
		case <-m.watch.wake:
		case <-m.standing.Done():
			return m.standing.Err()
		case <-hard.Done():
			return nil
		}
	}
}

// start starts all that can be started now and says when there will be more by
// time alone. Each step may make work only for those after it.
func (m *member) start(hard, polls context.Context, now time.Time) (at time.Time, err error) {
	urgent := m.hand.lastOnes(now) // nothing more is begun beside them
	for c := range m.calls {
		if c.whole() && (urgent || !now.Before(c.began.Add(rowTime))) {
			m.takeApart(now, c)
		}
		abandon, when := c.look(now)
		if abandon {
			m.abandon(hard, now, c)
			continue
		}
		at = earlier(at, when)
	}
	if m.abandoned > maxAbandoned {
		return at, errAbandoned
	}

	if !m.fetching {
		items, when := m.hand.releasable(now)
		m.giveBack(now, items)
		at = earlier(at, when)
	}

	at = earlier(at, m.recheck(now))
	m.gather(now)
	idle := false
	for len(m.calls) < m.cfg.Concurrency && !m.suspecting() && !m.hand.lastOnes(now) && (m.txn == nil || !m.txn.last) {
		g, when := m.hand.startable(now, m.txn == nil && len(m.calls) == 0)
		if g == nil {
			idle = true
			at = earlier(at, when)
			break
		}
		at = earlier(at, m.call(hard, now, g))
	}

	if m.txn == nil {
		units, aborts, when := m.hand.take(now, m.limits(), m.stopping)
		at = earlier(at, when)
		if len(units) > 0 {
			m.commit(hard, units, aborts)
		}
	}

	m.flow()
	records, bytes := m.held()
	waiting := m.hand.waiting.size()
	m.see(func(r *MemberStatus) { r.Held, r.Waiting = records, waiting })
	if idle && !m.stopping && !m.polling && !m.hand.suspects() && m.room(records-waiting) && bytes <= m.cfg.MaxBytes {
		if now.Before(m.pollAfter) {
			return earlier(at, m.pollAfter), nil
		}
		m.polling = true
		go func() {
			b, err := m.consumer.Poll(polls)
			m.polled <- polled{b, err}
		}()
	}
	return at, nil
}

// room tells whether there is room for a poll beside the records held, but for
// those that wait for the ledger: beside a transaction for what fills the next
// one, since polls bring what the brokers' batches leave over, too.
func (m *member) room(records int) bool {
	if m.txn == nil {
		return records <= m.cfg.MaxRecords
	}
	return records-m.txn.records < m.cfg.MaxRecords
}

func (m *member) limits() limits {
	l := limits{records: m.cfg.MaxRecords, bytes: m.cfg.MaxBytes, wait: m.cfg.MaxWait, lock: 2 * m.cfg.LockMargin}
	if records, bytes := m.held(); records-m.hand.waiting.size() >= l.records || bytes >= l.bytes {
		l.wait = 0 // it is filled by several polls together, or nothing more is polled
	}
	return l
}

// held is what the member holds, wherever it is.
func (m *member) held() (records, bytes int) {
	records, bytes = m.hand.size(), m.hand.bytes()+m.calling
	if m.txn != nil {
		records, bytes = records+m.txn.records, bytes+m.txn.bytes
	}
	return records, bytes
}

// call starts a call of the handler and says when to look at it.
func (m *member) call(hard context.Context, now time.Time, g *group) (at time.Time) {
	n := 1
	switch {
	case m.cfg.BatchHandler != nil:
		n = len(g.todo)
	case !g.suspect:
		n = min(m.inRow, len(g.todo))
	}
	items := g.start(n)
	if ours := held(items); len(ours) < len(items) {
		m.forget(items)
		g.running -= len(items) - len(ours)
		items = ours
	}
	if len(items) == 0 {
		m.hand.tidy()
		return time.Time{}
	}
	ctx, cancel := context.WithCancelCause(hard)
	c := &call{g: g, items: items, cancel: cancel, began: now, ends: now.Add(m.cfg.HandlerTimeout)}
	m.calls[c] = struct{}{}
	m.calling += bytesOf(items)
	if m.cfg.BatchHandler != nil {
		go m.runBatch(ctx, c, items)
	} else {
		c.row = newRow(now, items, m.cfg.MaxBytes)
		go m.runRow(ctx, c)
	}
	_, at = c.look(now)
	return at
}

// runBatch is the goroutine of a call of a BatchHandler.
func (m *member) runBatch(ctx context.Context, c *call, items []*item) {
	result := failAll(len(items), errGoexit)
	defer func() {
		if c.told.CompareAndSwap(false, true) {
			m.tell(ctx, items, result, time.Since(c.began))
		}
		m.conclude(c, result)
	}()
	in := make([]*Record, len(items))
	for i, it := range items {
		in[i] = newRecord(it.rec)
	}
	result = handleBatch(ctx, m.cfg, in)
}

// runRow is the goroutine of a call of a Handler.
func (m *member) runRow(ctx context.Context, c *call) {
	r := c.row
	var it *item // under way
	decide := func(d decision) {
		if took, alone := r.decide(d); !alone || c.told.CompareAndSwap(false, true) {
			m.tellOne(ctx, it, d, took)
		}
		it = nil
	}
	defer func() {
		if it != nil {
			decide(failAll(1, errGoexit)[0])
		}
		m.conclude(c, r.rest())
	}()
	for more := true; more; {
		if it, more = r.begin(ctx); more {
			decide(handle(ctx, m.cfg, newRecord(it.rec)))
		}
	}
}

// conclude ends a call's goroutine.
func (m *member) conclude(c *call, result []decision) {
	c.cancel(nil)
	select {
	case m.called <- called{c, result}:
	case <-m.gone:
	}
}

// tell tells the hooks what records came to.
func (m *member) tell(ctx context.Context, items []*item, decisions []decision, took time.Duration) {
	for _, d := range decisions {
		for _, i := range d.records {
			m.tellOne(ctx, items[i], d, took)
		}
	}
}

func (m *member) tellOne(ctx context.Context, it *item, d decision, took time.Duration) {
	r := it.rec
	m.hooks(ctx, sharetxn.Handled{
		Group: m.cfg.Group, Topic: r.Topic, Partition: r.Partition, Offset: r.Offset,
		Verdict: d.kind.String(), DeliveryCount: r.DeliveryCount(), Took: took, Err: d.err,
	})
}

// abandon gives a call up that did not return.
func (m *member) abandon(hard context.Context, now time.Time, c *call) {
	m.abandoned++
	m.log.Error("sharetxn: a handler did not return after its context had ended; its goroutine is left behind", "group", m.cfg.Group,
		"record", where(c.items[0]), "records", len(c.items), "left behind", m.abandoned)
	all := failAll(len(c.items), fmt.Errorf("%w, and the handler did not return", c.why))
	if c.told.CompareAndSwap(false, true) {
		m.tell(hard, c.items, all, time.Since(c.began))
	}
	m.finish(now, c, all)
}

// takeApart takes the decided records out of a row that takes its time, and gives
// those back that are not begun: others may handle them meanwhile.
func (m *member) takeApart(now time.Time, c *call) {
	decisions, left, began, ok := c.row.apart()
	if !ok {
		return // its end is about to be told
	}
	all := c.items
	c.items, c.began, c.ends = all[left:left+1], began, began.Add(m.cfg.HandlerTimeout)
	m.calling -= bytesOf(all) - bytesOf(c.items)
	c.g.running -= len(all) - 1
	c.g.back(all[left+1:])
	m.decideAll(now, c.g, all, decisions)
	m.inRow = 1
}

// handled takes the result of a call, unless it was given up.
func (m *member) handled(now time.Time, c called) {
	if _, waited := m.calls[c.call]; !waited {
		m.abandoned--
		return
	}
	m.core.Step("handled")
	if c.row != nil && len(c.items) == len(c.row.items) {
		m.inRow = nextRow(m.inRow, len(c.items), len(c.decisions), c.row.quick())
	}
	m.finish(now, c.call, c.decisions)
}

// over takes a call off the books.
func (m *member) over(c *call) {
	delete(m.calls, c)
	m.calling -= bytesOf(c.items)
	c.g.running -= len(c.items)
}

// finish makes what was decided of a call's records.
func (m *member) finish(now time.Time, c *call, decisions []decision) {
	m.over(c)
	if c.row != nil {
		c.g.back(c.items[len(decisions):]) // that there was no time for
	}
	m.decideAll(now, c.g, c.items, decisions)
	m.hand.tidy()
}

// decideAll makes what was decided of items of a group.
func (m *member) decideAll(now time.Time, g *group, of []*item, decisions []decision) {
	for _, d := range decisions {
		items := make([]*item, len(d.records))
		for n, i := range d.records {
			items[n] = of[i]
		}
		ours := held(items)
		if len(ours) < len(items) {
			m.forget(items)
			if d.kind == accepted && len(ours) > 0 { // an aggregate must not hold what was lost
				m.requeue(now, ours, 0, false)
				continue
			}
			items = ours
		}
		if len(items) > 0 {
			m.decided(now, g, items, d)
		}
	}
}

// unfit says why outputs cannot be published; nil if they can, as far as is known
// here. A record of the user's in a ledger topic would stop all its readers.
func unfit(outputs []*kgo.Record) error {
	for _, o := range outputs {
		switch {
		case o == nil:
			return usage("Handler", "a nil output")
		case topic.Reserved(o.Topic):
			return usage("Handler", "an output into the ledger topic %s", o.Topic)
		}
	}
	return nil
}

func (m *member) decided(now time.Time, g *group, items []*item, d decision) {
	if err := unfit(d.outputs); err != nil {
		d = decision{kind: failed, err: err, own: len(items) == 1}
	}
	switch d.kind {
	case accepted:
		g.add(now, newUnit(items, false, nil, d.outputs))
	case rejected:
		g.add(now, newUnit(items, true, d.err, nil))
	case released:
		for _, it := range items {
			if afterRelease(m.history(it)) == giveUp {
				m.doom(now, it, errLastRelease, 0)
			} else {
				m.wait(now.Add(min(d.backoff, longestWait)), it, true)
			}
		}
	case failed:
		if p, ok := errors.AsType[*panicError](d.err); ok {
			told := []any{"group", m.cfg.Group, "record", where(items[0]), "records", len(items), "type", fmt.Sprintf("%T", p.value)}
			if items[0].failures == 0 && items[0].rec.DeliveryCount() == 1 { // the same again says nothing new
				told = append(told, "stack", string(p.stack))
			}
			m.log.Error("sharetxn: the handler panicked", told...)
		}
		if d.own {
			for _, it := range items {
				m.failed(now, it, d.err)
			}
		} else {
			m.split(now, items)
		}
	}
}

// history is what decides an item's fate.
func (m *member) history(it *item) history {
	return history{failures: it.failures, deliveries: it.rec.DeliveryCount(), limit: m.limit.get()}
}

// failed decides about a record that failed by itself.
func (m *member) failed(now time.Time, it *item, err error) {
	it.failures++
	it.cause = err
	h := m.history(it)
	pause := m.pauseAfter(it.failures)
	what := m.cfg.Failure.afterFailure(h)
	if it.doomed != nil { // its dead letter was refused: there is no other way for it
		m.log.Error("sharetxn: a dead letter was refused; it is tried again", "group", m.cfg.Group, "record", where(it), "err", err)
		what, pause = giveUp, max(pause, backoff(it.failures))
	} else {
		m.log.Warn("sharetxn: record failed", "group", m.cfg.Group, "record", where(it), "attempt", it.failures, "delivery", h.deliveries, "then", what.String(), "err", err)
	}
	if m.stopping {
		pause = min(pause, backoff(it.failures))
		if what == again && !h.last() {
			what = goBack
		}
	}
	switch what {
	case again:
		m.wait(now.Add(pause), it, false)
	case giveUp:
		if it.doomed == nil {
			pause = 0
		}
		m.doom(now, it, err, pause)
	case goBack:
		m.wait(now.Add(pause), it, true)
	}
}

// pauseAfter is the user's Backoff within bounds; a panic of it must not take
// the process along.
func (m *member) pauseAfter(failures int) (pause time.Duration) {
	defer func() {
		if v := recover(); v != nil {
			pause = backoff(failures)
			m.log.Error("sharetxn: Failure.Backoff panicked; the default is used", "group", m.cfg.Group, "attempt", failures, "type", fmt.Sprintf("%T", v), "stack", string(debug.Stack()))
		}
	}()
	return min(max(0, m.cfg.Failure.Backoff(failures)), longestWait)
}

// wait holds a record until due, to be handled again alone or released; a stop
// waits with no release.
func (m *member) wait(due time.Time, it *item, release bool) {
	g := newGroup(time.Now(), it)
	g.due, g.release = due, release
	if m.stopping && release {
		g.due = time.Now()
	}
	m.hand.groups = append(m.hand.groups, g)
}

// doom sends a record to the dead letter, in a transaction of its own.
func (m *member) doom(now time.Time, it *item, reason error, after time.Duration) *group {
	if it.doomed == nil {
		it.doomed = reason
	}
	g := newGroup(now)
	g.due = now.Add(after)
	g.add(now, newUnit([]*item{it}, true, it.doomed, nil))
	m.hand.groups = append(m.hand.groups, g)
	return g
}

// split has items handled again in halves, or one alone.
func (m *member) split(now time.Time, items []*item) {
	half := (len(items) + 1) / 2
	for _, part := range [][]*item{items[:half], items[half:]} {
		if len(part) > 0 {
			m.hand.groups = append(m.hand.groups, newGroup(now, part...))
		}
	}
}

// requeue has records of an aborted transaction handled again: none was
// decided, and all are still ours.
func (m *member) requeue(now time.Time, items []*item, aborts int, own bool) {
	var fresh []*item
	for _, it := range items {
		if it.doomed != nil && len(items) > 1 {
			m.doom(now, it, it.doomed, 0)
			continue
		}
		fresh = append(fresh, it)
	}
	if len(fresh) == 0 {
		return
	}
	parts, _ := apart(len(fresh), aborts, own)
	if parts > 1 {
		m.split(now, fresh)
		return
	}
	if it := fresh[0]; it.doomed != nil {
		m.doom(now, it, it.doomed, backoff(max(1, aborts))).aborts = aborts
		return
	}
	g := newGroup(now, fresh...)
	g.aborts = aborts
	if aborts > 0 {
		g.due = now.Add(backoff(aborts))
	}
	m.hand.groups = append(m.hand.groups, g)
}

// commit runs one transaction in the background.
func (m *member) commit(hard context.Context, units []*unit, aborts int) {
	t := &transaction{units: units, aborts: aborts, last: lastOnes(units)}
	for _, u := range units {
		t.records, t.bytes = t.records+len(u.items), t.bytes+u.bytes
	}
	m.txn = t
	go func() {
		m.transact(hard, t)
		m.ended <- t
	}()
}

// concluded takes the end of a transaction.
func (m *member) concluded(now time.Time, t *transaction) error {
	m.txn = nil
	m.count(t)
	if t.outcome == sharetxn.Unknown { // whoever has the id next decides
		if sharetxn.IsFatal(t.err) {
			return t.err
		}
		return nil // a hard stop
	}
	again := t.leftOut
	if t.outcome == sharetxn.Aborted {
		again = append(again, t.items()...)
	}
	ours := held(again)
	if len(ours) < len(again) {
		m.forget(again)
	}
	if t.outcome == sharetxn.Committed {
		m.backFrom(now, ours)
		return nil
	}
	if m.ledger != nil && len(t.units) == 0 && t.err == nil || conflict(t.err) { // the ledger knows more of them than when they came
		m.log.Info("sharetxn: records are looked at again in the ledger", "group", m.cfg.Group, "member", m.n, "records", len(again), "still held", len(ours), "err", t.err)
		m.backFrom(now, ours)
		return nil
	}
	own := ownFault(t.err) && !m.entryRefused(t.err)
	m.log.Warn("sharetxn: transaction aborted", "group", m.cfg.Group, "member", m.n, "records", len(again), "still held", len(ours), "err", t.err)
	if sharetxn.IsFatal(t.err) && !own {
		m.requeue(now, ours, 0, false) // to be given back
		return t.err
	}
	if outcast(t.err) {
		// Only a poll tells whether the consumer joins again or has ended for good,
		// and while much is held there is none.
		b, err := m.glance()
		switch {
		case b != nil:
			m.take(now, b)
		case sharetxn.IsFatal(err):
			m.requeue(now, ours, 0, false) // to be given back
			return err
		}
	}
	if _, failed := apart(len(ours), t.aborts+1, own); failed {
		m.failed(now, ours[0], t.err)
		return nil
	}
	m.requeue(now, ours, t.aborts+1, own)
	return nil
}

// backFrom takes records back of which a transaction had to leave out some, or all,
// through no fault of theirs.
func (m *member) backFrom(now time.Time, items []*item) {
	if m.ledger == nil {
		m.requeue(now, items, 0, false)
		return
	}
	m.goOn(now, m.sift(now, items))
}

// keepLocked is until whatever is in hand has gone its way: a dead letter that
// brokers refuse is tried for ever.
const keepLocked = 100 * 365 * 24 * time.Hour

// received takes what a poll brought.
func (m *member) received(now time.Time, p polled) error {
	m.polling = false
	switch {
	case p.batch != nil:
		m.pollFails = 0
		m.take(now, p.batch)
		return nil
	case m.stopping:
		return nil
	case sharetxn.IsFatal(p.err):
		return p.err
	}
	m.pollFails++
	m.pollAfter = now.Add(backoff(m.pollFails))
	m.see(func(r *MemberStatus) { r.Err = p.err })
	m.log.Warn("sharetxn: poll failed", "group", m.cfg.Group, "member", m.n, "err", p.err)
	return nil
}

// take takes over what was polled.
func (m *member) take(now time.Time, b *shareconsumer.Batch) {
	b.KeepLocked(keepLocked)
	m.core.Step("polled")
	items := m.sift(now, newItems(b))
	m.core.Step("looked")
	m.goOn(now, items)
}

// suspect takes out of items those that may end the process, or that were
// delivered too often to be handled. Suspects wait until nothing more can come
// from fetches under way, so that they are begun in their order.
func (m *member) suspect(now time.Time, items []*item) (others []*item) {
	for _, it := range items {
		n := it.rec.DeliveryCount()
		switch {
		case m.limit.spent(n):
			m.doom(now, it, errNeverDecided, 0)
		case suspicious(n) && !m.stopping:
			if m.suspectsFrom.IsZero() {
				m.suspectsFrom = now.Add(quietAfter)
			}
			g := newGroup(now, it)
			g.suspect, g.due = true, m.suspectsFrom
			m.hand.groups = append(m.hand.groups, g)
		default:
			others = append(others, it)
		}
	}
	return others
}

// gather takes what fetches brought since the first suspect came, once.
func (m *member) gather(now time.Time) {
	switch {
	case m.suspectsFrom.IsZero():
	case !m.hand.suspects():
		m.suspectsFrom, m.gathered = time.Time{}, false
	case !m.gathered && !now.Before(m.suspectsFrom):
		m.gathered = true
		m.drain(now)
	}
}

// suspecting tells whether a suspect is being handled.
func (m *member) suspecting() bool {
	for c := range m.calls {
		if c.g.suspect {
			return true
		}
	}
	return false
}

// glance is a poll that does not wait.
func (m *member) glance() (*shareconsumer.Batch, error) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	return m.consumer.Poll(ended)
}

// join makes a group of fresh records, or adds them to one that is still to be
// filled.
func (m *member) join(now time.Time, items []*item) {
	if n := len(m.hand.groups); n > 0 && m.cfg.MaxWait > 0 {
		g := m.hand.groups[n-1]
		if g.fresh && now.Before(g.born.Add(m.cfg.MaxWait)) && g.size()+len(items) <= m.cfg.MaxRecords {
			g.more(items)
			return
		}
	}
	g := newGroup(now, items...)
	g.fresh = true
	m.hand.groups = append(m.hand.groups, g)
}

func where(it *item) string {
	return fmt.Sprintf("%s-%d@%d", it.rec.Topic, it.rec.Partition, it.rec.Offset)
}
