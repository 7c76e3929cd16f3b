package share

import (
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// held is a partition of 30 offsets, all acquired by "a" once; batches of ten.
func held() (*partition, Chunk) {
	p, chunk := loaded(0, 5, 2000), evenly(0, 3, 10)
	take(p, 30, chunk)
	return p, chunk
}

func mustAck(t *testing.T, p *partition, owner string, bs ...acks.AcknowledgementBatch) {
	t.Helper()
	if code := p.acknowledge(owner, bs, ackRule{renew: true, deadline: lockEnd}); code != codeNone {
		t.Fatalf("acknowledgement answered %d", code)
	}
	mustCheck(t, "acknowledged", p)
}

// at is the entry that covers an offset.
func at(t *testing.T, p *partition, offset int64) entry {
	t.Helper()
	for _, e := range p.entries {
		if e.first <= offset && offset <= e.last {
			return e
		}
	}
	t.Fatalf("offset %d is not in %v", offset, p.entries)
	return entry{}
}

func wantAt(t *testing.T, what string, p *partition, offset int64, state State, count int16) {
	t.Helper()
	if e := at(t, p, offset); e.state != state || e.count != count {
		t.Fatalf("%s: offset %d is %v after %d deliveries, want %v after %d", what, offset, e.state, e.count, state, count)
	}
}

// TestVerdicts is B1's table of what ends an acquisition, on a first delivery
// and on the last.
func TestVerdicts(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	ack := func(ty acks.Type) func(*partition) {
		return func(p *partition) {
			p.acknowledge("a", []acks.AcknowledgementBatch{batch(10, 19, ty)}, ackRule{renew: true, deadline: lockEnd.Add(time.Hour)})
		}
	}
	for _, c := range []struct {
		name        string
		do          func(*partition)
		first, last State
	}{
		{"accept", ack(acks.Accept), Acknowledged, Acknowledged},
		{"reject", ack(acks.Reject), Archived, Archived},
		{"gap", ack(acks.Gap), Archived, Archived},
		{"release", ack(acks.Release), Available, Archived},
		{"renew", ack(acks.Renew), Acquired, Acquired},
		{"session or connection closed (measured: count kept)", func(p *partition) { p.release("a") }, Available, Archived},
		{"lock ended", func(p *partition) { p.expire(lockEnd) }, Available, Archived},
		{"lock not ended", func(p *partition) { p.expire(lockEnd.Add(-1)) }, Acquired, Acquired},
		{"another member's session closed", func(p *partition) { p.release("b") }, Acquired, Acquired},
	} {
		for deliveries, want := range map[int16]State{1: c.first, 3: c.last} {
			p, _ := held()
			p.setLimits(limits{delivery: 3, locks: 2000})
			for i := range p.entries {
				p.entries[i].count = deliveries
			}
			p.entries = append([]entry{{first: 0, last: 9, state: Acquired, owner: "x", deadline: lockEnd.Add(time.Hour), count: 1}},
				entry{first: 10, last: 29, state: Acquired, owner: "a", deadline: lockEnd, count: deliveries})
			c.do(p)
			mustCheck(t, c.name, p)
			wantAt(t, fmt.Sprint(c.name, ", delivery ", deliveries), p, 15, want, deliveries)
			wantAt(t, c.name+", a neighbour", p, 5, Acquired, 1)
			if got, ended := p.archivedAtLimit > 0, deliveries == 3 && c.first == Available; got != ended {
				t.Errorf("%s: archived at the limit: %v, want %v", c.name, got, ended)
			}
		}
	}
}

func TestStartMovesOverWhatIsDone(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, _ := held()
	mustAck(t, p, "a", batch(10, 14, acks.Accept))
	if p.start != 0 || p.deliveryComplete() != 5 {
		t.Fatalf("start %d, done %d; want 0 and 5", p.start, p.deliveryComplete())
	}
	mustAck(t, p, "a", batch(0, 9, acks.Accept))
	if p.start != 15 || p.deliveryComplete() != 0 {
		t.Fatalf("start %d, done %d; want 15 and 0", p.start, p.deliveryComplete())
	}
	mustAck(t, p, "a", batch(15, 29, acks.Reject))
	if p.start != 30 || p.end != 30 || len(p.entries) != 0 {
		t.Fatalf("window [%d, %d) of %v, want it empty at 30", p.start, p.end, p.entries)
	}
	if from, ok := p.next(); from != 30 || !ok {
		t.Fatalf("next is %d, %v", from, ok)
	}
}

func TestRenewMovesOnlyTheLock(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, _ := held()
	later := lockEnd.Add(time.Minute)
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(10, 19, acks.Renew)}, ackRule{renew: true, deadline: later}); code != codeNone {
		t.Fatal(code)
	}
	if p.written {
		t.Error("a renewal was persisted")
	}
	if got := p.earliest(); !got.Equal(lockEnd) {
		t.Fatalf("earliest lock ends %v, want %v", got, lockEnd)
	}
	if !p.expire(lockEnd) {
		t.Fatal("nothing expired")
	}
	wantAt(t, "renewed", p, 15, Acquired, 1)
	wantAt(t, "not renewed", p, 5, Available, 1)
	if got := p.earliest(); !got.Equal(later) {
		t.Fatalf("earliest lock ends %v, want %v", got, later)
	}
}

