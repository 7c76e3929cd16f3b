package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
)

// evidence is what the choice of a guarantee rests on.
type evidence struct {
	recorded *Guarantee // what the group is bound to; nil: nothing says so
	staging  error      // why the brokers cannot stage; nil if they can, or if nobody asked
}

// choose gives the first of want that the brokers prove, or that one which the
// group is bound to. All processes of a group must keep the same promise, or none
// is kept: what one settles by staging another would not find in the ledger.
func choose(want []Guarantee, e evidence) (Guarantee, error) {
	if e.recorded != nil && !slices.Contains(want, *e.recorded) {
		return 0, fmt.Errorf("%w: it is %v, and this Processor is to keep %v; set Config.Guarantee, or move the group with \"sharetxn ledger move\" while no process works on it", ErrGuarantee, *e.recorded, want)
	}
	for _, g := range want {
		if e.recorded != nil && g != *e.recorded || g == Staged && e.staging != nil {
			continue
		}
		return g, nil
	}
	return 0, e.staging
}

// candidates are the guarantees that the Config allows, in order.
func (c Config) candidates() []Guarantee {
	return slices.Concat([]Guarantee{c.Guarantee}, c.Fallback)
}

// agree finds the guarantee to keep.
func (p *Processor) agree(start context.Context) (Guarantee, error) {
	want := p.cfg.candidates()
	var e evidence
	if len(want) > 1 && slices.Contains(want, Staged) { // alone it is proven by who stages
		err := patiently(start, p.log, "what the brokers can do", func(ctx context.Context) error {
			caps, err := p.cl.Capabilities(ctx)
			if err == nil && !caps.SupportsStaging() {
				e.staging = &sharetxn.UnsupportedError{Found: caps}
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	g, err := choose(want, e)
	switch {
	case errors.Is(err, ErrGuarantee):
		return 0, &sharetxn.Error{Op: "Run", Class: sharetxn.ClassFatal, Group: p.cfg.Group, Err: err}
	case err != nil:
		return 0, err
	case g != p.cfg.Guarantee:
		p.log.Warn("sharetxn: another guarantee than the first is in force", "group", p.cfg.Group, "wanted", p.cfg.Guarantee.String(), "in force", g.String(), "err", e.staging)
	}
	if g == AckAfterCommit {
		warnAtLeastOnce(p.log, p.cfg.Group)
	}
	return g, nil
}

// patiently asks until there is an answer, in spite of what passes by itself. The
// error is that of start's end, too.
func patiently(start context.Context, log *slog.Logger, what string, ask func(context.Context) error) error {
	began := time.Now()
	for attempt := 1; ; attempt++ {
		err := ask(start)
		if err == nil || sharetxn.IsFatal(err) || time.Since(began) > startFor || !pause(start, backoff(attempt)) {
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
