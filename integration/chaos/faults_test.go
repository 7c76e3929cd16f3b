package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/integration/rig"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/twmb/franz-go/pkg/kadm"
)

// processes of members in a trial.
const processes = 3

// storm lets members work on records while they come in, and come to every harm
// there is, for so long and until each of what must happen has happened.
func (w *world) storm(ctx context.Context, records int, atLeast time.Duration, required []string) error {
	rngs := make([]*rand.Rand, processes)
	for i := range rngs {
		rngs[i] = rand.New(rand.NewPCG(w.seed, uint64(100+i)))
	}
	harm := func(slot, life int) harm { return w.someHarm(rngs[slot], slot, life) }
	enough := time.Now().Add(atLeast)
	return w.rage(ctx, harm, required, func() bool { return time.Now().After(enough) && w.sent() >= records },
		w.harass, w.duel, w.killBrokers, w.moveLeaders, w.watchLeaders,
		func(ctx context.Context, _ []*slot) error { return w.produce(ctx, records) })
}

// duels is what is left of a storm for what happens only if two members come to
// the same records within moments. On a machine that is busy with all the rest it
// may not.
func (w *world) duels(ctx context.Context, required []string) error {
	return w.rage(ctx, func(int, int) harm { return harm{} }, required, func() bool { return true },
		w.duel, func(ctx context.Context, _ []*slot) error { return w.trickle(ctx) })
}

// rage has processes work with those faults, until it is enough and each of what
// must happen has happened. Then everything is whole, but for members, who are gone.
func (w *world) rage(ctx context.Context, harmOf func(slot, life int) harm, required []string, enough func() bool, faults ...func(context.Context, []*slot) error) error {
	var slots []*slot
	var ends []context.CancelFunc
	for i := range processes {
		s, end := w.work(ctx, fmt.Sprint("i", i), func(life int) harm { return harmOf(i, life) })
		slots, ends = append(slots, s), append(ends, end)
	}
	var wg sync.WaitGroup
	raging, calm := context.WithCancel(ctx)
	defer calm()
	for _, fault := range append(faults, func(ctx context.Context, _ []*slot) error { return w.tell(ctx, required) }) {
		wg.Go(func() {
			if err := fault(raging, slots); err != nil && ctx.Err() == nil {
				w.fail(err)
			}
		})
	}
	err := w.until(ctx, "every fault has happened", func() bool { return enough() && len(w.missing(required)) == 0 })
	calm()
	wg.Wait()
	for _, end := range ends {
		end()
	}
	w.wg.Wait()
	if missing := w.missing(required); err != nil && len(missing) > 0 {
		err = fmt.Errorf("%w: not yet: %q", err, missing)
	}
	if failed := w.failed(); failed != nil {
		err = failed
	}
	return err
}

// inSmallBatches are the first of a trial's records, more than a storm comes to on
// most machines.
const inSmallBatches = 60_000

// produce produces the records as fast as it can, and then some more now and again,
// so that there is always something to do.
func (w *world) produce(ctx context.Context, records int) error {
	whole := context.WithoutCancel(ctx) // what is begun is finished
	small := min(records, inSmallBatches)
	if err := w.load.Produce(whole, small, 0, closed()); err != nil {
		return err
	}
	if err := w.bulk.Produce(whole, records-small, 0, closed()); err != nil {
		return err
	}
	w.produced = time.Now()
	return w.trickle(ctx)
}

// trickle produces some records now and again.
func (w *world) trickle(ctx context.Context) error {
	whole := context.WithoutCancel(ctx)
	for ctx.Err() == nil {
		if err := w.load.Produce(whole, 100, 3*time.Second, closed()); err != nil {
			return err
		}
	}
	return nil
}

// tell logs how far it is.
func (w *world) tell(ctx context.Context, required []string) error {
	began := time.Now()
	return every(ctx, func() time.Duration { return 10 * time.Second }, func(int) error {
		w.logf("%4.0fs: the group lags by %d; not yet: %q", time.Since(began).Seconds(), rig.Lag(ctx, w.adm, w.job.Group, w.sources), w.missing(required))
		return nil
	})
}

// missing are those of the required that have not happened.
func (w *world) missing(required []string) []string {
	return slices.DeleteFunc(slices.Clone(required), func(what string) bool { return w.counted(what) > 0 })
}

// someHarm is what a process does to itself. Where it kills itself goes by turns,
// so that each step comes in time.
func (w *world) someHarm(rng *rand.Rand, slot, life int) harm {
	h := harm{
		KillAt: steps[(life*processes+slot)%len(steps)], KillAfter: 3 + rng.IntN(20),
		StopAt: steps, StopEvery: 25, StopFor: w.beyondLock() + upTo(rng, time.Second),
		Fail: 0.005, Release: 0.002, LoseAcks: 15, LoseEnds: 15,
	}
	if rare[h.KillAt] {
		h.KillAfter = 0
	}
	return h
}

// beyondLock is longer than a lock.
func (w *world) beyondLock() time.Duration { return w.job.Lock + 200*time.Millisecond }

// steps of the work at which processes kill and stop themselves.
var steps = []string{"polled", "looked", "handled", "begun", "produced", "frozen", "checked", "ended", "settled", "loaded", "truncating"}

// rare are steps that a process comes to once, or now and then.
var rare = map[string]bool{"loaded": true, "truncating": true}

