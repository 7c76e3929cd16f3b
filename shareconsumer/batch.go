package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
)

// Batch is what one Poll acquired; a record is in exactly one batch.
//
//	open --Begin, InTransaction--> held --Commit stages--> bound --ends--> settled
//	  \--CommitSync, CommitAsync, Close, Forget---------------------------> settled
//
// A held, bound or settled batch refuses any second use with ErrStale, so its
// records cannot be staged twice, rerun after an unknown outcome, or committed
// plainly beside a transaction. After a proven abort, records that were not
// staged are still held: the batch is open again, without verdicts, and
// Records gives what is left. Safe for concurrent use.
type Batch struct {
	c *Consumer

	// All of it belongs to c.mu.
	records []*Record // what is still the batch's, in order of partition and offset
	state   state
	closed  bool               // Close was called while a transaction held it
	keep    time.Time          // KeepLocked until; zero: not
	late    []*Record          // decided after freezing
	landing bool               // committed, nothing staged, and not yet landed: frozen, and renewed all the same
	homes   map[*Record]*Batch // of a batch made by Claim, which nobody but the transaction has: where the records came from
	taken   bool               // a transaction was asked to hold it
	sweepAt time.Time          // when to look whether every lock has ended long ago
}

// Records gives the records that the batch still has, in order of partition
// and offset.
func (b *Batch) Records() []*Record {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return slices.Clone(b.records)
}

// Len is how many records the batch still has. Neither a verdict nor the end of a
// lock changes it, and a batch that a transaction holds keeps its records while it
// answers ErrStale to everything else: a loop until Len is 0 must end with an error, too.
func (b *Batch) Len() int {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return len(b.records)
}

// ByPartition gives the records partition by partition.
func (b *Batch) ByPartition() iter.Seq2[acks.TopicIDPartition, []*Record] {
	rs := b.Records()
	return func(yield func(acks.TopicIDPartition, []*Record) bool) {
		for len(rs) > 0 {
			tp := rs[0].tp()
			n := 1
			for n < len(rs) && rs[n].tp().Same(tp) {
				n++
			}
			if !yield(tp, rs[:n:n]) {
				return
			}
			rs = rs[n:]
		}
	}
}

// Deadline is the earliest acquisition deadline of the batch; zero if it has
// no records.
func (b *Batch) Deadline() time.Time {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return earliest(b.records)
}

func earliest(rs []*Record) (at time.Time) {
	for l := range byLease(rs) {
		if at.IsZero() || l.deadline.Before(at) {
			at = l.deadline
		}
	}
	return at
}

func latest(rs []*Record) (at time.Time) {
	for l := range byLease(rs) {
		if l.deadline.After(at) {
			at = l.deadline
		}
	}
	return at
}

// AcceptRest accepts every record that has no verdict yet.
func (b *Batch) AcceptRest() {
	c := b.c
	c.mu.Lock()
	late := b.state == frozen
	var misused []*Record
	for _, r := range b.records {
		switch {
		case r.verdict != acks.Gap:
		case late:
			misused = append(misused, r)
		default:
			r.verdict = acks.Accept
		}
	}
	b.late = append(b.late, misused...)
	c.mu.Unlock()
	for _, r := range misused {
		c.misuseLate(r, acks.Accept)
	}
}

// stale is the refusal of a second use.
func (b *Batch) stale(op string, err error) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassAbortable, Group: b.c.group, Err: fmt.Errorf("%w: %w", sharetxn.ErrStale, err)}
}

// Split moves records into a batch of their own, e.g. to put a bad one alone
// into the next transaction. ErrStale for a record of another batch, or if the
// batch is not open.
func (b *Batch) Split(rs ...*Record) (*Batch, error) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := b.state.next(evPlain); err != nil {
		return nil, b.stale("Split", err)
	}
	for _, r := range rs {
		if r.batch != b || r.gone {
			return nil, &sharetxn.Error{Op: "Split", Class: sharetxn.ClassUsage, Group: c.group, Err: recordsError(sharetxn.ErrStale, r)}
		}
	}
	return b.split(rs), nil
}

// split moves records of b into a new open batch; c.mu is held.
func (b *Batch) split(rs []*Record) *Batch {
	out := &Batch{c: b.c, keep: b.keep}
	for _, r := range rs {
		r.batch = out
	}
	for _, r := range b.records {
		if r.batch == out {
			out.records = append(out.records, r)
		}
	}
	b.records = slices.DeleteFunc(b.records, func(r *Record) bool { return r.batch == out })
	b.c.batches[out] = struct{}{}
	if len(b.records) == 0 {
		b.settle()
	}
	return out
}

// settle ends the batch; c.mu is held.
func (b *Batch) settle() {
	b.state = settled
	b.c.forget(b.records)
	b.records = nil
	delete(b.c.batches, b)
}

// Renew extends every lock of the batch now. An open or held batch can be
// renewed, any other answers ErrStale. Errors name the records that were not
// renewed; a group may not allow it (share.renew.acknowledge.enable), and then
// the locks just run.
func (b *Batch) Renew(ctx context.Context) error {
	c := b.c
	c.mu.Lock()
	if b.state != open && b.state != held {
		err := b.stale("Renew", fmt.Errorf("a %v batch is not renewed", b.state))
		c.mu.Unlock()
		return err
	}
	job := c.renew(b.records)
	c.mu.Unlock()
	return job.wait(ctx)
}

