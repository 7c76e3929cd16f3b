package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/sharetxntest"
)

// verb is what an operation can be: how it is written, and what makes an act of
// its arguments.
type verb struct {
	usage   string
	compile func(*arguments) func(*world)
}

// Verbs are the operations that a script may have.
func Verbs() []string { return slices.Sorted(maps.Keys(verbs)) }

var verbs = map[string]verb{
	"produce": {"COUNT: records that a handler accepts", func(a *arguments) func(*world) {
		n := a.number(1, 1000)
		return func(w *world) { w.feed(n, false) }
	}},
	"poison": {"COUNT: records that a handler rejects", func(a *arguments) func(*world) {
		n := a.number(1, 1000)
		return func(w *world) { w.feed(n, true) }
	}},
	"start": {"PROCESS: one of that name that still runs is fenced by the new one", func(a *arguments) func(*world) {
		name := a.word("process")
		return func(w *world) { w.start(name) }
	}},
	"stop": {"PROCESS: softly", func(a *arguments) func(*world) {
		name := a.word("process")
		return func(w *world) { w.stop(name) }
	}},
	"kill": {"PROCESS: it is cut off and never heard of again", func(a *arguments) func(*world) {
		name := a.word("process")
		return func(w *world) { w.kill(name) }
	}},
	"hold": {"PROCESS DURATION: what it sends and gets is late, nothing is lost", func(a *arguments) func(*world) {
		name, d := a.word("process"), a.duration()
		return func(w *world) { w.holdUp(name, d) }
	}},
	"deafen": {"PROCESS DURATION: answers to its fetches are late; of PROCESS next, that whose handler is called next", func(a *arguments) func(*world) {
		name, d := a.word("process"), a.duration()
		if name == "next" {
			return func(w *world) { w.moods.deafen(d) }
		}
		return func(w *world) { w.deafen(name, d) }
	}},
	"reset": {"TIME: the group is set back to what was fed from that time of the run on, 0s to all; but for those that are held, its processes stop for it", func(a *arguments) func(*world) {
		to := a.duration()
		return func(w *world) {
			w.resetBy(func(ctx context.Context, w *world) error { return w.setTo(ctx, to) })
		}
	}},
	"unset": {"HOW: as reset 0s, but that the group's own policy begins at the start, for its start offsets are altered to -1 (alter), deleted (delete), or all of the group is (group)", func(a *arguments) func(*world) {
		give := a.unset()
		return func(w *world) { w.resetBy(give) }
	}},
	"abort": {"COUNT: so many calls of handlers fail from now on", func(a *arguments) func(*world) {
		n := a.number(1, 1000)
		return func(w *world) { w.moods.fail(n) }
	}},
	"slow": {"COUNT DURATION: so many calls of handlers take so long from now on", func(a *arguments) func(*world) {
		n, d := a.number(1, 1000), a.duration()
		return func(w *world) { w.moods.slow(n, d) }
	}},
	"leader": {"TOPIC PARTITION BROKER: that one leads it from now on", func(a *arguments) func(*world) {
		return a.mishap("leader")
	}},
	"restart": {"BROKER: it forgets what it held in memory", func(a *arguments) func(*world) {
		return a.mishap("restart")
	}},
	"part": {"BROKER BROKER DURATION: they do not reach each other", func(a *arguments) func(*world) {
		return a.mishap("part")
	}},
	"markers": {"COUNT DURATION: so many transaction markers are late from now on", func(a *arguments) func(*world) {
		n, d := a.number(1, 100), a.duration()
		return func(w *world) {
			w.planned(w.plan.AddMarker(fault.MarkerFault{When: fault.When{Times: n}, Treatment: txn.Treatment{Delay: d}}))
		}
	}},
	"fault": {"API NTH ACTION...: the NTH such request of a process from now on meets with it", func(a *arguments) func(*world) {
		key, nth := a.key(), a.number(1, 1000)
		act := a.action()
		return func(w *world) { w.fault(key, fault.When{Nth: nth}, act) }
	}},
	"outage": {"API DURATION ACTION...: every such request of a process does for so long", func(a *arguments) func(*world) {
		key, d := a.key(), a.duration()
		act := a.action()
		return func(w *world) {
			p := w.fault(key, fault.When{Times: fault.Always}, act)
			time.AfterFunc(d, p.Cancel)
		}
	}},
}