// harass kills and stops processes at any moment.
func (w *world) harass(ctx context.Context, slots []*slot) error {
	rng := rand.New(rand.NewPCG(w.seed, 200))
	return every(ctx, func() time.Duration { return 2*time.Second + upTo(rng, 2*time.Second) }, func(n int) error {
		w.progress(ctx, 15)
		var o order
		switch n % 4 {
		case 0, 2:
			o.stop = w.beyondLock() + upTo(rng, 2*time.Second)
		case 1:
			o.kill = true
		case 3: // longer than a session, and than a transaction may take
			o.stop, o.replace = session+3*time.Second+upTo(rng, 2*time.Second), true
		}
		select {
		case slots[rng.IntN(len(slots))].orders <- o:
		case <-ctx.Done():
		}
		return nil
	})
}

// duel lets one process hold records for longer than its lock, in a transaction
// that it has begun and not used, while others do them; then it goes on, and finds
// them done, or in a transaction of another that is held open.
func (w *world) duel(ctx context.Context, slots []*slot) error {
	rng := rand.New(rand.NewPCG(w.seed, 300))
	send := func(o order, to ...*slot) {
		for _, s := range to {
			select {
			case s.orders <- o:
			case <-ctx.Done():
			}
		}
	}
	soon := func(within time.Duration, what string, cond func() bool) bool {
		ctx, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		return rig.Until(ctx, what, cond) == nil
	}
	return every(ctx, func() time.Duration { return 4 * time.Second }, func(n int) error {
		w.progress(ctx, 10)
		at := rng.IntN(len(slots))
		late, others := slots[at], slices.Delete(slices.Clone(slots), at, at+1)
		send(order{tell: orderHold + " begun"}, late)
		before := w.counted("redeliveries")
		if soon(4*time.Second, "it holds records", late.held.Load) {
			w.count("records held beyond their lock", 1)
			// Its lock must end, and another be given what it has.
			if n%2 == 0 {
				send(order{tell: orderAgain + " produced"}, others...)
				soon(8*time.Second, "another holds them too", func() bool {
					return slices.ContainsFunc(others, func(s *slot) bool { return s.held.Load() })
				})
			} else if soon(8*time.Second, "something is delivered again", func() bool { return w.counted("redeliveries") > before }) {
				w.progress(ctx, 10) // which has what was delivered again among it
			}
		}
		send(order{resume: true}, late)
		lapse.For(ctx, time.Second)
		send(order{resume: true}, others...)
		return nil
	})
}

// killBrokers kills one broker after another, and starts it again.
func (w *world) killBrokers(ctx context.Context, _ []*slot) error {
	return every(ctx, func() time.Duration { return 6 * time.Second }, func(n int) error {
		w.progress(ctx, 40)
		id, err := w.brokers.Victim(ctx, n)
		if ctx.Err() != nil {
			return nil
		} else if err != nil {
			return err
		}
		// What is begun is finished, so that the cluster is whole afterwards.
		whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if err := w.brokers.Kill(whole, id); err != nil {
			return fmt.Errorf("kill broker %d: %w", id, err)
		}
		w.count("brokers killed", 1)
		return nil
	})
}

// moveLeaders lets others lead the source, and the ledger.
func (w *world) moveLeaders(ctx context.Context, _ []*slot) error {
	return every(ctx, func() time.Duration { return 20 * time.Second }, func(int) error {
		w.progress(ctx, 40)
		within, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if w.brokers.MoveLeaders(within) == nil { // with a broker down not all can move
			w.count("leaders moved by hand", 1)
		}
		return nil
	})
}

// watchLeaders counts leaders that change.
func (w *world) watchLeaders(ctx context.Context, _ []*slot) error {
	led := make(map[string]map[int32]int32)
	return every(ctx, func() time.Duration { return 300 * time.Millisecond }, func(int) error {
		soon, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		topics, err := w.adm.ListTopicsWithInternal(soon)
		if err != nil {
			return nil // the broker that was asked is down; the next is asked in a moment
		}
		topics.EachPartition(func(p kadm.PartitionDetail) {
			of := w.role(p.Topic)
			if of == "" || p.Leader < 1 {
				return
			}
			if led[p.Topic] == nil {
				led[p.Topic] = make(map[int32]int32)
			}
			if before, known := led[p.Topic][p.Partition]; known && before != p.Leader {
				w.count("leader moves of "+of, 1)
			}
			led[p.Topic][p.Partition] = p.Leader
		})
		return nil
	})
}

// role of a topic in the trial; empty if it has none.
func (w *world) role(topic string) string {
	switch topic {
	case w.job.Source:
		return "source"
	case w.job.Output:
		return "output"
	case ledger.TopicName(w.job.Group):
		return "ledger"
	case "__transaction_state":
		return "transaction state"
	case "__share_group_state":
		return "share state"
	}
	return ""
}

// progress waits until some more transactions have ended, so that a slow machine
// does not come from one fault to the next and nowhere else.
func (w *world) progress(ctx context.Context, transactions int64) {
	soon, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	before := w.counted(transactionsSettled)
	_ = rig.Until(soon, "there is progress", func() bool { return w.counted(transactionsSettled) >= before+transactions }) // else it goes on all the same
}

// every does fn now and again until ctx ends, with pauses between.
func every(ctx context.Context, pause func() time.Duration, fn func(n int) error) error {
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for n := 0; ; n++ {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil
		}
		if err := fn(n); err != nil {
			return err
		}
		timer.Reset(pause())
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
