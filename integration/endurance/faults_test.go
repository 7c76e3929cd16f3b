package endurance

import (
	"context"
	"testing"

	"github.com/sharetxn/sharetxn/integration/rig"
)

// fault is something that happens while records come in. It returns when it has
// happened for certain, and the cluster is whole again.
type fault struct {
	name  string
	burst bool // all records at once, so that members have work in hand
	do    func(ctx context.Context, t *testing.T) error
}

// faults are one round, in their order.
func (w *world) faults() []fault {
	return []fault{
		{"member added", false, w.addGuest},
		{"member killed and restarted", true, w.killMember},
		{"broker killed and restarted", true, w.killBroker},
		{"leaders moved", false, w.moveLeaders},
		{"member left", false, w.dismissGuest},
		{"broker paused", false, w.pauseBroker},
	}
}

// addGuest lets the fourth member join, and waits until it works.
func (w *world) addGuest(ctx context.Context, _ *testing.T) error {
	w.guest = w.inside(ctx, "guest")
	return w.works(ctx, w.guest)
}

// works waits until a life accepts something from now on.
func (w *world) works(ctx context.Context, l *life) error {
	before, err := l.accepted()
	if err != nil {
		return err
	}
	late := rig.Until(ctx, l.name+" accepts records", func() bool {
		var n int64
		n, err = l.accepted()
		return n > before || err != nil
	})
	if err != nil {
		return err
	}
	return late
}

func (w *world) dismissGuest(context.Context, *testing.T) error {
	guest := w.guest
	w.guest = nil
	return guest.end()
}

// killMember kills a process that has work in hand, and starts another.
func (w *world) killMember(ctx context.Context, t *testing.T) error {
	if err := w.works(ctx, w.mortal); err != nil {
		return err
	}
	if err := w.mortal.kill(); err != nil {
		return err
	}
	w.mortal = w.process(t, "mortal", 1, "")
	return w.works(ctx, w.mortal)
}

// victim is a broker that leads something, another one each time.
func (w *world) victim(ctx context.Context) (int32, error) {
	return w.brokers.Victim(ctx, w.fired["broker killed and restarted"]+w.fired["broker paused"])
}

func (w *world) killBroker(ctx context.Context, _ *testing.T) error {
	id, err := w.victim(ctx)
	if err != nil {
		return err
	}
	return w.brokers.Kill(ctx, id)
}

func (w *world) pauseBroker(ctx context.Context, _ *testing.T) error {
	id, err := w.victim(ctx)
	if err != nil {
		return err
	}
	return w.brokers.Pause(ctx, id)
}

func (w *world) moveLeaders(ctx context.Context, _ *testing.T) error {
	return w.brokers.MoveLeaders(ctx)
}
