package share

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

var lockEnd = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func take(p *partition, max int64, c Chunk, change ...func(*acquireAsk)) acquired {
	from, _ := p.next()
	a := acquireAsk{owner: "a", deadline: lockEnd, from: from, maxRecords: max, batchSize: 500, chunk: c}
	for _, fn := range change {
		fn(&a)
	}
	return p.acquire(a)
}

func exact(a *acquireAsk) { a.exact, a.batchSize = true, 0 }

func loaded(start int64, limit int16, locks int64) *partition {
	return loadedAs(wire.Draft95, start, limit, locks)
}

func loadedAs(profile wire.Profile, start int64, limit int16, locks int64) *partition {
	p := newPartition(start, semanticsOf(profile))
	p.setLimits(limits{delivery: limit, locks: locks})
	return p
}

func wantRanges(t *testing.T, what string, got []acquiredRange, want ...acquiredRange) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: acquired %v, want %v", what, got, want)
	}
}

func mustCheck(t testing.TB, what string, p *partition) {
	t.Helper()
	if err := check(p); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// evenly is batches of n records each, from offset first on.
func evenly(first, batches, n int64) Chunk {
	var ps []put
	for i := range batches {
		ps = append(ps, put{first: first + i*n, n: n, pid: -1})
	}
	return chunkOf(ps...)
}

// The numbers marked measured are what Kafka 4.4.0 answered to the same.
func TestAcquireNew(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name      string
		start     int64
		locks     int64
		max       int64
		batchSize int64
		exact     bool
		chunk     Chunk
		want      []acquiredRange
		end       int64
	}{
		{"whole batches", 0, 2000, 15, 500, false, evenly(0, 5, 10), []acquiredRange{{0, 19, 1}}, 20},
		{"exactly the limit of batches", 0, 2000, 20, 500, false, evenly(0, 5, 10), []acquiredRange{{0, 19, 1}}, 20},
		{"split at batch boundaries (measured)", 0, 2000, 60, 25, false, evenly(0, 10, 10), []acquiredRange{{0, 29, 1}, {30, 59, 1}}, 60},
		{"record_limit is not split (measured)", 0, 2000, 60, 25, true, evenly(0, 10, 10), []acquiredRange{{0, 59, 1}}, 60},
		{"record_limit within a batch", 0, 2000, 15, 25, true, evenly(0, 10, 10), []acquiredRange{{0, 14, 1}}, 20},
		{"a batch may pass the lock limit (measured)", 0, 100, 500, 500, false, evenly(0, 2, 300), []acquiredRange{{0, 299, 1}}, 300},
		{"small batches up to the lock limit (measured)", 0, 100, 500, 500, false, evenly(0, 20, 30), []acquiredRange{{0, 119, 1}}, 120},
		{"start within a batch", 7, 2000, 500, 500, false, evenly(0, 2, 10), []acquiredRange{{7, 19, 1}}, 20},
		{"no records", 0, 2000, 0, 500, false, evenly(0, 2, 10), nil, 0},
		{"nothing read", 0, 2000, 500, 500, false, Chunk{}, nil, 0},
		{"hole between batches is acquired", 0, 2000, 500, 500, false, chunkOf(put{n: 5}, put{first: 8, n: 2}), []acquiredRange{{0, 9, 1}}, 10},
		{"hole before the first batch is not", 0, 2000, 500, 500, false, chunkOf(put{first: 8, n: 2}), []acquiredRange{{8, 9, 1}}, 10},
	} {
		p := loaded(c.start, 5, c.locks)
		got := take(p, c.max, c.chunk, func(a *acquireAsk) {
			if a.batchSize = c.batchSize; c.exact {
				exact(a)
			}
		})
		wantRanges(t, c.name, got.ranges, c.want...)
		mustCheck(t, c.name, p)
		if p.end != c.end {
			t.Errorf("%s: window ends at %d, want %d", c.name, p.end, c.end)
		}
	}
}

