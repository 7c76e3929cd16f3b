package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/faults"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/link"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Requests that acknowledge, in each of their forms.
func asked(topic [16]byte, partition int32, first, last int64, types ...acks.Type) (staging *wire.Request, alone *kmsg.ShareAcknowledgeRequest, riding *kmsg.ShareFetchRequest) {
	id, member := "enrichers-p0-m0", "m"
	staging = &wire.Request{Profile: wire.Draft95, TransactionalID: &id, ProducerID: 7, ProducerEpoch: 2, GroupID: "g", MemberID: member, Topics: []wire.RequestTopic{{
		TopicID: topic, Partitions: []wire.RequestPartition{{Partition: partition, Batches: []acks.AcknowledgementBatch{{FirstOffset: first, LastOffset: last, Types: types}}}},
	}}}
	var raw []int8
	for _, t := range types {
		raw = append(raw, int8(t))
	}
	alone = &kmsg.ShareAcknowledgeRequest{MemberID: &member, Topics: []kmsg.ShareAcknowledgeRequestTopic{{
		TopicID: topic, Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{{Partition: partition, AcknowledgementBatches: []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{FirstOffset: first, LastOffset: last, AcknowledgeTypes: raw}}}},
	}}}
	riding = &kmsg.ShareFetchRequest{MemberID: &member, Topics: []kmsg.ShareFetchRequestTopic{{
		TopicID: topic, Partitions: []kmsg.ShareFetchRequestTopicPartition{{Partition: partition, AcknowledgementBatches: []kmsg.ShareFetchRequestTopicPartitionAcknowledgementBatch{{FirstOffset: first, LastOffset: last, AcknowledgeTypes: raw}}}},
	}}}
	return staging, alone, riding
}

// What a request acknowledges, in whatever form: renewals, releases and gaps are
// none of it, nor is another topic.
func TestPlaces(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	source, other := [16]byte{1}, [16]byte{2}
	r := reader{source: source}
	types := []acks.Type{acks.Accept, acks.Reject, acks.Gap, acks.Release, acks.Accept, acks.Renew}
	staging, alone, riding := asked(source, 1, 4, 9, types...)
	for _, m := range []kmsg.Request{staging, alone, riding} {
		if got, want := r.places(m, decided), []place{{1, 4, 4}, {1, 5, 5}, {1, 8, 8}}; !slices.Equal(got, want) {
			t.Errorf("%T: %v, want %v", m, got, want)
		}
		if got, want := r.places(m, renewed), []place{{1, 9, 9}}; !slices.Equal(got, want) {
			t.Errorf("%T renews %v, want %v", m, got, want)
		}
	}
	staging, alone, riding = asked(other, 1, 0, 3, acks.Accept)
	for _, m := range []kmsg.Request{staging, alone, riding, &kmsg.MetadataRequest{}} {
		if got := r.places(m, decided); got != nil {
			t.Errorf("%T of another topic: %v", m, got)
		}
	}
}

// Which requests are chances, of what, depends on the guarantee.
func TestChance(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	source := [16]byte{1}
	staged, alone, riding := asked(source, 0, 3, 5, acks.Accept)
	_, renewal, empty := asked(source, 0, 3, 5, acks.Renew)
	end := &kmsg.EndTxnRequest{Version: 5, TransactionalID: "enrichers-p0-m0", ProducerID: 7, ProducerEpoch: 2, Commit: true}
	for name, c := range map[string]struct {
		m           kmsg.Request
		staged, not string // the chance with staging, and without
	}{
		"staging":                      {staged, "0 enrichers-p0-m0 7/2 [{0 3 5}]", ""},
		"acknowledgements":             {alone, "", "2  0/0 [{0 3 5}]"},
		"acknowledgements that ride":   {riding, "", "2  0/0 [{0 3 5}]"},
		"a renewal":                    {renewal, "", ""},
		"a fetch and nothing with it":  {empty, "", ""},
		"a commit":                     {end, "1 enrichers-p0-m0 7/2 []", "1 enrichers-p0-m0 7/2 []"},
		"what is none of these":        {&kmsg.MetadataRequest{Version: 12}, "", ""},
		"a handshake, which is no use": {wire.NewHandshake(wire.Draft95), "", ""},
	} {
		for g, want := range map[processor.Guarantee]string{processor.Staged: c.staged, processor.Ledger: c.not, processor.AckAfterCommit: c.not} {
			q, err := frame.Parse(frame.AppendRequest(nil, 1, "me", c.m))
			if err != nil {
				t.Fatal(err)
			}
			r := reader{guarantee: g, profile: wire.Draft95, source: source}
			got := ""
			if m := r.message(q); m != nil {
				if c, ok := r.chance(m); ok {
					got = fmt.Sprintf("%d %s %d/%d %v", c.at, c.id, c.key.ProducerID, c.key.ProducerEpoch, c.records.places)
				}
			}
			if got != want {
				t.Errorf("%s, %v: %q, want %q", name, g, got, want)
			}
		}
	}
}

