package shareconsumer

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Consumer is one member of a share group. Safe for concurrent use: each Poll
// gives records of its own, so several transactions may be under way from one
// member. In Implicit mode only one goroutine may poll.
type Consumer struct {
	cfg    config
	core   *core.Cluster
	group  string
	id     string // member id, for life
	client *kgo.Client

	startOnce sync.Once
	cancel    context.CancelFunc // ends all goroutines
	endLive   context.CancelFunc // ends what is not needed to close in order
	unlist    func()             // from the cluster's registry
	wg        sync.WaitGroup
	beat      chan struct{} // heartbeat now
	refresh   chan struct{} // metadata now
	renewer   chan struct{} // look at the locks now
	left      chan struct{} // closed when the sessions are closed and the group is left
	ended     chan struct{} // closed when Close is done
	hooks     hooks
	news      teller // for hooks and OnAssigned

	// mu guards everything below, and every batch and record of this consumer.
	// It is never held over I/O or a callback.
	mu       sync.Mutex
	closed   bool
	started  bool
	joined   bool  // or at least asked to be
	epoch    int32 // member epoch
	doubts   doubts
	lock     time.Duration
	fatal    error
	surfaced []error       // told by the next polls, once each
	misuses  []error       // likewise
	arrived  chan struct{} // closed and replaced when records or an error arrive
	polling  int           // polls that wait
	drained  bool          // nothing more is fetched
	polled   time.Time     // when the last poll began
	active   time.Time     // when somebody was last seen at work, for MaxPollInterval
	away     bool          // left the group because nobody polled

	spawn      func(*session)     // starts a session's goroutine
	subscribed []string           // never changed in place
	told       map[string][]int32 // assignment that OnAssigned saw last, or is to see; never changed in place
	assigned   map[partKey]struct{}
	topics     map[[16]byte]string
	leaders    map[partKey]leader
	paused     pauses
	sessions   map[int32]*session

	batches   map[*Batch]struct{} // that are not settled
	held      holdings
	bytes     int // fetched and not yet polled
	reserved  int // for fetches under way
	pace      pace
	handed    int       // records, since the pace was looked at
	committed time.Time // when a transaction's records were seen last
	polls     int       // calls of Poll
	pollLeft  time.Time // when the last of them was over
}

// New checks; it joins the group at the first Poll. Errors are of class usage,
// or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, group string, opts ...Opt) (*Consumer, error) {
	if cl == nil {
		return nil, usage("New", "cluster: nil")
	}
	if group == "" {
		return nil, usage("New", "group: empty")
	}
	cfg := defaults()
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	co := core.Of(cl)
	client, err := co.NewClient(kgo.ConnIdleTimeout(connIdle), kgo.DisableClientMetrics()) // it has none of its own to tell
	if err != nil {
		if errors.Is(err, core.ErrClosed) {
			return nil, closedError("New", group)
		}
		return nil, usage("New", "%w", err)
	}
	return &Consumer{
		cfg: cfg, core: co, group: group, id: newMemberID(), client: client,
		subscribed: cfg.topics, hooks: newHooks(co.Hooks()),
		beat: make(chan struct{}, 1), refresh: make(chan struct{}, 1), renewer: make(chan struct{}, 1),
		left: make(chan struct{}), ended: make(chan struct{}), arrived: make(chan struct{}),
		lock:     30 * time.Second,
		assigned: make(map[partKey]struct{}), topics: make(map[[16]byte]string), leaders: make(map[partKey]leader),
		sessions: make(map[int32]*session), batches: make(map[*Batch]struct{}), held: make(holdings),
	}, nil
}

// connIdle is the longest that kgo allows, and above any dwell that locks allow
// (60 s by a stock broker's bounds, unless renewed: and a renewal is traffic):
// the broker drops a member's session, and what it acquired, with the
// connection.
const connIdle = 15 * time.Minute

// newMemberID is a UUID in the text form of Java's clients.
func newMemberID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// ShareGroupMetadata is the member as it is now; zero before it has joined.
func (c *Consumer) ShareGroupMetadata() groupmeta.ShareGroupMetadata {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.member()
}

