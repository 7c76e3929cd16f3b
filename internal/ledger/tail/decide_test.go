package tail

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker/fault"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Two transactions cover an offset: whatever becomes of the first, the second
// may commit only if it was aborted.
func TestDecide(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, seen := w.open(ctx, t)
	for p, how := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		n := int32(p)
		w.until(ctx, t, l, "FFF", n, 0, 1, 2)
		a := w.begin(ctx, t, l, "a", w.positions(n, 0, 1)...)
		if err := l.Decide(ctx, a.entries); err != nil {
			t.Fatalf("the first: %v", err)
		}
		w.until(ctx, t, l, "OOF", n, 0, 1, 2)
		b := w.begin(ctx, t, l, "b", w.positions(n, 1, 2)...)
		w.until(ctx, t, l, "OOO", n, 0, 1, 2)
		wantConflict(t, l.Decide(ctx, b.entries), ConflictError{Open: 1})
		if err := l.Decide(ctx, a.entries); err != nil {
			t.Fatalf("the first, with a later one: %v", err)
		}
		a.end(ctx, how)
		if how == kgo.TryCommit {
			w.until(ctx, t, l, "DDO", n, 0, 1, 2)
			wantConflict(t, l.Decide(ctx, b.entries), ConflictError{Done: 1})
			b.end(ctx, kgo.TryAbort)
			w.until(ctx, t, l, "DDF", n, 0, 1, 2)
		} else {
			w.until(ctx, t, l, "FOO", n, 0, 1, 2)
			if err := l.Decide(ctx, b.entries); err != nil {
				t.Fatalf("the second, after an abort: %v", err)
			}
			b.end(ctx, kgo.TryCommit)
			w.until(ctx, t, l, "FDD", n, 0, 1, 2)
		}
	}
	conflicts := seen.of(sharetxn.LedgerConflict)
	if len(conflicts) != 3 {
		t.Fatalf("%d conflicts were told: %+v", len(conflicts), conflicts)
	}
	for i, want := range []sharetxn.LedgerEvent{{Partition: 0, Verdict: "open"}, {Partition: 0, Verdict: "done"}, {Partition: 1, Verdict: "open"}} {
		got := conflicts[i]
		if got.Group != group || got.Topic != "in" || got.Records != 1 || got.Partition != want.Partition || got.Verdict != want.Verdict || got.Took <= 0 {
			t.Errorf("conflict %d: %+v", i, got)
		}
	}
}

// A transaction over many partitions and two topics: entries of one ledger
// partition are told apart by topic, and all conflicts are counted.
func TestDecideOverPartitionsAndTopics(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	a := w.begin(ctx, t, l, "a", slices.Concat(w.positions(0, 5, 6, 9), w.positions(2, 0), w.positionsOf("also", 0, 5))...)
	if len(a.entries) != 3 {
		t.Fatalf("%d entries", len(a.entries))
	}
	if err := l.Decide(ctx, a.entries); err != nil {
		t.Fatal(err)
	}
	b := w.begin(ctx, t, l, "b", slices.Concat(w.positionsOf("also", 0, 6), w.positions(1, 5))...)
	if err := l.Decide(ctx, b.entries); err != nil {
		t.Fatalf("the same offsets of another topic and partition: %v", err)
	}
	c := w.begin(ctx, t, l, "c", slices.Concat(w.positions(0, 4, 5, 6, 7, 8, 9), w.positions(2, 0, 1))...)
	wantConflict(t, l.Decide(ctx, c.entries), ConflictError{Open: 4})
	for _, x := range []*txn{a, b, c} {
		x.end(ctx, map[bool]kgo.TransactionEndTry{true: kgo.TryAbort, false: kgo.TryCommit}[x == c])
	}
	w.until(ctx, t, l, "FDDFFDF", 0, 4, 5, 6, 7, 8, 9, 10)
	var got []string
	changed := l.Changed()
	for len(got) < 2 || !slices.Equal(got, []string{"D", "D", "F"}) {
		got = nil
		for _, v := range l.Look(w.positionsOf("also", 0, 5, 6, 7)) {
			got = append(got, letter(v))
		}
		if !slices.Equal(got, []string{"D", "D", "F"}) {
			<-changed
			changed = l.Changed()
		}
	}
}

