package txnmanager

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/preflight"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TransactionManager owns one transactional id: one transaction at a time.
// Safe for concurrent use.
type TransactionManager struct {
	_       [0]func()
	id      string
	cfg     config
	cluster *sharetxn.Cluster
	core    *core.Cluster
	log     *slog.Logger
	client  *kgo.Client     // for everything but producing; changed with the turn and m.mu
	coord   coordinator     // likewise
	leaders leaders         // likewise
	lander  coordinator     // with the landing only
	led     map[place]int32 // leaders of outputs, likewise
	leash   leash
	wg      sync.WaitGroup

	// turn is held by the one call that talks to brokers for the transactional
	// id. A channel, since its holder does I/O.
	turn chan struct{}

	closeOnce sync.Once
	closeErr  error

	mu      sync.Mutex // never held over I/O or a callback
	state   State
	ident   identity // for the next transaction
	fatal   error    // why the state is Fenced
	txn     *Transaction
	pending *Transaction    // with the state OutcomeUnknown
	current bool            // the kgo client has seen the end of every transaction so far
	landing *landing        // of the last transaction that wrote anything
	unseen  map[string]bool // topics where ends are not seen
	past    past            // what an earlier life of the id left, if anything
	looked  map[string]bool // topics where that is known not to be
	debts   []debt          // ends that are to land before anything is written
}

// New checks; it opens no connection. Errors are of class usage and name the
// field, or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, transactionalID string, opts ...Opt) (*TransactionManager, error) {
	if cl == nil {
		return nil, usage("cluster: nil")
	}
	cfg := defaults()
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(transactionalID); err != nil {
		return nil, err
	}
	co := core.Of(cl)
	client, err := newClient(co)
	if errors.Is(err, core.ErrClosed) {
		return nil, &sharetxn.Error{Op: "New", Class: sharetxn.ClassFatal, TransactionalID: transactionalID, Err: sharetxn.ErrClosed}
	} else if err != nil {
		return nil, usage("%w", err)
	}
	return &TransactionManager{
		id: transactionalID, cfg: cfg, cluster: cl, core: co, log: co.Logger(), client: client,
		coord:   coordinator{client: client, id: transactionalID, node: -1},
		leaders: leaders{client: client},
		lander:  coordinator{id: transactionalID, node: -1},
		led:     make(map[place]int32), unseen: make(map[string]bool),
		turn:  make(chan struct{}, 1),
		ident: unknownIdentity, past: noPast,
	}, nil
}

func newClient(co *core.Cluster) (*kgo.Client, error) {
	return co.NewClient(PinEndTxn(), kgo.RequestTimeoutOverhead(requestTimeout), kgo.DisableClientMetrics())
}

// reconnect replaces the kgo client, which asks what a broker speaks only when it
// connects; the turn is held.
func (m *TransactionManager) reconnect() error {
	cl, err := newClient(m.core)
	if err != nil {
		return err
	}
	m.mu.Lock()
	old := m.client
	m.client, m.coord.client, m.leaders.client = cl, cl, cl
	m.mu.Unlock()
	old.Close()
	return nil
}

// clientNow is the client for who does not have the turn.
func (m *TransactionManager) clientNow() *kgo.Client {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.client
}

// TransactionalID is the id.
func (m *TransactionManager) TransactionalID() string { return m.id }