// member is ShareGroupMetadata with c.mu held.
func (c *Consumer) member() groupmeta.ShareGroupMetadata {
	if c.epoch <= 0 {
		return groupmeta.ShareGroupMetadata{}
	}
	m, err := groupmeta.New(c.group, c.id, c.epoch)
	if err != nil { // group and id were checked, the epoch is positive
		return groupmeta.ShareGroupMetadata{}
	}
	return m
}

// start joins the group, once.
func (c *Consumer) start() {
	c.startOnce.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			cancel()
			return
		}
		live, endLive := context.WithCancel(ctx)
		c.started, c.cancel, c.endLive = true, cancel, endLive
		c.active = time.Now() // the membership may look before the poll that starts it is noted
		c.spawn = func(s *session) { go s.run(ctx) }
		c.unlist = c.core.Register(c.group, c.id, c)
		c.wg.Add(4)
		c.mu.Unlock()
		go c.membership(ctx, live)
		go c.routing(live)
		go c.renewing(live)
		go c.preflight(live)
	})
}

// Poll waits for at least one record, at most until ctx ends; its error is
// then returned, with a nil batch. With a context that has ended it gives what was
// fetched already, and has nothing fetched. It never acknowledges, except in Implicit
// mode, where it accepts what earlier batches left without a verdict.
//
// In Transactional mode it fails, with class usage and naming records, while an
// earlier batch carries accepted or rejected records that no transaction ever
// held: those outputs may have been committed with the acknowledgements
// forgotten. Other errors: what the group coordinator refuses for good (class
// fatal), authorization of a topic (abortable, told once), ErrClosed.
func (c *Consumer) Poll(ctx context.Context) (*Batch, error) {
	c.start()
	defer c.news.tell()
	lost, err := c.beforePoll()
	if fn := c.cfg.onAcknowledged; fn != nil {
		for _, r := range lost {
			fn(r)
		}
	}
	waiting := false
	over := func() { // c.mu is held
		if c.polls--; c.polls == 0 {
			c.pollLeft = time.Now()
		}
		if waiting {
			c.polling--
			c.seen(time.Now())
		}
		for _, s := range c.sessions {
			if c.polling > 0 || len(s.queue) > 0 {
				s.signal() // others wait and there is room again, or this poll needs no fetch to ride on
			}
		}
	}
	for {
		var b *Batch
		c.mu.Lock()
		if err == nil {
			b, err = c.take()
		}
		arrived := c.arrived
		switch {
		case b != nil || err != nil:
			over()
		case !waiting && ctx.Err() == nil: // who does not wait gets what is here, and asks no broker for more
			waiting = true
			c.polling++
			c.wakeSessions()
		}
		c.mu.Unlock()
		if b != nil || err != nil {
			return b, err
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			c.mu.Lock()
			over()
			c.mu.Unlock()
			return nil, ctx.Err()
		}
	}
}