// Each strike is aimed at the moment in which its fault could do harm.
func TestWindows(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	for k, want := range map[faults.Kind][2]moment{
		faults.Killed: {ending, acking}, faults.Zombie: {ending, ending}, faults.LostStageAnswer: {staging, acking},
		faults.LostEndTxnAnswer: {ending, ending}, faults.LeaderMove: {ending, acking}, faults.Paused: {staging, acking},
	} {
		for g, want := range map[processor.Guarantee]moment{processor.Staged: want[0], processor.Ledger: want[1], processor.AckAfterCommit: want[1]} {
			if got := window(g, k); got != want {
				t.Errorf("%v, %v at %v, want %v", g, k, got, want)
			}
		}
	}
}

// A strike that missed its window does not count and comes again, after the
// others; one that hit is over.
func TestMissedStrike(t *testing.T) {
	testkit.Deadline(t, 20*time.Second)
	var told []string
	killed, paused := faults.Strike{Kind: faults.Killed, Nth: 1}, faults.Strike{Kind: faults.Paused, Nth: 1}
	d := newDirector(nil, reader{}, faults.Plan{Strikes: []faults.Strike{paused}}, func(s string) { told = append(told, s) }, nil)
	d.fleet = newFleet(Config{Members: 2}, nil, short, nil, nil, nil, nil)
	at := chance{process: &process{slot: d.fleet.slots[0]}}
	d.under[at.slot()] = faults.Killed
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
	e, d := w.site.(*embedded), w.director
	var told []string
	d.tell = func(s string) { told = append(told, s) }
	d.fleet = newFleet(Config{Members: 1}, e, short, nil, nil, nil, nil)
	me := &process{slot: d.fleet.slots[0]}
	me.slot.now = me
	if err := feed(ctx, w.client, e.called.Source, w.lines, 0); err != nil {
		t.Fatal(err)
	}
	at := chance{process: me, at: ending, id: "enrichers-p0-m0"}
	is := func(when string, held, acquired, pending bool) {
		t.Helper()
		if v := e.view(at.id); v.Status == txn.Ongoing {
			at.key = v.Writer
		}
		if got := e.all(at.records, share.Acquired); got != acquired {
			t.Errorf("%s: acquired is %v", when, got)
		}
		if got := e.all(at.records, share.TxPending); got != pending {
			t.Errorf("%s: staged is %v", when, got)
		}
		if got := e.held(at); got != held {
			t.Errorf("%s: the chance is there: %v", when, got)
		}
	}
	// Held at EndTxn, when all is staged.
	var once sync.Once
	seen := errors.New("EndTxn did not come")
	me.link = &link.Link{Watch: func(q frame.Request) link.Fate {
		if q.Key == keyEndTxn {
			once.Do(func() { is("staged", true, false, true); seen = nil })
		}
		return d.watch(ctx, me, q)
	}}
	cl, err := sharetxn.Connect(sharetxn.Kafka(kgo.SeedBrokers(e.Seeds()...), kgo.Dialer(me.link.DialContext), kgo.DisableClientMetrics()), sharetxn.Logger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	c, err := shareconsumer.New(cl, e.called.group, shareconsumer.Topics(e.called.Source), shareconsumer.AcknowledgementMode(shareconsumer.Transactional))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	p, err := producer.New(cl, at.id, producer.TransactionTimeout(short.lock), producer.LockMargin(short.margin))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	is("without records", false, false, false)
	batch, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	r := batch.Records()[0]
	in := &processor.Record{Topic: r.Topic, Partition: r.Partition, Offset: r.Offset}
	at.records = records{member: c.ShareGroupMetadata().MemberID(), places: []place{{r.Partition, r.Offset, r.Offset}}}
	is("polled", false, true, false)
	if !e.fresh(at.records) {
		t.Error("it was delivered once")
	}
	d.handlerFired(faults.HandlerError, in)
	other := at
	other.records.member = "another"
	if e.all(other.records, share.Acquired) || !e.none(other.records, share.Acquired) {
		t.Error("it is not another's")
	}
	batch.AcceptRest()
	tx, err := p.Begin(ctx, batch)
	if err != nil {
		t.Fatal(err)
	}
	d.mu.Lock()
	d.queue = []faults.Strike{{Kind: faults.LostEndTxnAnswer, Nth: 1}}
	d.tally[faults.LostEndTxnAnswer].Planned = 1
	d.mu.Unlock()
	if o, err := tx.Commit(ctx); o != sharetxn.Committed || err != nil {
		t.Fatal(o, err)
	}
	if seen != nil {
		t.Error(seen)
	}
	is("committed", false, false, false)
	d.handlerFired(faults.HandlerError, in) // not held any more: it does not count
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
	at := newRemote(Config{Bootstrap: []string{"127.0.0.1:1"}}, nil)
	f := newFleet(Config{Members: 1, Batch: 1, Dead: &sync.WaitGroup{}}, at, short, &counts{}, newHandler(at.called.Topics, faults.Plan{}, nil), slog.New(slog.DiscardHandler), nil)
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
			cfg := Config{Members: 1, Batch: 1, Dead: &processes, Guarantee: processor.AckAfterCommit, Bootstrap: []string{silent.Addr().String()}}
			at := newRemote(cfg, nil)
			f := newFleet(cfg, at, short, &counts{}, newHandler(at.called.Topics, faults.Plan{}, nil), slog.New(slog.DiscardHandler), func(err error) { failed = err })
			f.watch = func(*process, frame.Request) link.Fate { return link.Fate{} }
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