// KeepLocked renews the batch in the background until a transaction holds it
// (which then renews it until staging), it is closed, or limit has passed.
func (b *Batch) KeepLocked(limit time.Duration) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.state == open {
		b.c.active = time.Now()
		b.keep = b.c.active.Add(limit)
		b.c.wakeRenewer()
	}
}

// AcknowledgementsForTransaction is the wire form of the verdicts so far, for
// SendShareAcknowledgementsToTransaction or for another process. It changes
// nothing: what is sent by hand from this process is matched to the batch by
// the Cluster; what another process sends must be reported with Forget.
// Releases are not part of it.
func (b *Batch) AcknowledgementsForTransaction() (*acks.Set, error) {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.state == settled {
		return nil, b.stale("AcknowledgementsForTransaction", errors.New("the batch is settled"))
	}
	set := &acks.Set{}
	for _, r := range b.records {
		if r.verdict.Transactional() && r.lease.lost == nil {
			tp, o := r.Position()
			if err := set.Add(tp, o, r.verdict); err != nil {
				return nil, err
			}
		}
	}
	return set, nil
}

// Forget drops the batch without acknowledging or releasing: its fate is
// decided elsewhere. No effect on a batch that a transaction holds.
func (b *Batch) Forget() {
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	if b.state == open {
		b.settle()
	}
}

// Bind is for the packages of this module.
func (b *Batch) Bind() bind.Handle { return handle{b} }

// CommitSync sends the verdicts as plain acknowledgements and waits for the
// brokers' answers. Records without a verdict stay in the batch. Errors: one
// *Error per partition or range that failed, joined; ErrMode in Transactional
// mode unless all verdicts are Release, and then nothing was sent; class
// unknown if an answer is missing: the records may or may not be
// acknowledged, and come back if not.
func (b *Batch) CommitSync(ctx context.Context) error {
	job, err := b.commit("CommitSync", true)
	if err != nil || job == nil {
		return err
	}
	return job.wait(ctx)
}

// CommitAsync lets the verdicts ride on the next fetch, or sends them at once
// where none is wanted. Results go to OnAcknowledged. Errors as for CommitSync
// as far as they are known before sending.
func (b *Batch) CommitAsync() error {
	job, err := b.commit("CommitAsync", false)
	if err != nil || job == nil {
		return err
	}
	b.c.mu.Lock()
	defer b.c.mu.Unlock()
	return errors.Join(job.errs...) // what was lost before it could be sent
}

func (b *Batch) commit(op string, urgent bool) (*ackJob, error) {
	c := b.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, closedError(op, c.group)
	}
	if _, err := b.state.next(evPlain); err != nil {
		return nil, b.stale(op, err)
	}
	if c.cfg.mode == Transactional {
		if r := firstDecided(b.records); r != nil {
			return nil, &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Group: c.group, Err: fmt.Errorf("%w: %w", sharetxn.ErrMode, recordsError(errors.New("verdicts of a transactional consumer leave through a transaction"), r))}
		}
	}
	decided := decidedOf(b.records)
	if len(decided) == 0 {
		return nil, nil
	}
	job := c.plain(decided, urgent)
	b.remove(decided)
	return job, nil
}

// decidedOf gives the records that have a verdict: mostly all, as they are then.
func decidedOf(rs []*Record) []*Record {
	undecided := func(r *Record) bool { return r.verdict == acks.Gap }
	if !slices.ContainsFunc(rs, undecided) {
		return rs
	}
	return slices.DeleteFunc(slices.Clone(rs), undecided)
}

// remove takes records out whose fate is sealed; c.mu is held.
func (b *Batch) remove(rs []*Record) {
	if len(rs) == len(b.records) {
		b.settle()
		return
	}
	b.c.forget(rs)
	b.records = slices.DeleteFunc(b.records, func(r *Record) bool { return r.gone })
	if len(b.records) == 0 {
		b.settle()
	}
}

// Close releases, in the background, whatever the batch still holds and no
// transaction has bound: undecided records, and decided ones that were never
// committed. A batch that a transaction holds is released when the transaction
// gives it back. No-op afterwards: defer it. A record on its last delivery is
// archived by the broker when it is released. What is released comes back at once,
// also to this member, and each time costs a delivery: who cannot work on it for
// now pauses (Consumer.Pause) before giving it back.
func (b *Batch) Close() {
	c := b.c
	c.mu.Lock()
	b.closed = true
	if b.state != open {
		c.mu.Unlock()
		return
	}
	var misused *Record
	if c.cfg.mode == Transactional && !b.taken {
		misused = firstDecided(b.records)
	}
	if misused != nil {
		c.misuses = append(c.misuses, recordsError(errNeverHeld, misused))
	}
	b.release()
	c.mu.Unlock()
	if misused != nil {
		c.misuse("a batch was closed with verdicts that no transaction took", where(misused))
	}
}

// release gives back all that is left and settles; c.mu is held.
func (b *Batch) release() {
	for _, r := range b.records {
		r.verdict = acks.Release
	}
	if len(b.records) > 0 && !b.c.closed {
		b.c.plain(b.records, false)
	}
	b.settle()
}

var errNeverHeld = errors.New("accepted or rejected, but no transaction ever held the batch: give it to Begin or InTransaction")

// firstDecided finds an Accept or Reject.
func firstDecided(rs []*Record) *Record {
	for _, r := range rs {
		if r.verdict.Transactional() {
			return r
		}
	}
	return nil
}
