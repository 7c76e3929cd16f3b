package producer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// dies has a producer write a record to each of the partitions 0 and 1 of "out" as
// the last thing that it does for good. With ended it commits, or else aborts, and never
// learns whether that has landed; otherwise it leaves the transaction open.
func (w *world) dies(ctx context.Context, t *testing.T, id, value string, ended, commit bool) {
	t.Helper()
	p := w.manual(t, id)
	if err := p.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	if ended {
		held, release := make(chan struct{}), make(chan struct{})
		w.inject(keyDescribe, 1, always(broker.Action{Before: func() { close(held) }, Wait: release, LoseRequest: true}))
		write(ctx, t, p, nil, value, commit)
		<-held
		t.Cleanup(func() { close(release) }) // before its Close
		return
	}
	flushed(ctx, t, p, nil, value)
}

// lived has a producer write "first" and end well.
func (w *world) lived(ctx context.Context, t *testing.T, id string) {
	t.Helper()
	p := w.manual(t, id)
	write(ctx, t, p, nil, "first", true)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// insists runs a transaction again as long as it has to be, and tells how often.
func insists(ctx context.Context, t *testing.T, p *Producer, value string, commit bool) (again int) {
	t.Helper()
	for {
		tx, err := p.Begin(ctx)
		if err != nil {
			t.Fatalf("%s: Begin: %v", value, err)
		}
		err = tx.Produce(ctx, &kgo.Record{Topic: "out", Value: fmt.Append(nil, value, 0)}, &kgo.Record{Topic: "out", Partition: 1, Value: fmt.Append(nil, value, 1)})
		if err == nil && commit {
			_, err = tx.Commit(ctx)
		} else if err == nil {
			err = errors.Join(tx.lane.out.Flush(ctx), tx.Abort(ctx))
		}
		if err == nil {
			return again
		}
		if !errors.Is(err, sharetxn.ErrNotLanded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
			t.Fatalf("%s: %v", value, err)
		}
		if err := tx.Abort(ctx); err != nil && !errors.Is(err, sharetxn.ErrTxnEnded) {
			t.Fatalf("%s: Abort: %v", value, err)
		}
		again++
	}
}

// A producer that takes an id writes the markers again that an earlier one lost and
// could not, before anything of its own is decided with them.
func TestHeirWritesLostMarkers(t *testing.T) {
	for name, c := range map[string]struct {
		ended, commit bool
		again         int // how often its first transaction is run again
	}{
		"left open, and the heir's abort is lost": {},
		"committed": {ended: true, commit: true, again: 1},
		"aborted":   {ended: true, again: 1},
	} {
		for _, next := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the next one commits: %v", name, next), func(t *testing.T) {
				ctx := testkit.Deadline(t, 60*time.Second)
				w := start(t, setup{})
				lost := w.loseMarkers("tx", 1)
				w.dies(ctx, t, "tx", "first", c.ended, c.commit)
				w.SetIntercept(nil)
				heir := w.manual(t, "tx")
				if err := heir.InitTransactions(ctx); err != nil {
					t.Fatal(err)
				}
				if got := insists(ctx, t, heir, "next", next); got != c.again {
					t.Errorf("its first transaction was run again %d times, want %d", got, c.again)
				}
				if lost.Load() != 1 || w.Traffic(keyAdd).Requests == 0 {
					t.Fatalf("%d markers were lost, %d AddPartitionsToTxn", lost.Load(), w.Traffic(keyAdd).Requests)
				}
				insists(ctx, t, heir, "last", true)
				want := []string{"last0", "last1"}
				if c.commit {
					want = append(want, "first0", "first1")
				}
				if next {
					want = append(want, "next0", "next1")
				}
				same(t, "visible", w.visible(ctx, t, "out"), want...)
			})
		}
	}
}

// What was left open is ended though the heir never writes anything.
func TestHeirThatIsIdle(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	lost := w.loseMarkers("tx", 1)
	w.dies(ctx, t, "tx", "first", false, false)
	heir := w.manual(t, "tx")
	if err := heir.InitTransactions(ctx); err != nil {
		t.Fatal(err)
	}
	if err := heir.Land(ctx); err != nil {
		t.Fatal(err)
	}
	if lost.Load() != 1 {
		t.Fatalf("%d markers were lost", lost.Load())
	}
	same(t, "visible", w.visible(ctx, t, "out")) // and nothing is open: it reads to the end
}