func TestAcquireGivesOnlyBatchesThatHoldSomething(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := loaded(0, 5, 2000)
	chunk := evenly(0, 5, 10)
	one := int64(len(chunk.Records) / 5)
	if got := take(p, 20, chunk); int64(len(got.records)) != 2*one {
		t.Fatalf("20 records came in %d bytes, want %d", len(got.records), 2*one)
	}
	got := take(p, 10, chunk)
	wantRanges(t, "third batch", got.ranges, acquiredRange{20, 29, 1})
	if int64(len(got.records)) != one || parseBatches(got.records)[0].first != 20 {
		t.Fatalf("third batch came in %d bytes from %d", len(got.records), parseBatches(got.records)[0].first)
	}
}

func TestParseBatchesStopsAtACut(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	whole := evenly(0, 3, 10).Records
	for cut := range whole {
		got := parseBatches(whole[:cut])
		if want := cut / (len(whole) / 3); len(got) != want {
			t.Fatalf("%d bytes of %d: %d batches, want %d", cut, len(whole), len(got), want)
		}
	}
	absurd := slices.Clone(whole)
	copy(absurd[8:], []byte{0xff, 0xff, 0xff, 0xff})
	if got := parseBatches(absurd); len(got) != 0 {
		t.Fatalf("a negative length gave batches %v", got)
	}
}

func TestAcquireAgain(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := evenly(0, 10, 10)
	p := loaded(0, 5, 2000)
	take(p, 50, chunk)
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(12, 13, acks.Release), batch(31, 31, acks.Release)}, ackRule{}); code != codeNone {
		t.Fatal(code)
	}
	mustCheck(t, "released", p)
	got := take(p, 1000, chunk)
	wantRanges(t, "released ones first, then new ones", got.ranges, acquiredRange{12, 13, 2}, acquiredRange{31, 31, 2}, acquiredRange{50, 99, 1})
	mustCheck(t, "again", p)
}

func TestFullWindowGivesWhatItHoldsOnly(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := evenly(0, 2, 300)
	p := loaded(0, 5, 100)
	take(p, 500, chunk)
	if _, ok := p.next(); ok {
		t.Fatal("a full window wants to be read for")
	}
	wantRanges(t, "full", take(p, 500, chunk).ranges)
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(5, 6, acks.Release)}, ackRule{}); code != codeNone {
		t.Fatal(code)
	}
	wantRanges(t, "after a release (measured)", take(p, 500, chunk).ranges, acquiredRange{5, 6, 2})
	if p.end != 300 {
		t.Fatalf("window grew to %d", p.end)
	}
	// record_limit puts the whole batch into the window (measured).
	p = loaded(0, 5, 100)
	chunk = evenly(0, 2, 100)
	wantRanges(t, "ten", take(p, 10, chunk, exact).ranges, acquiredRange{0, 9, 1})
	wantRanges(t, "the rest", take(p, 120, chunk, exact).ranges, acquiredRange{10, 99, 1})
	wantRanges(t, "no more", take(p, 120, chunk, exact).ranges)
}

// TestBadRecordIsIsolated is the sequence that Kafka 4.4.0 answered for a batch
// of a hundred that was released again and again.
func TestBadRecordIsIsolated(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := loaded(0, 5, 2000)
	chunk := chunkOf(put{n: 100, pid: -1})
	for i, want := range []acquiredRange{{0, 99, 1}, {0, 99, 2}, {0, 99, 3}, {0, 49, 4}, {0, 0, 5}, {1, 1, 5}, {2, 2, 5}} {
		got := take(p, 500, chunk)
		wantRanges(t, "delivery "+string(rune('1'+i)), got.ranges, want)
		if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(want.first, want.last, acks.Release)}, ackRule{}); code != codeNone {
			t.Fatal(code)
		}
		mustCheck(t, "released", p)
	}
	if p.start != 3 || p.archivedAtLimit != 3 {
		t.Fatalf("start %d, archived at the limit %d; want 3 and 3", p.start, p.archivedAtLimit)
	}
}