// State is the state now.
func (m *TransactionManager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// ProducerID is the producer id and epoch that the next transaction would have,
// or the open one has once something was sent; -1 and -1 if they are not known.
func (m *TransactionManager) ProducerID() (id int64, epoch int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ident.id, m.ident.epoch
}

// takeTurn waits for the turn; endTurn gives it back.
func (m *TransactionManager) takeTurn(ctx context.Context) error {
	select {
	case m.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return cause(ctx)
	}
}

func (m *TransactionManager) endTurn() { <-m.turn }

// advance makes a step of the state table; m.mu is held.
func (m *TransactionManager) advance(op string, e event) error {
	s, err := m.state.next(e)
	if err != nil {
		if m.fatal != nil && m.state == Fenced {
			return m.failure(op, sharetxn.ClassFatal, m.fatal)
		}
		return m.refusal(op, m.state, err)
	}
	m.state = s
	return nil
}

// step is advance for who does not hold m.mu.
func (m *TransactionManager) step(op string, e event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.advance(op, e)
}

// ProveStaging makes sure that every broker speaks TxnShareAcknowledge
// (KIP-1289); what was proven is asked for again only once a broker has denied
// it. Otherwise the error is an *UnsupportedError and nothing was sent on that
// key; transactions that only produce still work.
func (m *TransactionManager) ProveStaging(ctx context.Context) error {
	if m.core.Proven() {
		return nil
	}
	ctx, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	caps, err := m.cluster.Capabilities(ctx)
	if err != nil {
		return m.failure("Capabilities", sharetxn.ClassOf(err), err)
	}
	if !caps.SupportsStaging() {
		return &sharetxn.UnsupportedError{Found: caps}
	}
	return nil
}

// Init settles an unknown outcome, fences other producers of the id and aborts
// what they left open. Idempotent: once it succeeded it does nothing. Errors:
// ErrTxnOpen; ErrOutcomeUnknown if the outcome cannot be settled yet; ErrFenced,
// ErrUnsupported (transaction.version below 2) or a refusal by configuration or
// access, of class fatal; *InternalTopicsError, within seconds, where there can be
// no coordinator yet; ErrClosed.
func (m *TransactionManager) Init(ctx context.Context) error {
	ctx, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	if err := m.takeTurn(ctx); err != nil {
		return m.failure("Init", sharetxn.ClassAbortable, err)
	}
	defer m.endTurn()
	return m.prepare(ctx, "Init")
}

// Settle ends the question about an unknown outcome, if there is one, as Init and
// Begin do before anything else, and says whether a transaction could begin; it
// does not begin one and initialises nothing. A front end with several ids asks
// all of them before it uses any. op names its caller's call in errors, which
// are those of Init.
func (m *TransactionManager) Settle(ctx context.Context, op string) error {
	bounded, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	if err := m.waitTrouble(bounded, op); err != nil {
		return err
	}
	if m.State() == OutcomeUnknown {
		if err := m.takeTurn(bounded); err != nil {
			return m.failure(op, sharetxn.ClassAbortable, err)
		}
		defer m.endTurn()
		if err := m.settlePending(bounded, op); err != nil {
			return err
		}
	}
	return m.step(op, evInit)
}

// settlePending settles what is unknown; the turn is held.
func (m *TransactionManager) settlePending(ctx context.Context, op string) error {
	if m.State() != OutcomeUnknown {
		return nil
	}
	return m.settle(ctx, op)
}

// prepare brings the id to Ready; the turn is held.
func (m *TransactionManager) prepare(ctx context.Context, op string) error {
	if err := m.settlePending(ctx, op); err != nil {
		return err
	}
	if err := m.waitTrouble(ctx, op); err != nil {
		return err
	}
	if err := m.step(op, evInit); err != nil {
		return err
	}
	if m.State() == Ready {
		return nil
	}
	if err := m.waitLanded(ctx, op); err != nil {
		return err
	}
	return m.initialise(ctx)
}

// initialise runs InitProducerId until it is answered; the turn is held. An
// identity that is known is given along, so that the coordinator tells whether
// another producer took over.
func (m *TransactionManager) initialise(ctx context.Context) error {
	m.mu.Lock()
	known := m.ident
	m.mu.Unlock()
	var w *will
	if !known.known() {
		w = &will{}
	}
	got, err := m.take(ctx, &m.coord, known, w)
	switch {
	case errors.Is(err, sharetxn.ErrFenced):
		return m.fence("InitProducerId", err)
	case err != nil:
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ident = got
	if w != nil {
		m.inherit(w, got)
	}
	if len(m.debts) > 0 && m.txn == nil { // not only when something is written
		m.landDebt()
	}
	return m.advance("InitProducerId", evReady)
}

// take repeats InitProducerId until it is answered for good, or it is known that
// there is no coordinator; the turn is held. w, if there is one, is told before each
// what the coordinator says of the id.
func (m *TransactionManager) take(ctx context.Context, c *coordinator, known identity, w *will) (identity, error) {
	ctx, stop := preflight.Guard(ctx, m.core, preflight.Transactions)
	defer stop()
	var pause backoff
	for {
		got, err := m.takeOnce(ctx, c, known, w)
		if err == nil {
			return got, nil
		}
		if again, err := afterInit(c, err); !again {
			return unknownIdentity, err
		}
		if ended := pause.wait(ctx); ended != nil {
			if _, known := errors.AsType[*sharetxn.InternalTopicsError](ended); !known {
				ended = errors.Join(ended, err)
			}
			return unknownIdentity, failureOf(c.id, "InitProducerId", sharetxn.ClassAbortable, ended)
		}
	}
}

func (m *TransactionManager) takeOnce(ctx context.Context, c *coordinator, known identity, w *will) (identity, error) {
	if w != nil {
		d, err := c.describeOnce(ctx)
		if err != nil {
			return unknownIdentity, err
		}
		w.saw(d)
	}
	return c.initOnce(ctx, known, m.cfg.timeout)
}

// afterInit says whether InitProducerId is worth another try, or what its error
// means.
func afterInit(c *coordinator, err error) (again bool, _ error) {
	if old, ok := errors.AsType[errTooOld](err); ok {
		return false, failureOf(c.id, "InitProducerId", sharetxn.ClassFatal, errors.Join(sharetxn.ErrUnsupported, old))
	}
	a, ok := errors.AsType[answered](err)
	if !ok {
		c.forget()
		return true, nil
	}
	switch classify(a.rpc, a.code) {
	case vAgain:
		return true, nil
	case vElsewhere:
		c.forget()
		return true, nil
	case vOK, vMoved, vAbort, vNotCommitted, vCommitted, vFenced, vRefused, vUnsupported, vUnclear, verdicts:
	}
	return false, refusedOf(c.id, a.rpc, a.code)
}

// fence ends the manager's life for good, an open transaction's with its end,
// and gives err.
func (m *TransactionManager) fence(op string, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ident, m.fatal = unknownIdentity, err
	if m.txn != nil {
		return err
	}
	if e := m.advance(op, evFenced); e != nil {
		return e
	}
	return err
}

// Start says what belongs to a transaction. The zero Start is a transaction
// without anyone to tell.
type Start struct {
	// Group is for hooks: the share group of the first batch.
	Group string
	// Collect is asked, once every record is delivered, for what a commit is to
	// stage beside what Stage was given. An error makes the commit an abort. An
	// abort does not ask.
	Collect func(ctx context.Context) ([]Acknowledged, error)
	// Check is asked right before EndTxn(commit) is sent; an error makes the
	// commit an abort.
	Check func() error
	// Landed is told, after Settled was told Committed, when the commit stands in
	// every partition that the transaction wrote to, so that nothing can undo it: as
	// a rule after a few ms, later where a partition has no leader, and never where
	// Close comes before, or another producer takes the id. It must not call back.
	Landed func()
	// Settled is told how the transaction ended: once, or a second time after
	// Unknown when a later Begin or Init has settled it. It must not call back.
	Settled func(Ended)
}

// Acknowledged is what one member's acknowledgements in a transaction are.
type Acknowledged struct {
	Member    groupmeta.ShareGroupMetadata
	LockUntil time.Time // earliest end of an acquisition lock among Batches
	Batches   map[acks.TopicIDPartition][]acks.AcknowledgementBatch
	// Plain says that they are not to be staged: whoever gave them acknowledges
	// them once the commit is proven. A commit after LockUntil is refused all the
	// same, since others may have got the records.
	Plain bool
}

// Ended is how a transaction ended.
type Ended struct {
	Outcome sharetxn.Outcome
	// Sent tells whether anything of the transaction may have reached a broker.
	Sent bool
	// Freed tells whether the transaction's abort may have made the member's
	// records of the partition available to anyone: a staging request that named
	// it may have reached a broker whose profile does so.
	Freed func(group, member string, tp acks.TopicIDPartition) bool
	// Outcast is whom its group did not take for a member when it staged; zero:
	// nobody.
	Outcast groupmeta.ShareGroupMetadata
}

// Begin opens a transaction. It settles the unknown outcome of the one before
// first, and initialises where nobody did. Nothing is sent for the new one.
// The context returned is ctx as the hooks made it. Errors as for Init.
func (m *TransactionManager) Begin(ctx context.Context, start Start) (context.Context, *Transaction, error) {
	bounded, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	// An open transaction is told at once, not after waiting for its end.
	if s := m.State(); s == Open || s == AbortOnly || s == Ending {
		return ctx, nil, m.refusal("Begin", s, sharetxn.ErrTxnOpen)
	}
	if err := m.takeTurn(bounded); err != nil {
		return ctx, nil, m.failure("Begin", sharetxn.ClassAbortable, err)
	}
	defer m.endTurn()
	if err := m.prepare(bounded, "Begin"); err != nil {
		return ctx, nil, err
	}
	t := &Transaction{m: m, start: start, event: sharetxn.TxnStart{TransactionalID: m.id, Group: start.Group}}
	m.mu.Lock()
	err := m.advance("Begin", evBegin)
	if err == nil {
		m.txn = t
	}
	m.mu.Unlock()
	if err != nil {
		return ctx, nil, err
	}
	return m.onStart(ctx, t.event), t, nil
}

// Close aborts an open transaction, settles an unknown outcome if it can, and
// frees everything. Bounded by CloseTimeout; idempotent; safe for concurrent
// use. The error, of class unknown, says that an end stayed unanswered: the next
// producer of the id makes the broker abort what is still to be decided. Where it
// was an abort, Settled is told Aborted all the same.
func (m *TransactionManager) Close() error {
	m.closeOnce.Do(func() { m.closeErr = m.close() })
	return m.closeErr
}

func (m *TransactionManager) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), m.cfg.close)
	defer cancel()
	m.mu.Lock()
	t := m.txn
	m.mu.Unlock()
	ours := t != nil && t.beginEnd("Close", false) == nil
	if m.takeTurn(ctx) != nil {
		m.leash.sever() // who has the turn gives it back now
		m.turn <- struct{}{}
	}
	defer m.endTurn()
	var err error
	if ours {
		rest, _ := ctx.Deadline()
		_, err = t.endInTurn(ctx, "Close", false, time.Until(rest))
		if errors.Is(err, sharetxn.ErrAborted) {
			err = nil
		}
	}
	if m.State() == OutcomeUnknown {
		bounded, free := m.leash.hold(ctx)
		err = m.settle(bounded, "Close")
		free()
		m.letGo(ctx)
	}
	landed := m.waitLanded(ctx, "Close")
	m.leash.sever()
	closed := m.step("Close", evClose)
	m.wg.Wait()
	if m.cfg.outputs != nil {
		m.cfg.outputs.Close()
	}
	m.client.Close()
	return errors.Join(err, landed, closed)
}
