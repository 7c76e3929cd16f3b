package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
)

// What a request acknowledges: renewals, releases and gaps are none of it.
func TestRecords(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	var r records
	r.add("q", 1, 0, 3, []acks.Type{acks.Accept})
	r.add("q", 1, 4, 8, []acks.Type{acks.Accept, acks.Reject, acks.Gap, acks.Release, acks.Accept})
	r.add("q", 2, 0, 9, []acks.Type{acks.Renew})
	want := []place{{"q", 1, 0, 3}, {"q", 1, 4, 4}, {"q", 1, 5, 5}, {"q", 1, 8, 8}}
	if !reflect.DeepEqual(r.places, want) {
		t.Errorf("%v, want %v", r.places, want)
	}
}

// Each strike is aimed at the moment in which its fault could do harm.
func TestWindows(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	for k, want := range map[faults.Kind][2]moment{
		faults.Killed: {ending, acking}, faults.Zombie: {ending, ending}, faults.LostStageAnswer: {staging, acking},
		faults.LostEndTxnAnswer: {ending, ending}, faults.LeaderMove: {ending, acking}, faults.Paused: {staging, acking},
	} {
		if got := [2]moment{staged.window(k), commitThenAck.window(k)}; got != want {
			t.Errorf("%v at %v, want %v", k, got, want)
		}
	}
}

// A transaction's owner is told by its id, not by one that begins alike.
func TestOwner(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	f := newFleet(Config{Members: 12}, staged, nil, nil, nil, nil, nil)
	for id, want := range map[string]string{
		"enrichers-p1-m0": "p1", "enrichers-p1-m0-1": "p1", "enrichers-p11-m0": "p11", "enrichers-p11-m0-1": "p11", "enrichers-p1-m01": "", "other": "",
	} {
		got := ""
		if s := f.owner(id); s != nil {
			got = s.name
		}
		if got != want {
			t.Errorf("%s is of %q, want %q", id, got, want)
		}
	}
}

// A strike that missed its window does not count and comes again, after the
// others; one that hit is over.
func TestMissedStrike(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	var told []string
	killed, paused := faults.Strike{Kind: faults.Killed, Nth: 1}, faults.Strike{Kind: faults.Paused, Nth: 1}
	d := newDirector(nil, staged, faults.Plan{Strikes: []faults.Strike{paused}}, func(s string) { told = append(told, s) }, nil)
	d.fleet = newFleet(Config{Members: 2}, staged, nil, nil, nil, nil, nil)
	at := chance{slot: d.fleet.slots[0]}
	d.under[at.slot] = faults.Killed
	if d.idle() || d.settled() || d.hungry() { // two members, and one must always work
		t.Fatal("nothing seems to be under way")
	}
	d.done(killed, at, false)
	if tally, over := d.sofar(); tally[faults.Killed].Fired != 0 || over != 1 || !reflect.DeepEqual(d.queue, []faults.Strike{paused, killed}) || told != nil {
		t.Fatalf("%v, %d over, queue %v, told %q", tally, over, d.queue, told)
	}
	if !d.idle() || d.settled() || !d.hungry() {
		t.Error("nothing seems to be left")
	}
	d.queue = nil
	d.done(killed, at, true)
	if tally, _ := d.sofar(); tally[faults.Killed].Fired != 1 || !d.settled() || len(told) != 1 || !strings.Contains(told[0], "fault killed 1 of 0: process p0") {
		t.Errorf("%v, told %q", tally, told)
	}
}