func TestIsolationLeavesOthersAlone(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := evenly(0, 3, 10)
	// With a limit of two there is nothing to isolate: the last delivery is the second.
	p := loaded(0, 2, 2000)
	take(p, 30, chunk)
	p.release("a")
	wantRanges(t, "limit 2", take(p, 30, chunk).ranges, acquiredRange{0, 29, 2})
	// A batch that was delivered often is not handed out after others.
	p = loaded(0, 5, 2000)
	for range 3 {
		take(p, 10, chunk, func(a *acquireAsk) { a.owner = "b" })
		p.release("b")
	}
	take(p, 1, chunk, exact) // of ten, five may be taken; one is
	wantRanges(t, "rest of the bad batch by itself", take(p, 30, chunk).ranges, acquiredRange{1, 5, 4})
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(0, 5, acks.Accept)}, ackRule{}); code != codeNone {
		t.Fatal(code)
	}
	p.release("a")
	take(p, 30, chunk)
	wantRanges(t, "the next batch is whole", take(p, 30, chunk).ranges, acquiredRange{10, 29, 1})
}

func TestBadBatchIsNotHandedOutAfterOthers(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, chunk := loaded(0, 5, 2000), evenly(0, 3, 10)
	take(p, 30, chunk)
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(10, 19, acks.Release)}, ackRule{}); code != codeNone {
		t.Fatal(code)
	}
	for range 2 { // the second batch was delivered three times, the others once
		take(p, 10, chunk, func(a *acquireAsk) { a.owner = "b" })
		p.release("b")
	}
	p.release("a")
	wantRanges(t, "up to the bad one", take(p, 30, chunk).ranges, acquiredRange{0, 9, 2})
	wantRanges(t, "half of the bad one", take(p, 30, chunk).ranges, acquiredRange{10, 14, 4})
	mustCheck(t, "isolated", p)
}

func TestReadCommitted(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := chunkOf(
		put{first: 0, n: 5, pid: -1},
		put{first: 5, n: 5, pid: 1, txn: true},
		put{first: 10, n: 5, pid: 2, txn: true},
		put{first: 15, n: 1, pid: 1, txn: true, control: true}, // aborts 1
		put{first: 16, n: 4, pid: 1, txn: true},                // its next transaction
		put{first: 20, n: 1, pid: 2, txn: true, control: true},
		put{first: 21, n: 1, pid: 1, txn: true, control: true},
	)
	chunk.Aborted = []AbortedTxn{{ProducerID: 1, FirstOffset: 5}}
	p := loaded(0, 5, 2000)
	got := take(p, 500, chunk, func(a *acquireAsk) { a.committed = true })
	wantRanges(t, "read_committed", got.ranges, acquiredRange{0, 4, 1}, acquiredRange{10, 21, 1})
	mustCheck(t, "read_committed", p)
	if n := p.deliveryComplete(); n != 5 {
		t.Fatalf("%d offsets are done, want the 5 aborted ones", n)
	}
	p = loaded(0, 5, 2000)
	wantRanges(t, "read_uncommitted", take(p, 500, chunk).ranges, acquiredRange{0, 21, 1})

	if got := below(chunk.Records, 10); len(parseBatches(got)) != 2 {
		t.Fatalf("%d batches below the last stable offset 10, want 2", len(parseBatches(got)))
	}
	if got := below(chunk.Records, 22); len(got) != len(chunk.Records) {
		t.Fatal("a stable log was cut")
	}
}

// A record limit may end within an aborted batch of which some is held from when
// the group read uncommitted: what is left of it is handed out no more for that.
func TestRecordLimitWithinAnAbortedBatch(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := chunkOf(put{first: 0, n: 10, pid: 1, txn: true}, put{first: 10, n: 1, pid: 1, txn: true, control: true}, put{first: 11, n: 5})
	chunk.Aborted = []AbortedTxn{{ProducerID: 1}}
	p := loaded(0, 5, 2000)
	wantRanges(t, "read_uncommitted", take(p, 5, chunk, exact).ranges, acquiredRange{0, 4, 1})
	mustAck(t, p, "a", batch(0, 1, acks.Release))
	got := take(p, 4, chunk, exact, func(a *acquireAsk) { a.committed = true })
	wantRanges(t, "up to the limit", got.ranges)
	got = take(p, 20, chunk, exact, func(a *acquireAsk) { a.committed = true })
	wantRanges(t, "beyond it", got.ranges, acquiredRange{10, 15, 1})
	mustCheck(t, "read_committed", p)
}

