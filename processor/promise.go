package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/tail"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kerr"
)

// evidence is what the choice of a guarantee rests on.
type evidence struct {
	recorded *Guarantee // what the group is bound to; nil: nothing says so
	staging  error      // why the brokers cannot stage; nil if they can, or if nobody asked
	noLedger error      // why there is no ledger; nil if there is one, or if nobody asked
}

// choose gives the first of want that the brokers prove, or that one which the
// group is bound to. All processes of a group must keep the same promise, or none
// is kept: what one settles by staging another would not find in the ledger.
func choose(want []Guarantee, e evidence) (Guarantee, error) {
	if e.recorded != nil && !slices.Contains(want, *e.recorded) {
		return 0, fmt.Errorf("%w: it is %v, and this Processor is to keep %v; set Config.Guarantee, or move the group with \"sharetxn ledger move\" while no process works on it", ErrGuarantee, *e.recorded, want)
	}
	for _, g := range want {
		switch {
		case e.recorded != nil && g != *e.recorded:
		case g == Staged && e.staging != nil:
		case g == Ledger:
			return g, e.noLedger // a command makes one: no reason for a weaker promise
		default:
			return g, nil
		}
	}
	return 0, e.staging
}

// UnfitError: guarantee Ledger would not be kept where it is to be used. Class
// fatal.
type UnfitError struct {
	Group    string
	Problems []ledger.Problem // each Fatal, with the command that mends it
}

func (e *UnfitError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "processor: group %s cannot have guarantee ledger:", e.Group)
	for _, x := range e.Problems {
		fmt.Fprintf(&b, "\n\t%s is %s, want %s: %s", x.Setting, x.Value, x.Want, x.Command)
	}
	return b.String()
}

// promise is what a Processor works under.
type promise struct {
	guarantee Guarantee
	ledger    groupLedger // with guarantee Ledger; else nil
	standing  standing
	timeout   time.Duration // of transactions
}

// candidates are the guarantees that the Config allows, in order.
func (c Config) candidates() []Guarantee {
	return slices.Concat([]Guarantee{c.Guarantee}, c.Fallback)
}

// agree finds the guarantee to keep, and opens the ledger if it needs that: what
// it says must be known before the first record comes.
func (p *Processor) agree(start context.Context) (promise, error) {
	l, e, err := p.gatherEvidence(start)
	var g Guarantee
	if err == nil {
		g, err = choose(p.cfg.candidates(), e)
	}
	var timeout time.Duration
	if err == nil {
		timeout = p.timeout(start)
	}
	if err == nil && g == Ledger {
		err = p.fit(start, timeout)
	}
	if err != nil {
		if l != nil {
			err = errors.Join(err, l.Close())
		}
		return promise{}, p.fatal(err)
	}
	if g != p.cfg.Guarantee {
		p.log.Warn("sharetxn: another guarantee than the first is in force", "group", p.cfg.Group, "wanted", p.cfg.Guarantee.String(), "in force", g.String(), "err", e.staging)
	}
	if g == AckAfterCommit {
		warnAtLeastOnce(p.log, p.cfg.Group)
	}
	return promise{guarantee: g, ledger: l, timeout: timeout}, nil
}

// gatherEvidence asks what the choice needs; the ledger is open if the group is
// bound to that.
func (p *Processor) gatherEvidence(start context.Context) (l groupLedger, e evidence, err error) {
	want := p.cfg.candidates()
	if slices.Contains(want, Ledger) {
		l, e, err = p.openLedger(start)
	} else {
		e.recorded, err = p.recorded(start)
	}
	if err == nil && len(want) > 1 && slices.Contains(want, Staged) { // alone it is proven by who stages
		e.staging, err = p.staging(start)
	}
	return l, e, err
}

// fatal makes what this Processor refuses to work under an error of class fatal;
// others keep theirs.
func (p *Processor) fatal(err error) error {
	if _, unfit := errors.AsType[*UnfitError](err); !unfit && !errors.Is(err, ErrGuarantee) {
		return err
	}
	return &sharetxn.Error{Op: "Run", Class: sharetxn.ClassFatal, Group: p.cfg.Group, Err: err}
}