// arguments are what is left of an operation's words.
type arguments struct {
	left []string
	err  error // the first
}

func (a *arguments) end() error {
	if len(a.left) > 0 && a.err == nil {
		a.err = fmt.Errorf("%q is too much", a.left)
	}
	return a.err
}

func (a *arguments) fail(format string, args ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, args...)
	}
}

func (a *arguments) word(what string) string {
	if len(a.left) == 0 {
		a.fail("a %s is missing", what)
		return ""
	}
	w := a.left[0]
	a.left = a.left[1:]
	return w
}

func (a *arguments) number(low, high int) int {
	w := a.word("number")
	n, err := strconv.Atoi(w)
	if err != nil || n < low || n > high {
		a.fail("%q is no number from %d to %d", w, low, high)
	}
	return n
}

func (a *arguments) broker() int32 { return int32(a.number(0, 4)) }

func (a *arguments) duration() time.Duration {
	w := a.word("duration")
	d, err := time.ParseDuration(w)
	if err != nil || d < 0 || d > 5*time.Minute {
		a.fail("%q is no duration up to 5m", w)
	}
	return d
}

// keys are the APIs that a fault may meet.
var keys = func() map[string]sharetxntest.Key {
	m := make(map[string]sharetxntest.Key)
	for _, k := range []sharetxntest.Key{
		sharetxntest.ProduceKey, sharetxntest.MetadataKey, sharetxntest.FindCoordinatorKey, sharetxntest.InitProducerIDKey, sharetxntest.EndTxnKey,
		sharetxntest.HeartbeatKey, sharetxntest.ShareFetchKey, sharetxntest.ShareAcknowledgeKey, sharetxntest.StageKey,
	} {
		m[k.String()] = k
	}
	return m
}()

// unset is one of the ways to give up a group's start offsets.
func (a *arguments) unset() func(context.Context, *world) error {
	w := a.word("way")
	way, ok := unsets[w]
	if !ok {
		a.fail("%q is no way to give up offsets; there are %q", w, slices.Sorted(maps.Keys(unsets)))
	}
	return way
}

func (a *arguments) key() sharetxntest.Key {
	w := a.word("API")
	k, ok := keys[w]
	if !ok {
		a.fail("%q is no API that can be met; there are %q", w, slices.Sorted(maps.Keys(keys)))
	}
	return k
}

// act is what a fault does to a request, or to the brokers when it arrives.
type act struct {
	does   fault.Action
	before func(*world)
}

func (a *arguments) action() act {
	switch w := a.word("action"); w {
	case "lose-request":
		return act{does: fault.LoseRequest()}
	case "lose-answer":
		return act{does: fault.LoseAnswer()}
	case "disconnect":
		return act{does: fault.Disconnect()}
	case "twice":
		return act{does: fault.DeliverTwice()}
	case "delay":
		return act{does: fault.Delay(a.duration())}
	case "answer":
		return act{does: fault.Answer(int16(a.number(1, 200)))}
	case "leader", "restart", "part":
		return act{before: a.mishap(w)}
	default:
		a.fail("%q is no action; there are lose-request, lose-answer, disconnect, twice, delay, answer, leader, restart and part", w)
		return act{}
	}
}

var errSame = errors.New("a broker cannot be parted from itself")

// mishap is what befalls brokers, by itself or when a request arrives.
func (a *arguments) mishap(kind string) func(*world) {
	switch kind {
	case "leader":
		topic, partition, to := a.word("topic"), int32(a.number(0, 19)), a.broker()
		return func(w *world) { w.moveLeader(topic, partition, to) }
	case "restart":
		node := a.broker()
		return func(w *world) { w.restart(node) }
	default:
		x, y, d := a.broker(), a.broker(), a.duration()
		if x == y && a.err == nil {
			a.err = errSame
		}
		return func(w *world) { w.part(x, y, d) }
	}
}
