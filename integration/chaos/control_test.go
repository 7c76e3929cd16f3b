package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/chaos/verify"
	"github.com/sharetxn/sharetxn/integration/rig"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/ledger"
)

// scene is one mishap, played to the end: with the ledger as it is, which must
// keep its promise, and with something less, whose fault must show.
type scene struct {
	name        string
	lock        time.Duration
	session     time.Duration // 0: as in a trial
	transaction time.Duration // its timeout; 0: as in a trial
	records     int           // there before it begins; 0: sceneRecords
	play        func(ctx context.Context, w *world) error
	sound       string // must have been counted where the promise is kept

	guarantee string // that is less; empty: there is none to compare with
	mutations []mutation
	fault     func(v *verify.Verdict, w *world) bool
}

var scenes = []scene{
	{
		name: "killed before it acknowledges", lock: time.Second, play: killedAtEnd, sound: "records found done",
		guarantee: "ack-after-commit",
		fault:     func(v *verify.Verdict, _ *world) bool { return v.Counts[verify.Duplicate] > 0 },
	},
	{
		name: "a transaction is held open", lock: 3 * time.Second, transaction: 20 * time.Second, session: 45 * time.Second, play: heldOpen, sound: "records found wait",
		guarantee: "ledger", mutations: releaseOnConflict,
		fault: func(v *verify.Verdict, w *world) bool {
			return len(v.Archived)+v.Counts[verify.Missing] > 0 || w.counted("deliveries near the limit") > 0
		},
	},
	{
		name: "all was done and truncated behind its back", lock: time.Minute, session: 45 * time.Second, play: behindItsBack, sound: "ledger gap",
		guarantee: "ledger", mutations: noGapRule,
		fault: func(v *verify.Verdict, _ *world) bool { return v.Counts[verify.Duplicate] > 0 },
	},
	{
		name: "a transaction of another is open before its own", lock: 3 * time.Second, transaction: 20 * time.Second, session: 45 * time.Second, play: openBefore,
		records: 40, sound: "conflicts on open",
	},
	{
		name: "the group is set back while it is stopped", lock: time.Second, play: setBack, sound: "ended by a reset",
	},
}

// A trial that finds nothing proves something only if it would find what there is
// to be found.
func TestControls(t *testing.T) {
	const long = 5 * time.Minute // each scene; on a quiet machine it takes some seconds
	ctx := testkit.Deadline(t, 15*time.Minute)
	programs := make(map[string]string)
	for _, s := range scenes {
		if len(s.mutations) > 0 {
			program, err := build(ctx, t.TempDir(), s.mutations)
			must(t, err)
			programs[s.name] = program
		}
	}
	k := three(ctx, t)
	for i, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			for kept, set := range map[bool]setup{
				true:  {name: fmt.Sprintf("kept%d", i), guarantee: "ledger"},
				false: {name: fmt.Sprintf("less%d", i), guarantee: s.guarantee, program: programs[s.name]},
			} {
				if set.guarantee == "" {
					continue
				}
				t.Run(fmt.Sprint("kept=", kept), func(t *testing.T) {
					t.Parallel()
					all := testkit.Deadline(t, long)
					ctx, cancel := context.WithTimeout(all, long-2*time.Minute) // leaves time to end processes
					defer cancel()
					set.lock, set.session, set.seed, set.sources = s.lock, s.session, *seed, 1 // so that every process has all of it
					w := newWorld(ctx, t, k, set)
					w.job.TruncateEvery, w.job.TransactionTimeout = 0, cmp.Or(s.transaction, w.job.TransactionTimeout)
					t.Cleanup(func() { t.Log(w.figures()) })
					must(t, w.load.Produce(ctx, cmp.Or(s.records, sceneRecords), 0, closed()))
					must(t, errors.Join(s.play(ctx, w), w.failed()))
					v, err := w.verify(ctx)
					must(t, err)
					t.Log(v)
					switch {
					case kept && (len(v.Findings) > 0 || s.fault != nil && s.fault(v, w)):
						t.Error("the promise is broken")
					case kept && w.counted(s.sound) == 0:
						t.Errorf("the mishap did not happen: no %s", s.sound)
					case !kept && !s.fault(v, w):
						t.Error("the fault does not show")
					}
				})
			}
		})
	}
}

// sceneRecords are all there before a scene begins.
const sceneRecords = 1_500

// closed is a channel that is.
func closed() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}

// killedAtEnd: a process dies when its transaction has committed and nothing is
// acknowledged; others get its records again.
func killedAtEnd(ctx context.Context, w *world) error {
	_, end := w.work(ctx, "first", func(life int) harm {
		if life > 0 {
			return harm{}
		}
		return harm{KillAt: "ended"}
	})
	defer end()
	if err := w.until(ctx, "the process is killed", func() bool { return w.counted("kill at ended") > 0 }); err != nil {
		return err
	}
	return w.calm(ctx, 1)
}