// openLedger opens the group's ledger, or finds that another guarantee is recorded
// there, or that there is none at all.
func (p *Processor) openLedger(start context.Context) (l groupLedger, e evidence, err error) {
	err = patiently(start, p.log, "what the group's ledger says", func(ctx context.Context) error {
		l, err = p.open(ctx)
		return err
	})
	other, bound := errors.AsType[*tail.GuaranteeError](err)
	switch {
	case err == nil:
		g := Ledger
		e.recorded = &g
	case bound:
		e.recorded, err = p.bound(other.Recorded.Guarantee)
	case errors.Is(err, topic.ErrMissing):
		e.noLedger, err = err, nil
	}
	return l, e, err
}

// fit refuses where a rule of the ledger is not met without which it does not keep
// its promise, and warns of the others.
func (p *Processor) fit(start context.Context, timeout time.Duration) error {
	opts := []ledger.CheckOpt{ledger.TransactionTimeout(timeout), ledger.EnvironmentOnly()}
	if p.cfg.InputIsolation == RequireReadCommitted {
		opts = append(opts, ledger.RequireReadCommitted())
	}
	var found []ledger.Problem
	err := patiently(start, p.log, "what the ledger needs", func(ctx context.Context) (err error) {
		found, err = ledger.Check(ctx, p.cl, p.cfg.Group, p.cfg.Topics, opts...)
		return err
	})
	if err != nil {
		return err
	}
	var fatal []ledger.Problem
	for _, x := range found {
		switch {
		case x.Fatal:
			fatal = append(fatal, x)
		case x.Rule != isolationRule: // who watches the isolation tells of it
			p.log.Warn("sharetxn: advice for a group with a ledger", "group", p.cfg.Group, "setting", x.Setting, "is", x.Value, "want", x.Want, "command", x.Command)
		}
	}
	if len(fatal) > 0 {
		return &UnfitError{Group: p.cfg.Group, Problems: fatal}
	}
	return nil
}

// isolationRule is the one that Config.InputIsolation speaks of too.
const isolationRule = "isolation"

// recorded reads which guarantee the group is bound to, without a ledger in use.
func (p *Processor) recorded(start context.Context) (*Guarantee, error) {
	var recorded *Guarantee
	if possible := topic.CheckGroup("Run", p.cfg.Group) == nil; !possible {
		return recorded, nil
	}
	err := patiently(start, p.log, "which guarantee the group is bound to", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, startFor)
		defer cancel()
		g, err := topic.Recorded(ctx, core.Of(p.cl), p.cfg.Group)
		if errors.Is(err, kerr.TopicAuthorizationFailed) {
			p.log.Warn("sharetxn: whether the group is bound to another guarantee cannot be seen; it is taken for not bound", "group", p.cfg.Group, "err", err)
			return nil
		}
		if err != nil || g == (entry.Generation{}) {
			return err
		}
		recorded, err = p.bound(g.Guarantee)
		return err
	})
	return recorded, err
}

// bound is the guarantee of that name.
func (p *Processor) bound(name string) (*Guarantee, error) {
	g, err := ParseGuarantee(name)
	if err != nil {
		return nil, p.fatal(fmt.Errorf("%w: it is %q, which this version does not know", ErrGuarantee, name))
	}
	return &g, nil
}

// staging is why the brokers cannot stage; nil if they can.
func (p *Processor) staging(start context.Context) (why, err error) {
	err = patiently(start, p.log, "what the brokers can do", func(ctx context.Context) error {
		caps, err := p.cl.Capabilities(ctx)
		if err == nil && !caps.SupportsStaging() {
			why = &sharetxn.UnsupportedError{Found: caps}
		}
		return err
	})
	return why, err
}

// patiently asks until there is an answer, in spite of what passes by itself. The
// error is that of start's end, too.
func patiently(start context.Context, log *slog.Logger, what string, ask func(context.Context) error) error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		err := ask(start)
		if err == nil || sharetxn.IsFatal(err) || time.Since(began) > startFor || !lapse.For(start, backoff(attempt)) {
			return err
		}
		log.Warn("sharetxn: "+what+" is not known yet, again", "err", err)
	}
}

// atLeastOnce are the groups of this process that were warned of.
var atLeastOnce sync.Map

func warnAtLeastOnce(log *slog.Logger, group string) {
	if _, told := atLeastOnce.LoadOrStore(group, true); !told {
		log.Warn("sharetxn: guarantee ack-after-commit is at least once: what was committed and not yet acknowledged when a process, a connection or a lock ends is published again; guarantee ledger is exactly once on the same brokers",
			"group", group)
	}
}