// An aborted batch that was passed over before takes nothing of a record limit,
// and what lies behind it is handed out.
func TestRecordLimitBeyondAnAbortedBatch(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	chunk := chunkOf(put{first: 0, n: 3, pid: -1}, put{first: 3, n: 5, pid: 1, txn: true}, put{first: 8, n: 1, pid: 1, txn: true, control: true})
	chunk.Aborted = []AbortedTxn{{ProducerID: 1, FirstOffset: 3}}
	committed := func(a *acquireAsk) { a.committed = true }
	p := loaded(0, 5, 2000)
	wantRanges(t, "all", take(p, 20, chunk, exact, committed).ranges, acquiredRange{0, 2, 1}, acquiredRange{8, 8, 1})
	mustAck(t, p, "a", batch(1, 2, acks.Release))
	mustAck(t, p, "a", batch(8, 8, acks.Release))
	wantRanges(t, "given back on both sides", take(p, 3, chunk, exact, committed).ranges, acquiredRange{1, 2, 2}, acquiredRange{8, 8, 2})
	mustCheck(t, "read_committed", p)
}

// What was read may be older than the state: others took some of it, or gave
// back what lies before it. Neither may lose a record.
func TestAcquireFromAnOldRead(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := loaded(0, 5, 2000)
	chunk := evenly(0, 10, 10)
	take(p, 20, chunk, func(a *acquireAsk) { a.owner = "b" })
	wantRanges(t, "others were faster", take(p, 20, chunk, func(a *acquireAsk) { a.from = 0 }).ranges, acquiredRange{20, 39, 1})

	late := evenly(40, 2, 10) // read from 40 on, then b gives back 0 to 19
	p.release("b")
	wantRanges(t, "from 40 on", take(p, 20, late, func(a *acquireAsk) { a.from = 40 }).ranges, acquiredRange{40, 59, 1})
	mustCheck(t, "late", p)
	wantRanges(t, "given back before", take(p, 20, chunk).ranges, acquiredRange{0, 19, 2})

	// The window shrank below what was read for (a leader moved).
	p.leaderMoved()
	wantRanges(t, "after a move", take(p, 20, evenly(60, 1, 10), func(a *acquireAsk) { a.from = 60 }).ranges)
	mustCheck(t, "moved", p)
}

func TestCompactedRecordsAreArchived(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := loaded(0, 5, 2000)
	take(p, 30, evenly(0, 3, 10))
	p.release("a")
	got := take(p, 30, chunkOf(put{first: 15, n: 5}, put{first: 20, n: 10})) // 0 to 14 are gone
	wantRanges(t, "after compaction", got.ranges, acquiredRange{15, 29, 2})
	mustCheck(t, "after compaction", p)
	if p.start != 15 {
		t.Fatalf("start is %d, want 15", p.start)
	}
}

func TestReadSizeFollowsWhatWasRead(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p := loaded(0, 5, 2000)
	if got := p.readSize(500, 1<<20); got != 500*firstWeight*5/4+firstWeight {
		t.Fatalf("first read of %d bytes", got)
	}
	chunk := evenly(0, 5, 100)
	take(p, 500, chunk)
	if got, each := p.readSize(500, 1<<20), len(chunk.Records)/500; int(got) < 500*each || int(got) > 2*500*each+firstWeight {
		t.Fatalf("next read of %d bytes for 500 records of %d bytes", got, each)
	}
	if got := p.readSize(500, 100); got != 100 {
		t.Fatalf("read %d bytes where 100 were asked for", got)
	}
	if got := p.readSize(1<<31-1, 1<<31-1); got <= 0 {
		t.Fatalf("read of %d bytes for everything", got)
	}
}
