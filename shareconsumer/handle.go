package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
)

// handle is a batch as a transaction sees it.
type handle struct{ b *Batch }

var _ bind.Handle = handle{}

func (h handle) Group() string { return h.b.c.group }
func (h handle) Cluster() any  { return h.b.c.core }

// Offer implements bind.Handle.
func (h handle) Offer() {
	c := h.b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h.b.taken = true
}

// Hold implements bind.Handle.
func (h handle) Hold() error {
	b := h.b
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return closedError("Begin", c.group)
	}
	if c.cfg.mode != Transactional {
		return &sharetxn.Error{Op: "Begin", Class: sharetxn.ClassUsage, Group: c.group, Err: fmt.Errorf("%w: the consumer's mode is %v, a transaction takes batches of a Transactional one", sharetxn.ErrMode, c.cfg.mode)}
	}
	to, err := b.state.next(evHold)
	if err != nil {
		return b.stale("Begin", err)
	}
	if lost := lostRecords(b.records); len(lost) > 0 {
		return &sharetxn.Error{Op: "Begin", Class: sharetxn.ClassAbortable, Group: c.group, Err: recordsError(staleBecause(lost[0]), lost...)}
	}
	b.state = to
	c.wakeRenewer()
	return nil
}

func lostRecords(rs []*Record) (lost []*Record) {
	for _, r := range rs {
		if r.lease.lost != nil {
			lost = append(lost, r)
		}
	}
	return lost
}

func staleBecause(r *Record) error { return fmt.Errorf("%w: %w", sharetxn.ErrStale, r.lease.lost) }

// Freeze implements bind.Handle.
func (h handle) Freeze(ctx context.Context) (bind.Frozen, error) {
	b := h.b
	c := b.c
	c.mu.Lock()
	to, err := b.state.next(evFreeze)
	if err != nil {
		c.mu.Unlock()
		return bind.Frozen{}, b.stale("Commit", err)
	}
	b.state = to // from here on no renewal begins and verdicts are late
	renewals := renewalsOf(b.records)
	c.mu.Unlock()
	for job := range renewals {
		select {
		case <-job.done:
		case <-ctx.Done():
			return bind.Frozen{}, &sharetxn.Error{Op: "Commit", Class: sharetxn.ClassAbortable, Group: c.group, Err: fmt.Errorf("waiting for a renewal: %w", context.Cause(ctx))}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return b.freeze()
}

// renewalsOf gives the renewals that are under way; c.mu is held.
func renewalsOf(rs []*Record) map[*ackJob]struct{} {
	jobs := make(map[*ackJob]struct{})
	for l := range byLease(rs) {
		if l.renewal != nil && l.renewal.left > 0 {
			jobs[l.renewal] = struct{}{}
		}
	}
	return jobs
}

// freeze judges the verdicts; c.mu is held.
func (b *Batch) freeze() (bind.Frozen, error) {
	c := b.c
	fail := func(err error, rs []*Record) (bind.Frozen, error) {
		return bind.Frozen{}, &sharetxn.Error{Op: "Commit", Class: sharetxn.ClassAbortable, Group: c.group, Err: recordsError(err, rs...)}
	}
	if c.closed {
		return bind.Frozen{}, closedError("Commit", c.group)
	}
	if lost := lostRecords(b.records); len(lost) > 0 {
		return fail(staleBecause(lost[0]), lost)
	}
	var undecided, staged []*Record
	set := &acks.Set{}
	for _, r := range b.records {
		switch {
		case r.verdict == acks.Gap:
			undecided = append(undecided, r)
		case r.verdict.Transactional():
			tp, o := r.Position()
			if err := set.Add(tp, o, r.verdict); err != nil {
				return fail(err, []*Record{r})
			}
			staged = append(staged, r)
		}
	}
	if len(undecided) > 0 {
		return fail(sharetxn.ErrUndecided, undecided)
	}
	return bind.Frozen{Member: c.member(), LockUntil: earliest(staged), Batches: set.Map(), Records: len(staged)}, nil
}

// Check implements bind.Handle. Beside late verdicts it knows of records that
// were delivered to this member again since they were frozen: staging names no
// delivery, so it may have taken the newer one.
func (h handle) Check() error {
	c := h.b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	fail := func(why string, rs []*Record) error {
		return &sharetxn.Error{Op: "Commit", Class: sharetxn.ClassAbortable, Group: c.group, Err: recordsError(fmt.Errorf("%w: %s", sharetxn.ErrStale, why), rs...)}
	}
	if len(h.b.late) > 0 {
		return fail("a verdict came after the transaction took them", h.b.late)
	}
	var again []*Record
	for _, r := range h.b.records {
		if r.verdict.Transactional() && errors.Is(r.lease.lost, errAgain) {
			again = append(again, r)
		}
	}
	if len(again) > 0 {
		return fail(errAgain.Error(), again)
	}
	return nil
}

// Keep implements bind.Handle.
func (h handle) Keep() {
	c := h.b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	h.b.landing = h.b.state == frozen
	c.wakeRenewer()
}

// Settle implements bind.Handle.
func (h handle) Settle(s bind.Settlement) {
	b := h.b
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.state == settled {
		return
	}
	c.active = time.Now()
	if s.Outcast {
		c.doubted()
	}
	switch sharetxn.Outcome(s.Outcome) {
	case sharetxn.Committed:
		b.committed(s.Plain, s.Patience)
	case sharetxn.Aborted:
		b.aborted(s.Freed)
	case sharetxn.Unknown: // nothing may happen to its records until it is known
	}
}

// committed: what was staged is done; releases leave as plain ones now, and so
// does all that was decided where nothing is staged.
func (b *Batch) committed(plain bool, patience time.Duration) {
	b.c.sawCommitted(b.records, time.Now())
	var rest []*Record
	for _, r := range b.records {
		if r.lease.lost == nil && (r.verdict == acks.Release || plain && r.verdict != acks.Gap) {
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 && !b.c.closed {
		now := time.Now()
		b.c.plain(rest, false).patient = now.Add(min(patience, earliest(rest).Sub(now)/2))
	}
	b.settle()
}

// sawCommitted takes in how long the records of a transaction took: since the one
// before it, unless they came later. c.mu is held.
func (c *Consumer) sawCommitted(rs []*Record, now time.Time) {
	if len(rs) == 0 {
		return
	}
	since := now
	for l := range byLease(rs) {
		if l.fetched.Before(since) {
			since = l.fetched
		}
	}
	if since.Before(c.committed) {
		since = c.committed
	}
	c.pace.saw(now.Sub(since), len(rs))
	c.committed = now
}

// aborted: what the abort may have freed is the broker's to hand out again; the
// rest is still ours and open, without verdicts, since the next run decides
// anew; but not where the lock has ended, since nothing renews a frozen batch.
func (b *Batch) aborted(freed func(acks.TopicIDPartition) bool) {
	frozenBefore := b.state == frozen
	now := time.Now()
	var gone []*Record
	for _, r := range b.records {
		switch {
		case r.lease.lost != nil, !now.Before(r.lease.deadline),
			frozenBefore && freed != nil && r.verdict.Transactional() && freed(r.tp()):
			gone = append(gone, r)
		default:
			r.verdict = acks.Gap
		}
	}
	b.late = nil
	b.state = open
	b.remove(gone)
	switch {
	case b.state == settled:
	case b.c.closed:
		b.settle()
	case b.closed:
		b.release()
	case b.homes != nil:
		b.unclaim()
	}
}
