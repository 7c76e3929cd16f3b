package chaos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn/integration/rig"
)

// order is what is done to a process from outside.
type order struct {
	kill    bool
	stop    time.Duration // or so long stopped
	replace bool          // and another started meanwhile, in its name
	tell    string        // a line to tell it
	resume  bool          // it may go on, and forget what it was told
	retired bool          // and must end, since the group was reset meanwhile
}

// slot keeps one process of members going: another one is started when it ends.
type slot struct {
	w        *world
	instance string
	harm     func(life int) harm
	orders   chan order
	shared   bool // by two processes, at some time: each may find itself fenced by the other
	held     atomic.Bool
}

// endWithin is longer than a processor may take to stop.
const endWithin = 25 * time.Second

// longestHold is when a process goes on that is held, whatever became of who held
// it.
const longestHold = 5 * time.Minute

// life is one process.
type life struct {
	name    string
	process *rig.Process
	journal *follower
	resume  *time.Timer  // lets it go on
	held    *atomic.Bool // it was told to stop itself, and has
	retired bool
}

// spawn starts a process.
func (w *world) spawn(instance string, what harm, held *atomic.Bool) (*life, error) {
	n := w.lives.Add(1)
	j := w.job
	j.Instance, j.Harm, j.Seed = instance, what, w.seed+uint64(n)
	j.Journal = filepath.Join(w.dir, fmt.Sprintf("%s-%s-%03d.journal", w.job.Group, instance, n))
	env, err := j.env()
	if err != nil {
		return nil, err
	}
	p, err := rig.Spawn(instance, w.program, j.Journal+".out", env)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	w.journals = append(w.journals, j.Journal)
	w.mu.Unlock()
	resume := time.AfterFunc(time.Hour, func() { _ = p.Resume() }) // fails for one that has ended
	resume.Stop()
	return &life{name: instance, process: p, journal: &follower{name: j.Journal}, resume: resume, held: held}, nil
}

// keep keeps a process going until ctx ends.
func (s *slot) keep(ctx context.Context) {
	for n := 0; ctx.Err() == nil && s.w.failed() == nil; n++ {
		s.held.Store(false)
		l, err := s.w.spawn(s.instance, s.harm(n), &s.held)
		if err != nil {
			s.w.fail(err)
			return
		}
		if s.attend(ctx, l); l.retired {
			return // nobody takes its place
		}
	}
}

// work has another process work, until the slot is ended.
func (w *world) work(ctx context.Context, instance string, what func(life int) harm) (*slot, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s := &slot{w: w, instance: instance, harm: what, orders: make(chan order)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.keep(ctx)
	}()
	return s, func() { cancel(); <-done }
}

// unharmed are processes that nothing happens to.
func unharmed(int) harm { return harm{} }

// attend sees to a process until it has ended, or another takes its place.
func (s *slot) attend(ctx context.Context, l *life) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-l.process.Done():
			s.w.ended(l, s.shared)
			return
		case <-tick.C:
			s.w.follow(l)
		case o := <-s.orders:
			if s.obey(ctx, l, o) {
				return
			}
		case <-ctx.Done():
			s.w.dismiss(l, s.shared)
			return
		}
	}
}

// obey tells whether the process is another's concern from now on.
func (s *slot) obey(ctx context.Context, l *life, o order) (gone bool) {
	switch {
	case o.kill:
		s.w.count("kill outside", 1)
		if err := l.process.Kill(); err != nil {
			s.w.fail(err)
		}
	case o.replace:
		s.w.count("stop outside, replaced", 1)
		l.stop(o.stop)
		s.shared = true
		s.w.wg.Go(func() { s.w.haunt(ctx, l) })
		return true
	case o.resume:
		l.retired = o.retired
		l.process.Tell(orderFree)
		s.held.Store(false)
		l.resume.Reset(0)
	case o.tell != "":
		l.process.Tell(o.tell)
	default:
		s.w.count("stop outside", 1)
		l.stop(o.stop)
	}
	return false
}

func (l *life) stop(d time.Duration) {
	_ = l.process.Pause() // fails for one that has ended
	l.resume.Reset(d)
}

// haunt sees to a process that goes on when another has its name: whichever of
// the two began to produce last, the other must find out, and end.
func (w *world) haunt(ctx context.Context, l *life) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-l.process.Done():
			w.ended(l, true)
			return
		case <-tick.C:
			w.follow(l)
		case <-ctx.Done():
			w.dismiss(l, true)
			return
		}
	}
}

// follow takes what the process has written.
func (w *world) follow(l *life) {
	lines, err := l.journal.more()
	if err != nil {
		w.fail(err)
	}
	for _, f := range lines {
		switch {
		case f[0] == wordKill && len(f) == 2:
			w.count("kill at "+f[1], 1)
		case f[0] == wordStop && len(f) == 3:
			ms, err := strconv.Atoi(f[2])
			if err != nil {
				w.fail(err)
			}
			w.count("stop at "+f[1], 1)
			if ms == 0 {
				l.held.Store(true)
				ms = int(longestHold.Milliseconds())
			}
			l.resume.Reset(time.Duration(ms) * time.Millisecond)
		case f[0] == wordCount && len(f) == 3:
			n, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				w.fail(err)
			}
			w.count(f[1], n)
		case f[0] == wordDeliver && len(f) == 7: // what it says is read when all is over
			w.count("redeliveries", 1)
			if n, err := strconv.Atoi(f[6]); err != nil || n >= limit-1 {
				w.count("deliveries near the limit", 1)
			}
		case f[0] == wordEnd:
		default:
			w.fail(fmt.Errorf("%s: not a line of a journal: %q", l.journal.name, f))
		}
	}
}

// dismiss ends a process in good order.
func (w *world) dismiss(l *life, shared bool) {
	l.resume.Stop()
	_ = l.process.Resume() // it may have stopped itself, or have ended
	stopped := make(chan struct{})
	w.wg.Go(func() { // it may also stop itself while it ends
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = l.process.Resume()
			case <-stopped:
				return
			}
		}
	})
	err := l.process.End(endWithin)
	close(stopped)
	w.follow(l)
	// It may have killed itself meanwhile.
	if fenced := shared && l.process.ExitCode() == exitFenced; err != nil && !fenced && (errors.Is(err, rig.ErrLate) || !l.process.Killed()) {
		w.fail(err)
	}
}

// ended looks how a process ended that nobody had told to.
func (w *world) ended(l *life, shared bool) {
	l.resume.Stop()
	w.follow(l)
	switch code := l.process.ExitCode(); {
	case l.process.Killed():
	case code == exitFenced && shared:
		w.count("fenced by another of its name", 1)
	case code == exitFailed && l.retired:
		w.count("ended by a reset", 1)
	default:
		w.fail(fmt.Errorf("%s ended by itself: %w", l.name, l.process.End(time.Second)))
	}
}
