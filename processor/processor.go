package processor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/txnmanager"
)

// Processor runs members of a share group. Safe for concurrent use.
type Processor struct {
	_           [0]func()
	cfg         Config
	cl          *sharetxn.Cluster
	log         *slog.Logger
	hooks       []sharetxn.HookHandled
	ledgerHooks []sharetxn.HookLedger
	members     []*member
	limit       *limit
	environs    *environs
	open        func(context.Context) (groupLedger, error) // the group's ledger

	soft, hard *trigger
	done       chan struct{} // closed when Run has returned

	mu        sync.Mutex
	ran       bool
	guarantee Guarantee // in force, once agreed on
}

// trigger is a channel that many may close.
type trigger struct {
	once sync.Once
	ch   chan struct{}
}

func newTrigger() *trigger { return &trigger{ch: make(chan struct{})} }

func (t *trigger) pull() { t.once.Do(func() { close(t.ch) }) }

// New checks all of Config, without I/O. Errors are of class usage and name the
// field, or fatal with ErrClosed for a closed cluster.
func New(cl *sharetxn.Cluster, cfg Config) (*Processor, error) {
	if cl == nil {
		return nil, usage("New", "cluster: nil")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	// What a member is made of checks the rest, and connects nowhere.
	c, err := cfg.newConsumer(cl)
	if err != nil {
		return nil, err
	}
	p, err := cfg.newProducer(cl, 0, cfg.Guarantee, cmp.Or(cfg.TransactionTimeout, txnmanager.DefaultTransactionTimeout))
	if err = errors.Join(err, c.Close()); err != nil {
		return nil, err
	}
	if err := p.Close(); err != nil {
		return nil, err
	}
	co := core.Of(cl)
	out := &Processor{
		cfg: cfg, cl: cl, log: co.Logger(),
		limit: &limit{group: cfg.Group, log: co.Logger()},
		soft:  newTrigger(), hard: newTrigger(), done: make(chan struct{}), guarantee: cfg.Guarantee,
	}
	out.environs = &environs{
		cl: cl, group: cfg.Group, limit: out.limit, isolation: &isolation{group: cfg.Group, policy: cfg.InputIsolation, log: co.Logger()},
		topics: slices.Concat(cfg.Topics, cfg.deadTopic()),
	}
	for _, h := range co.Hooks() {
		if h, ok := h.(sharetxn.HookHandled); ok {
			out.hooks = append(out.hooks, h)
		}
		if h, ok := h.(sharetxn.HookLedger); ok {
			out.ledgerHooks = append(out.ledgerHooks, h)
		}
	}
	out.open = func(ctx context.Context) (groupLedger, error) {
		l, err := tail.Open(ctx, co, cfg.Group, tail.Options{Guarantee: Ledger.String()})
		if err != nil { // no *tail.Ledger, and so no ledger
			return nil, err
		}
		return l, nil
	}
	for n := range cfg.Members {
		out.members = append(out.members, newMember(out, n))
	}
	return out, nil
}

// Run works until ctx ends, Stop is called, or a fatal error. The end of ctx is
// a soft stop: no new poll, what is in hand is finished and committed within
// StopTimeout, the rest is given back; then the members leave the group. It
// returns nil after a stop. Errors: of class usage if it is called twice;
// *UnsupportedError where the brokers do not prove the guarantee, with nothing
// sent on the staging key; ErrGuarantee where the group keeps another;
// *UnfitError, or an error that names the command, where a ledger is to be used
// and cannot be, and later if it was reset or deleted; ErrFenced, which says why, if another process with
// the same TransactionalID and Instance took over; ErrReadUncommitted where
// InputIsolation requires otherwise; any that comes before the
// members work, such as an address without a broker; and what is fatal later.
func (p *Processor) Run(ctx context.Context) error {
	p.mu.Lock()
	ran := p.ran
	p.ran = true
	p.mu.Unlock()
	if ran {
		return usage("Run", "called twice; make another Processor")
	}
	defer close(p.done)
	defer context.AfterFunc(ctx, p.soft.pull)()

	hard, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	over := make(chan struct{})
	defer close(over)
	wg.Go(func() { p.watchStop(cut, over) })
	starting, stopStarting := context.WithCancel(hard)
	defer stopStarting()
	wg.Go(func() {
		select {
		case <-p.soft.ch:
			stopStarting()
		case <-over:
		}
	})
	pr, err := p.prepare(starting)
	if err != nil {
		if starting.Err() != nil && !sharetxn.IsFatal(err) { // stopped before it began
			err = nil
		}
		for _, m := range p.members {
			m.never(err)
		}
		return err
	}
	watching, endWatch := context.WithCancel(hard)
	defer endWatch()
	if pr.ledger != nil {
		defer func() { _ = pr.ledger.Close() }() // never an error
		pr.standing = pr.ledger
	} else {
		b := newBond(p.cl, p.cfg.Group, pr.guarantee)
		pr.standing = b
		wg.Go(func() { b.watch(watching) })
	}
	seen := p.environs.look(starting)
	wg.Go(func() { p.environs.watch(watching, seen) })

	errs := make([]error, len(p.members))
	var members sync.WaitGroup
	for i, m := range p.members {
		members.Go(func() {
			if errs[i] = m.run(starting, hard, p.soft.ch, pr); errs[i] != nil {
				p.soft.pull() // the others finish what they have
			}
		})
	}
	members.Wait()
	for i, err := range errs {
		if err != nil {
			errs[i] = fmt.Errorf("member %d: %w", i, err)
		}
	}
	return explainFence(errors.Join(errs...), p.cfg)
}

// prepare finds out what must be known before the members join, and what they work
// under.
func (p *Processor) prepare(start context.Context) (promise, error) {
	if err := p.environs.isolation.require(start, p.cl); err != nil {
		return promise{}, err
	}
	pr, err := p.agree(start)
	if err != nil {
		return promise{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.guarantee = pr.guarantee
	return pr, nil
}

// watchStop makes a hard stop of a soft one that takes too long.
func (p *Processor) watchStop(cut context.CancelCauseFunc, over <-chan struct{}) {
	select {
	case <-p.soft.ch:
	case <-over:
		return
	}
	t := time.NewTimer(p.cfg.StopTimeout)
	defer t.Stop()
	select {
	case <-t.C:
		p.log.Warn("sharetxn: StopTimeout passed, stopping hard", "group", p.cfg.Group)
	case <-p.hard.ch:
	case <-over:
		return
	}
	cut(errHardStop)
}

// Stop is the soft stop; when its ctx ends, or already has, the hard one:
// handlers' contexts end, transactions abort. It returns when Run has, at once
// if Run was never called; the error is that of ctx if it came to a hard stop.
func (p *Processor) Stop(ctx context.Context) error {
	p.mu.Lock()
	ran := p.ran
	p.ran = true // a later Run refuses
	p.mu.Unlock()
	p.soft.pull()
	if !ran {
		return nil
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	select {
	case <-p.done: // both were so
		return nil
	default:
	}
	p.hard.pull()
	<-p.done
	return context.Cause(ctx)
}

// Status is for health endpoints. It asks nobody.
func (p *Processor) Status() Status {
	p.mu.Lock()
	g := p.guarantee
	p.mu.Unlock()
	s := Status{Guarantee: g, Ready: true, MissingTopics: p.environs.missingNow()}
	for _, m := range p.members {
		row := m.status()
		s.Ready = s.Ready && row.State == working.String() && row.Member != ""
		s.Members = append(s.Members, row)
	}
	return s
}