// Drain ends fetching, for good, and waits for the fetches under way, at most
// until ctx ends. Afterwards Poll gives what is there already, and waits in vain
// for more. Close releases what nobody polled, and the broker archives what is
// on its last delivery then: who must not lose it drains first.
func (c *Consumer) Drain(ctx context.Context) error {
	for {
		c.mu.Lock()
		c.drained = true
		under := false
		for _, s := range c.sessions {
			under = under || s.fetches || s.packed > 0
		}
		closed, arrived := c.closed, c.arrived
		c.mu.Unlock()
		if closed || !under {
			return nil
		}
		select {
		case <-arrived:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// beforePoll deals with what earlier polls gave. Of what Implicit mode accepts
// now, lost is what was lost before it could be.
func (c *Consumer) beforePoll() (lost []AckResult, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.polled = time.Now()
	c.seen(c.polled)
	if c.handed > 0 && c.cfg.mode != Transactional {
		busy := time.Duration(0)
		if c.polls == 0 {
			busy = c.polled.Sub(c.pollLeft)
		}
		c.pace.saw(busy, c.handed)
		c.handed = 0
	}
	c.polls++
	c.sweep(c.polled)
	switch c.cfg.mode {
	case Explicit:
	case Implicit:
		for b := range c.batches {
			if b.state != open || b.closed {
				continue
			}
			lost = append(lost, c.acceptRest(b)...)
			b.settle()
		}
	case Transactional:
		for b := range c.batches {
			if r := firstDecided(b.records); r != nil && b.state == open && !b.taken {
				return nil, misuseError(recordsError(errNeverHeld, r))
			}
		}
		if len(c.misuses) > 0 {
			err := c.misuses[0]
			c.misuses = c.misuses[1:]
			return nil, misuseError(err)
		}
	}
	return lost, nil
}

// acceptRest acknowledges a batch of Implicit mode: what has no verdict is
// accepted. What was lost is given, and told by this poll. c.mu is held.
func (c *Consumer) acceptRest(b *Batch) (lost []AckResult) {
	if c.closed {
		return nil
	}
	for _, r := range b.records {
		if r.verdict == acks.Gap {
			r.verdict = acks.Accept
		}
	}
	job, parts := c.settleBy(b.records, false)
	for i, pt := range parts {
		c.tell(job.errs[i])
		lost = append(lost, AckResult{Partition: pt.tp, Batches: batchesOf(pt), Err: job.errs[i]})
	}
	return lost
}

// sweep settles open batches whose every lock ended long ago: whoever dropped
// them without Close will not come back, and their records are others'. In
// Implicit mode each poll settles them all, and tells how it went. c.mu is held.
func (c *Consumer) sweep(now time.Time) {
	if c.cfg.mode == Implicit {
		return
	}
	for b := range c.batches {
		if b.state != open || now.Before(b.sweepAt) {
			continue
		}
		if b.sweepAt = latest(b.records).Add(c.lock); now.After(b.sweepAt) && (c.cfg.mode != Transactional || firstDecided(b.records) == nil) {
			b.settle()
		}
	}
}

func misuseError(err error) error { return usage("Poll", "%w", err) }

// take makes a batch of what is buffered; nil if nothing is. c.mu is held.
func (c *Consumer) take() (*Batch, error) {
	if c.closed {
		return nil, closedError("Poll", c.group)
	}
	if c.fatal != nil {
		return nil, c.fatal
	}
	if len(c.surfaced) > 0 {
		err := c.surfaced[0]
		c.surfaced = c.surfaced[1:]
		return nil, err
	}
	return c.handOut(time.Now()), nil
}

// margin is how much of the lock must be left to hand a record out.
func (c *Consumer) margin() time.Duration {
	if c.cfg.lockMargin > 0 {
		return min(c.cfg.lockMargin, c.lock/2)
	}
	return min(c.lock/5, maxMargin)
}

// announce wakes polls; c.mu is held.
func (c *Consumer) announce() {
	close(c.arrived)
	c.arrived = make(chan struct{})
}

// tell gives an error to the next poll, unless it is about to be told already;
// c.mu is held.
func (c *Consumer) tell(err error) {
	if !slices.ContainsFunc(c.surfaced, func(e error) bool { return e.Error() == err.Error() }) {
		c.surfaced = append(c.surfaced, err)
	}
	c.announce()
}

func (c *Consumer) wakeSessions() {
	for _, s := range c.sessions {
		s.signal()
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // one is waiting already
	}
}

// misuse tells the hooks; c.mu is not held.
func (c *Consumer) misuse(what, where string) {
	for _, h := range c.core.Hooks() {
		if h, ok := h.(sharetxn.HookMisuse); ok {
			h.OnMisuse(sharetxn.Misuse{What: what, Where: where})
		}
	}
}

// Batches polls until ctx ends or the consumer is closed; the loop then ends
// without an error. Before each poll it closes the batch before, so that what
// was left undecided is given back at once; in Implicit mode the poll accepts
// it, and a loop that is left gives the last batch back. Errors of Poll are
// yielded; the loop ends after a fatal one and goes on after others.
func (c *Consumer) Batches(ctx context.Context) iter.Seq2[*Batch, error] {
	return func(yield func(*Batch, error) bool) {
		for {
			b, err := c.Poll(ctx)
			switch {
			case ctx.Err() != nil && b == nil, errors.Is(err, sharetxn.ErrClosed):
				return
			case err != nil:
				if !yield(nil, err) || sharetxn.IsFatal(err) {
					return
				}
				continue
			}
			more := yield(b, nil)
			if !more || c.cfg.mode != Implicit {
				b.Close()
			}
			if !more {
				return
			}
		}
	}
}
