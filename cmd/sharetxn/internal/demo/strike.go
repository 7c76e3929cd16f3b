package demo

import (
	"context"
	"errors"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/link"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// strike makes a fault of a request that is about to leave. see is given the
// answer, nil if there is none.
func (d *director) strike(ctx context.Context, s faults.Strike, c chance) (fate link.Fate, see func(kmsg.Response)) {
	switch s.Kind {
	case faults.Killed:
		fate.LoseRequest, fate.Before = true, func() {
			hit := d.site.held(c) // before its end frees what it held
			if err := d.fleet.kill(ctx, c.slot()); err != nil {
				d.fail(err)
			}
			d.done(s, c, hit)
		}
	case faults.Zombie: // its commit is lost, and comes again when it wakes
		fate.LoseRequest, fate.Before = true, func() { d.zombie(ctx, s, c) }
	case faults.Paused:
		fate.Before = func() { d.pause(ctx, s, c) }
	case faults.LeaderMove:
		fate.Before = func() {
			hit := d.site.held(c)
			if err := d.site.move(ctx, c.records.places[0], s.Hops); err != nil && ctx.Err() == nil {
				d.fail(err)
			}
			d.done(s, c, hit)
		}
	case faults.LostStageAnswer, faults.LostEndTxnAnswer:
		fate.LoseAnswer = true
		see = func(answer kmsg.Response) { d.done(s, c, answer != nil && d.site.took(c, answer)) }
	case faults.HandlerError, faults.HandlerPanic: // the handler's own
	}
	return fate, see
}

// pause stops a process until the locks of its records have run out. It missed
// if they were lost otherwise.
func (d *director) pause(ctx context.Context, s faults.Strike, c chance) {
	c.process.link.Hold()
	defer c.process.link.Resume()
	hit := d.site.held(c)
	if hit {
		var err error
		if hit, err = d.site.lapse(ctx, c.records); err != nil && ctx.Err() == nil {
			d.fail(err)
		}
	}
	d.done(s, c, hit)
}

// zombie stops a process, has another take over, and wakes it.
func (d *director) zombie(ctx context.Context, s faults.Strike, c chance) {
	c.process.link.Hold()
	defer c.process.link.Resume()
	hit := d.site.held(c)
	if err := d.fleet.start(ctx, c.slot()); err != nil {
		d.fail(err)
		return
	}
	if !await(ctx, d.fleet.times.patience(), func() bool { return d.site.fenced(ctx, c) }) {
		d.fail(fmt.Errorf("nobody took over from %v", c))
		return
	}
	d.mu.Lock()
	d.woken[c.key] = false
	d.mu.Unlock()
	d.fleet.cfg.Dead.Go(func() { d.fate(ctx, s, c, hit) })
}

// supplanted tells whether a transactional id with these is another producer's:
// the transaction was aborted one epoch up, and then the other got its own.
func (c chance) supplanted(id int64, epoch int16) bool {
	return id != c.key.ProducerID || epoch >= c.key.ProducerEpoch+2
}

// fate waits for a zombie's end: it must have tried to commit and been told that
// it is fenced.
func (d *director) fate(ctx context.Context, s faults.Strike, c chance, hit bool) {
	zombie := c.process
	select {
	case <-zombie.done:
	case <-ctx.Done():
		return
	}
	d.mu.Lock()
	tried := d.woken[c.key]
	delete(d.woken, c.key)
	d.mu.Unlock()
	if !errors.Is(zombie.err, sharetxn.ErrFenced) {
		d.fail(fmt.Errorf("the zombie %v was not fenced, but ended with: %w", c, zombie.err))
	}
	d.done(s, c, hit && tried)
}