// heldOpen: a process stops in the middle of a transaction, and its records are
// another's before that is over.
func heldOpen(ctx context.Context, w *world) error {
	first, end := w.work(ctx, "first", unharmed)
	defer end()
	if err := first.stopAt(ctx, orderHold+" produced"); err != nil {
		return err
	}
	_, end = w.work(ctx, "second", unharmed)
	defer end()
	if err := w.until(ctx, "others are given its records", func() bool {
		return w.counted("records found wait")+w.counted("deliveries near the limit") > 0
	}); err != nil {
		return err
	}
	if err := first.goOn(ctx); err != nil {
		return err
	}
	return w.drain(ctx)
}

// behindItsBack: a process has records in hand when brokers take it for gone, of
// which it knows nothing, and stops. Others do everything, and the ledger is
// truncated. Then it goes on, by its own clock long before its locks end.
func behindItsBack(ctx context.Context, w *world) error {
	first, end := w.work(ctx, "first", unharmed)
	defer end()
	if err := first.stopAt(ctx, orderSever+" handled"); err != nil {
		return err
	}
	if w.counted("share connections severed") == 0 {
		return fmt.Errorf("no connection was severed: %w", rig.ErrNothing)
	}
	if err := w.calm(ctx, 1); err != nil {
		return err
	}
	if w.job.Guarantee == "ledger" {
		n, err := ledger.Truncate(ctx, w.ours, w.job.Group)
		if err != nil || n == 0 {
			return fmt.Errorf("truncated %d: %w", n, errors.Join(err, rig.ErrNothing))
		}
	}
	if err := first.goOn(ctx); err != nil {
		return err
	}
	// What it has in hand is through when it has something new to do.
	if err := w.load.Produce(ctx, 300, 0, closed()); err != nil {
		return err
	}
	return w.drain(ctx)
}

// openBefore: a process stops in a transaction that it has begun and not used, and
// another stops in the middle of one with the same records, since there are no
// others; then the first goes on.
func openBefore(ctx context.Context, w *world) error {
	first, end := w.work(ctx, "first", unharmed)
	defer end()
	if err := first.stopAt(ctx, orderHold+" begun"); err != nil {
		return err
	}
	second, end := w.work(ctx, "second", unharmed)
	defer end()
	if err := second.stopAt(ctx, orderHold+" produced"); err != nil {
		return err
	}
	if err := first.goOn(ctx); err != nil {
		return err
	}
	if err := w.until(ctx, "the first finds out", func() bool { return w.counted("conflicts on open")+w.counted("transactions aborted") > 0 }); err != nil {
		return err
	}
	if err := second.goOn(ctx); err != nil {
		return err
	}
	return w.drain(ctx)
}

// setBack: a process stops with records in hand; the group is set back to its
// beginning, and all is done once more. Then the process goes on.
func setBack(ctx context.Context, w *world) error { return w.again(ctx, time.Time{}) }

// again sets the group back to a time, and has it do all from there on once more,
// after a process has stopped in the middle of its work. When that goes on it must
// find out, and end.
func (w *world) again(ctx context.Context, from time.Time) error {
	left, end := w.work(ctx, "left", unharmed)
	defer end()
	if err := left.order(ctx, order{tell: orderHold + " handled"}); err != nil {
		return err
	}
	if err := w.load.Produce(ctx, 300, 0, closed()); err != nil {
		return err
	}
	if err := w.until(ctx, "a process stops with records in hand", left.held.Load); err != nil {
		return err
	}
	if err := w.calm(ctx, 1); err != nil { // what it had is done by others, when its locks have ended
		return err
	}
	if err := w.reset(ctx, from); err != nil {
		return err
	}
	if err := left.order(ctx, order{resume: true, retired: true}); err != nil {
		return err
	}
	if err := w.until(ctx, "the process from before ends by itself", func() bool { return w.counted("ended by a reset") > 0 }); err != nil {
		return err
	}
	return w.calm(ctx, 1)
}

// stopAt has the slot's process stop itself, and waits until it has.
func (s *slot) stopAt(ctx context.Context, line string) error {
	if err := s.order(ctx, order{tell: line}); err != nil {
		return err
	}
	return s.w.until(ctx, "the process is held", s.held.Load)
}

// goOn lets it go on.
func (s *slot) goOn(ctx context.Context) error { return s.order(ctx, order{resume: true}) }

func (s *slot) order(ctx context.Context, o order) error {
	select {
	case s.orders <- o:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