// Nobody can tell any more: the producer ends, in the topic that it is about and not
// before, and says what to do.
func TestHeirOfAnHeir(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	w.loseMarkers("tx", 1)
	w.dies(ctx, t, "tx", "first", true, true)
	w.SetIntercept(nil)
	if err := w.manual(t, "tx").InitTransactions(ctx); err != nil { // and does nothing
		t.Fatal(err)
	}
	heir := w.manual(t, "tx")
	tx, err := heir.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Produce(ctx, &kgo.Record{Topic: "in", Value: []byte("elsewhere")}); err != nil {
		t.Fatalf("where nothing is open: %v", err)
	}
	err = tx.Produce(ctx, &kgo.Record{Topic: "out", Partition: 1, Value: []byte("beside")})
	e, _ := errors.AsType[*sharetxn.Error](err)
	if !errors.Is(err, sharetxn.ErrNotLanded) || !sharetxn.IsFatal(err) || e.Topic != "out" || e.Partition != 0 {
		t.Fatalf("Produce: %v", err)
	}
	if out, err := tx.Commit(ctx); out != sharetxn.Aborted || !sharetxn.IsFatal(err) {
		t.Errorf("Commit: %v, %v", out, err)
	}
	if _, err := heir.Begin(ctx); !errors.Is(err, sharetxn.ErrNotLanded) || !sharetxn.IsFatal(err) {
		t.Errorf("Begin: %v", err)
	}
	write(ctx, t, w.manual(t, "neighbour"), nil, "other", true)
	cl, err := w.cl.Client(kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"out": {1: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var got []string
	for len(got) < 2 {
		fs := cl.PollFetches(ctx)
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	same(t, "visible in a partition that is not held up", got, "first1", "other1")
}

// An id that nobody had costs nothing, one that somebody had a look at each topic.
func TestHeirCosts(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	leaders := map[int32]bool{}
	for p := range int32(len(w.ends(ctx, t, "out"))) {
		leaders[w.Leader("out", p)] = true
	}
	touched := map[int32]bool{w.Leader("out", 0): true, w.Leader("out", 1): true}
	for life, looks := range []int{0, len(leaders), len(leaders)} {
		p := w.manual(t, "tx")
		before := w.Traffic(keyDescribe).Requests
		const n = 3
		for i := range n {
			write(ctx, t, p, nil, fmt.Sprint(life, "-", i, "-"), true)
		}
		if err := p.Land(ctx); err != nil {
			t.Fatal(err)
		}
		if got, want := w.Traffic(keyDescribe).Requests-before, looks+n*len(touched); got != want {
			t.Errorf("life %d: %d DescribeProducers, want %d", life, got, want)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// While the leader of a partition does not say, nothing is written; once it does, the
// transaction works.
func TestHeirCannotLook(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	w.lived(ctx, t, "tx")
	w.SetIntercept(func(r broker.Request) broker.Action {
		if r.Key == keyDescribe {
			return broker.Action{LoseRequest: true}
		}
		return broker.Action{}
	})
	heir := w.manual(t, "tx")
	tx, err := heir.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if err := tx.Produce(short, &kgo.Record{Topic: "out", Value: []byte("too early")}); !errors.Is(err, sharetxn.ErrNotLanded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable {
		t.Fatalf("Produce: %v", err)
	}
	if err := tx.Abort(ctx); err != nil {
		t.Fatal(err)
	}
	w.SetIntercept(nil)
	write(ctx, t, heir, nil, "next", true)
	same(t, "visible", w.visible(ctx, t, "out"), "first0", "first1", "next0", "next1")
}

// A topic that is not there yet holds nothing.
func TestHeirMakesATopic(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	w := start(t, setup{})
	w.lived(ctx, t, "tx")
	heir := w.manual(t, "tx")
	tx, err := heir.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cl, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err := tx.Produce(ctx, &kgo.Record{Topic: "out", Value: []byte("next")}); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- tx.Produce(ctx, &kgo.Record{Topic: "made", Value: []byte("new")}) }()
	if _, err := kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, "made"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if out, err := tx.Commit(ctx); out != sharetxn.Committed {
		t.Fatal(err)
	}
	same(t, "visible", w.visible(ctx, t, "made"), "new")
}