func TestLeaderMoveForgetsWhatWasNotPersisted(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, chunk := held()
	mustAck(t, p, "a", batch(0, 9, acks.Release)) // persisted with one delivery
	take(p, 10, chunk)                            // their second
	if code := p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(12, 14, acks.Accept)}); code != codeNone {
		t.Fatal(code)
	}
	p.leaderMoved()
	mustCheck(t, "moved", p)
	wantAt(t, "released once, acquired again", p, 5, Available, 1)
	wantAt(t, "never persisted, below the end", p, 11, Available, 0)
	wantAt(t, "staged", p, 13, TxPending, 1)
	if p.end != 15 {
		t.Fatalf("window ends at %d, want 15: nothing was written behind", p.end)
	}
	if got := take(p, 30, chunk); len(got.ranges) == 0 || got.ranges[0] != (acquiredRange{0, 9, 2}) {
		t.Fatalf("new leader gives %v", got.ranges)
	}
	if n := p.outcome(7, 4, true); n != 3 {
		t.Fatalf("marker after the move decided %d offsets, want 3", n)
	}
}

func TestLogStart(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	stage := func(p *partition) {
		p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(12, 13, acks.Accept)})
	}
	for _, c := range []struct {
		name       string
		before     func(*partition)
		to         int64
		start, end int64
	}{
		{"not moved", nil, 0, 0, 30},
		{"within what is acquired", nil, 15, 15, 30},
		{"within what is available", func(p *partition) { p.release("a") }, 15, 15, 30},
		{"beyond the window", nil, 40, 40, 40},
		{"beyond an empty window", func(p *partition) {
			p.acknowledge("a", []acks.AcknowledgementBatch{batch(0, 29, acks.Accept)}, ackRule{})
		}, 40, 40, 40},
		{"a staged record holds it back", stage, 25, 12, 30},
		{"even beyond the window", stage, 40, 12, 30},
	} {
		p, _ := held()
		if c.before != nil {
			c.before(p)
		}
		p.logStartMoved(c.to)
		mustCheck(t, c.name, p)
		if p.start != c.start || p.end != c.end {
			t.Errorf("%s: window [%d, %d), want [%d, %d)", c.name, p.start, p.end, c.start, c.end)
		}
	}
	p, _ := held()
	p.logStartMoved(15)
	if code := p.acknowledge("a", []acks.AcknowledgementBatch{batch(0, 20, acks.Accept)}, ackRule{}); code != codeNone {
		t.Fatalf("an acknowledgement across the log start answered %d", code)
	}
	wantAt(t, "above", p, 21, Acquired, 1)
}