// Decide waits for the tail, no longer than its context, and says how far it is.
func TestDecideWaitsForTheTail(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	release := w.hold(t, 0)
	a := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	err := l.Decide(short, a.entries)
	if !errors.Is(err, context.DeadlineExceeded) || sharetxn.ClassOf(err) != sharetxn.ClassAbortable || !strings.Contains(err.Error(), "read up to offset 1 and not to the transaction's entry at 1") {
		t.Fatalf("%v", err)
	}
	other := w.begin(ctx, t, l, "b", w.positions(1, 0)...)
	if err := l.Decide(ctx, other.entries); err != nil {
		t.Fatalf("another partition: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- l.Decide(ctx, a.entries) }()
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// hold keeps the tail from reading what is written to a partition of the ledger
// from now on.
func (w *world) hold(t *testing.T, partition int32) (release func()) {
	t.Helper()
	until := make(chan struct{})
	f := w.plan.Add(fault.Fault{Key: keyFetch, When: fault.When{Times: fault.Always}, Only: []fault.Match{fault.AtNode(w.Leader(ledgerOfG, partition))}, Action: fault.Hold(until)})
	<-f.Fired() // the fetch before it has ended
	return func() { f.Cancel(); close(until) }
}

// A transaction that the coordinator has ended may not commit, whoever asks.
func TestDecideAfterTheEnd(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	a := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
	w.until(ctx, t, l, "O", 0, 0)
	a.end(ctx, kgo.TryAbort)
	w.until(ctx, t, l, "F", 0, 0)
	var conflict *ConflictError
	if err := l.Decide(ctx, a.entries); !errors.As(err, &conflict) || conflict.Ended != 1 {
		t.Fatalf("%v", err)
	}
}

// A producer that fences another one ends its transaction by a marker of a later
// epoch than the transaction's next; and the transactions of one id that follow
// each other are told apart.
func TestEpochs(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	w.begin(ctx, t, l, "a", w.positions(0, 0)...) // never ended
	w.until(ctx, t, l, "O", 0, 0)
	a := w.begin(ctx, t, l, "a", w.positions(0, 1)...) // fences it
	w.until(ctx, t, l, "FO", 0, 0, 1)
	a.end(ctx, kgo.TryCommit)
	for o := int64(2); o < 6; o++ {
		if err := a.cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		a.entries = nil
		a.write(ctx, l, "a", w.positions(0, o)...)
		if err := l.Decide(ctx, a.entries); err != nil {
			t.Fatal(err)
		}
		a.end(ctx, o%2 == 0)
	}
	w.until(ctx, t, l, "FDDFDFF", 0, 0, 1, 2, 3, 4, 5, 6)
}

// What is no entry of this ledger is refused, not taken for decided.
func TestDecideRefusesOthers(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	good, err := l.Entries("a", w.positions(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	generation, err := active(1).Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string]kgo.Record{
		"another topic":     {Topic: "in", Value: good[0].Value},
		"another partition": {Topic: ledgerOfG, Partition: 9, Value: good[0].Value},
		"a generation":      {Topic: ledgerOfG, Value: generation},
		"nothing":           {Topic: ledgerOfG},
	} {
		if err := l.Decide(ctx, []*kgo.Record{&r}); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := l.Entries("a", w.positions(9, 0)); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("entries of a partition that the ledger does not have: %v", err)
	}
	if _, err := l.Entries("", w.positions(0, 0)); sharetxn.ClassOf(err) != sharetxn.ClassUsage {
		t.Errorf("entries of no transaction: %v", err)
	}
}

// Entries hold exactly the offsets, as few ranges, whatever order they come in,
// all under one nonce; and are cut where one would be too large.
func TestEntries(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	scattered := make([]int64, 0, 100_000)
	for i := range int64(cap(scattered)) {
		scattered = append(scattered, 1_000_000_000-3*i)
	}
	records, err := l.Entries("id", slices.Concat(w.positions(1, 7, 3, 4, 5, 5, 9), w.positions(2, scattered...)))
	if err != nil {
		t.Fatal(err)
	}
	if len(records) < 3 {
		t.Fatalf("%d records", len(records))
	}
	var (
		total int64
		nonce [16]byte
	)
	for i, r := range records {
		if r.Topic != ledgerOfG || len(r.Value) > 1<<19 {
			t.Errorf("record %d: topic %s, %d bytes", i, r.Topic, len(r.Value))
		}
		p, err := entry.Parse(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		e := p.Entry
		if i == 0 {
			nonce = e.Nonce
			if want := []entry.Range{{First: 3, Last: 5}, {First: 7, Last: 7}, {First: 9, Last: 9}}; r.Partition != 1 || !slices.Equal(e.Ranges, want) {
				t.Errorf("partition %d: %v", r.Partition, e.Ranges)
			}
			continue
		}
		if r.Partition != 2 || e.Partition != 2 || e.Nonce != nonce || e.TransactionalID != "id" || e.Generation != 1 || e.TopicID != w.TopicID("in") {
			t.Errorf("record %d: partition %d, %+v", i, r.Partition, e.Generation)
		}
		total += count(e.Ranges)
	}
	if nonce == ([16]byte{}) || total != int64(len(scattered)) {
		t.Errorf("nonce %x, %d offsets", nonce, total)
	}
	again, err := l.Entries("id", w.positions(1, 7))
	if err != nil {
		t.Fatal(err)
	}
	if p, err := entry.Parse(again[0].Value); err != nil || p.Entry.Nonce == nonce {
		t.Errorf("another transaction: nonce %x, %v", p.Entry.Nonce, err)
	}
}

// Close wakes who waits, and ends everything.
func TestClose(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	release := w.hold(t, 0)
	defer release()
	a := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
	waits := make(chan error, 1)
	go func() { waits <- l.Decide(ctx, a.entries) }()
	closed := make(chan error, 2)
	for range 2 {
		go func() { closed <- l.Close() }()
	}
	if err := errors.Join(<-closed, <-closed); err != nil {
		t.Fatal(err)
	}
	wantFatal(t, <-waits, sharetxn.ErrClosed)
	<-l.Done()
	wantFatal(t, l.Err(), sharetxn.ErrClosed)
	if got := w.verdicts(l, 0, 0, 1); got != "UU" {
		t.Errorf("looks after Close: %s", got)
	}
	if _, err := l.Entries("a", w.positions(0, 0)); !errors.Is(err, sharetxn.ErrClosed) {
		t.Errorf("entries after Close: %v", err)
	}
}
