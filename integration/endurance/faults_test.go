package endurance

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
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
	late := until(ctx, l.name+" accepts records", func() bool {
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
func (w *world) victim(ctx context.Context) (id int32, err error) {
	err = until(ctx, "every partition has a leader", func() bool {
		leaders, _, ok := w.leaders(ctx)
		if ok {
			id = leaders[(w.fired["broker killed and restarted"]+w.fired["broker paused"])%len(leaders)]
		}
		return ok
	})
	return id, err
}

// deposed waits until the broker leads nothing any more.
func (w *world) deposed(ctx context.Context, id int32) error {
	return until(ctx, fmt.Sprintf("broker %d leads nothing", id), func() bool {
		leaders, _, ok := w.leaders(ctx)
		return ok && !slices.Contains(leaders, id)
	})
}

func (w *world) killBroker(ctx context.Context, _ *testing.T) error {
	id, err := w.victim(ctx)
	if err != nil {
		return err
	}
	if err := w.k.Kill(id); err != nil {
		return err
	}
	if addr := w.k.Seeds()[id-1]; !deaf(addr) {
		return fmt.Errorf("broker %d still listens at %s: %w", id, addr, errNothing)
	}
	if err := w.deposed(ctx, id); err != nil {
		return err
	}
	if err := w.k.Restart(id); err != nil {
		return err
	}
	return w.k.Ready(ctx)
}

// pauseBroker lets a broker hang with all its connections open, longer than the
// controller waits for it.
func (w *world) pauseBroker(ctx context.Context, _ *testing.T) error {
	id, err := w.victim(ctx)
	if err != nil {
		return err
	}
	if err := w.k.Pause(id); err != nil {
		return err
	}
	moved := w.deposed(ctx, id)
	if err := w.k.Resume(id); err != nil {
		return err
	}
	if moved != nil {
		return moved
	}
	return w.k.Ready(ctx)
}

// moveLeaders makes the next replica of each partition its preferred leader, and
// elects it.
func (w *world) moveLeaders(ctx context.Context, _ *testing.T) error {
	var before []int32
	var replicas [][]int32
	if err := until(ctx, "every partition has a leader", func() (ok bool) {
		before, replicas, ok = w.leaders(ctx)
		return ok
	}); err != nil {
		return err
	}
	req := make(kadm.AlterPartitionAssignmentsReq)
	var want []int32
	for p, rs := range replicas {
		next := rs[(slices.Index(rs, before[p])+1)%len(rs)]
		order := slices.Insert(slices.DeleteFunc(slices.Clone(rs), func(id int32) bool { return id == next }), 0, next)
		req.Assign(topic, int32(p), order)
		want = append(want, next)
	}
	if resp, err := w.adm.AlterPartitionAssignments(ctx, req); err != nil {
		return err
	} else if err := resp.Error(); err != nil {
		return err
	}
	// A replica that is behind cannot be elected yet; so it is asked for again.
	return until(ctx, fmt.Sprintf("leaders %v instead of %v", want, before), func() bool {
		var all kadm.TopicsSet
		for p := range int32(partitions) {
			all.Add(topic, p)
		}
		if _, err := w.adm.ElectLeaders(ctx, kadm.ElectPreferredReplica, all); err != nil {
			return false
		}
		after, _, ok := w.leaders(ctx)
		return ok && slices.Equal(after, want)
	})
}