// The windows are told by the brokers' own state: what is acquired, staged and
// done, by whom.
func TestHeld(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := still(t, small, small)
	b := w.director.b
	if err := feed(ctx, w.client, w.lines, 0); err != nil {
		t.Fatal(err)
	}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(b.Seeds()...), kgo.DisableClientMetrics()), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c, err := shareconsumer.New(cl, group, shareconsumer.Topics(topics.Source), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p, err := producer.New(cl, transactionalID("p0"), producer.TransactionTimeout(lock), producer.LockMargin(lockMargin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	at := chance{at: ending, id: transactionalID("p0")}
	is := func(when string, held, acquired, pending bool) {
		t.Helper()
		if v := view(b, at.id); v.Status == txn.Ongoing {
			at.key = v.Writer
		}
		if got := at.records.all(b, share.Acquired); got != acquired {
			t.Errorf("%s: acquired is %v", when, got)
		}
		if got := at.records.all(b, share.TxPending); got != pending {
			t.Errorf("%s: staged is %v", when, got)
		}
		if got := at.held(b, staged); got != held {
			t.Errorf("%s: the chance is there: %v", when, got)
		}
	}
	is("without records", false, false, false)
	batch, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := batch.Records()[0]
	in := &processor.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	at.records = records{member: c.ShareGroupMetadata().MemberID(), places: []place{{r.Topic, r.Partition, r.Offset, r.Offset}}}
	is("polled", false, true, false)
	if !at.records.fresh(b, 1) || at.records.fresh(b, 0) {
		t.Error("it was delivered once")
	}
	var told []string
	w.director.tell = func(s string) { told = append(told, s) }
	w.director.handlerFired(faults.HandlerError, in)
	other := at
	other.records.member = "another"
	if other.records.all(b, share.Acquired) || !other.records.none(b, share.Acquired) {
		t.Error("it is not another's")
	}
	batch.AcceptRest()
	tx, err := p.Begin(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	// Held at EndTxn, when all is staged.
	var once sync.Once
	seen := errors.New("EndTxn did not come")
	d := w.director
	d.fleet = newFleet(Config{Members: 1}, staged, nil, nil, nil, nil, nil)
	d.queue = []faults.Strike{{Kind: faults.LostEndTxnAnswer, Nth: 1}}
	d.tally[faults.LostEndTxnAnswer].Planned = 1
	b.SetIntercept(func(q broker.Request) broker.Action {
		if q.Key == 26 {
			once.Do(func() { is("staged", true, false, true); seen = nil })
		}
		return d.intercept(ctx, q)
	})
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatal(o, err)
	}
	b.SetIntercept(nil)
	if seen != nil {
		t.Error(seen)
	}
	is("committed", false, false, false)
	w.director.handlerFired(faults.HandlerError, in) // not held any more: it does not count
	tally, _ := d.sofar()
	if want := fmt.Sprintf("[fault handler-error 1 of 0: %s-%d offset %d fault lost-endtxn-answer 1 of 1: process p0, transaction %s (%d/%d)]",
		r.Topic, r.Partition, r.Offset, at.id, at.key.ProducerID, at.key.ProducerEpoch); fmt.Sprint(told) != want || tally[faults.HandlerError].Fired != 1 || !d.settled() {
		t.Errorf("told %v, want %s", told, want)
	}
}

// A fleet that was stopped starts nobody.
func TestStoppedFleet(t *testing.T) {
	ctx := testkit.Deadline(t, 20*time.Second)
	ctx, stop := context.WithCancel(ctx)
	stop()
	f := newFleet(Config{Members: 1, Batch: 1, Dead: &sync.WaitGroup{}}, staged, []string{"127.0.0.1:1"}, &counts{}, newHandler(faults.Plan{}, nil), slog.New(slog.DiscardHandler), nil)
	if err := f.startAll(ctx); !errors.Is(err, context.Canceled) || f.process(f.slots[0]) != nil {
		t.Errorf("error %v", err)
	}
	f.wait()
}

// A process may end when it was killed, when another took over, or at the end of
// the run. One that was fenced is started anew; any other end is an error.
func TestEnded(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	over, stop := context.WithCancel(ctx)
	stop()
	other := errors.New("other")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // a broker that refuses would end the process before it is stopped
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, c := range map[string]struct {
		ctx    context.Context
		p      process
		now    bool // it is the slot's
		want   error
		starts bool
	}{
		"killed":            {ctx: ctx, p: process{killed: true}, now: true},
		"another took over": {ctx: ctx, p: process{err: sharetxn.ErrFenced}},
		"end of the run":    {ctx: over, p: process{}, now: true},
		"by itself":         {ctx: ctx, p: process{}, now: true, want: errUnasked},
		"with an error":     {ctx: ctx, p: process{err: other}, now: true, want: other},
		"fenced":            {ctx: ctx, p: process{err: sharetxn.ErrFenced}, now: true, starts: true},
	} {
		t.Run(name, func(t *testing.T) {
			var failed error
			var processes sync.WaitGroup
			cfg := Config{Members: 1, Batch: 1, Dead: &processes}
			f := newFleet(cfg, commitThenAck, []string{silent.Addr().String()}, &counts{}, newHandler(faults.Plan{}, nil), slog.New(slog.DiscardHandler), func(err error) { failed = err })
			s := f.slots[0]
			if c.now {
				s.now = &c.p
			}
			ctx, stop := context.WithCancel(c.ctx)
			f.ended(ctx, s, &c.p)
			stop()
			processes.Wait()
			if !errors.Is(failed, c.want) || failed != nil && c.want == nil {
				t.Errorf("failed with %v, want %v", failed, c.want)
			}
			if started := len(f.processes) > 0; started != c.starts {
				t.Errorf("started one: %v", started)
			}
		})
	}
}
