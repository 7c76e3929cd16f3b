package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
)

// patience bounds what a strike waits for: more than any lock or session.
const patience = 20 * time.Second

// strike makes a fault of a request that has arrived.
func (d *director) strike(ctx context.Context, s faults.Strike, c chance) broker.Action {
	switch s.Kind {
	case faults.Killed:
		return broker.Action{LoseRequest: true, Before: func() {
			hit := c.held(d.b, d.pattern) // before its end frees what it held
			if err := d.fleet.kill(ctx, c.slot); err != nil {
				d.fail(err)
			}
			d.done(s, c, hit)
		}}
	case faults.Zombie: // its commit is lost, and comes again when it wakes
		return broker.Action{LoseRequest: true, Before: func() { d.zombie(ctx, s, c) }}
	case faults.Paused:
		return broker.Action{Before: func() { d.pause(ctx, s, c) }}
	case faults.LeaderMove:
		return broker.Action{Before: func() {
			hit := c.held(d.b, d.pattern)
			at := c.records.places[0]
			if err := d.b.MoveLeader(at.topic, at.partition, (d.b.Leader(at.topic, at.partition)+s.Hops)%brokers); err != nil {
				d.fail(err)
			}
			d.done(s, c, hit)
		}}
	case faults.LostStageAnswer:
		return broker.Action{LoseAnswer: true, Then: func() { d.done(s, c, d.took(c)) }}
	case faults.LostEndTxnAnswer:
		return broker.Action{LoseAnswer: true, Then: func() { d.done(s, c, !c.open(d.b)) }}
	case faults.HandlerError, faults.HandlerPanic: // the handler's own
	}
	return broker.Action{}
}

// took tells whether the records are staged, or without staging acknowledged.
func (d *director) took(c chance) bool {
	if d.pattern == staged {
		return c.records.all(d.b, share.TxPending)
	}
	return c.records.none(d.b, share.Acquired)
}

// pause stops a process until the locks of its records have run out. It missed
// if they were lost otherwise.
func (d *director) pause(ctx context.Context, s faults.Strike, c chance) {
	p := d.fleet.process(c.slot)
	p.link.Hold()
	defer p.link.Resume()
	hit := c.held(d.b, d.pattern) && await(ctx, patience, func() bool { return c.records.none(d.b, share.Acquired) })
	if hit {
		var err error
		if hit, err = expired(ctx, d.b, c.records); err != nil {
			d.fail(err)
		}
	}
	d.done(s, c, hit)
}

// zombie stops a process, has another take over, and wakes it.
func (d *director) zombie(ctx context.Context, s faults.Strike, c chance) {
	old := d.fleet.process(c.slot)
	old.link.Hold()
	defer old.link.Resume()
	hit := c.held(d.b, d.pattern)
	if err := d.fleet.start(ctx, c.slot); err != nil {
		d.fail(err)
		return
	}
	fenced := func() bool { // its transaction was aborted one epoch up, and then the other got its own
		v := view(d.b, c.id)
		return v.ProducerID != c.key.ProducerID || v.ProducerEpoch >= c.key.ProducerEpoch+2
	}
	if !await(ctx, patience, fenced) {
		d.fail(fmt.Errorf("nobody took over from %v", c))
		return
	}
	d.mu.Lock()
	d.woken[c.key] = false
	d.mu.Unlock()
	d.fleet.cfg.Dead.Go(func() { d.fate(ctx, s, c, old, hit) })
}

// fate waits for a zombie's end: it must have tried to commit and been told that
// it is fenced.
func (d *director) fate(ctx context.Context, s faults.Strike, c chance, zombie *process, hit bool) {
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
