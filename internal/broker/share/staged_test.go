package share

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// dump writes a partition down, to compare.
func dump(p *partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%d,%d) %d", p.start, p.end, p.archivedAtLimit)
	for _, e := range p.entries {
		fmt.Fprintf(&b, " %d-%d %v %d/%d %q %v %d@%d>%v", e.first, e.last, e.state, e.count, e.persisted, e.owner, e.deadline, e.producerID, e.producerEpoch, e.verdict)
	}
	return b.String()
}

// staging is stage without what it changed.
func (p *partition) staging(owner string, pid int64, epoch int16, bs []acks.AcknowledgementBatch) int16 {
	_, code := p.stage(owner, pid, epoch, bs)
	return code
}

// TestStageRules is C4: 0 to 9 staged by producer 7 at epoch 3 for member a
// (accepted, but 5 to 9 rejected), 10 to 19 acquired by a, 20 to 24 by b, 25 to
// 29 released.
func TestStageRules(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	window := func(t *testing.T) *partition {
		p, chunk := held()
		mustAck(t, p, "a", batch(20, 29, acks.Release))
		take(p, 5, chunk, exact, func(a *acquireAsk) { a.owner = "b" })
		if code := p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept), batch(5, 9, acks.Reject)}); code != codeNone {
			t.Fatal(code)
		}
		mustCheck(t, "staged", p)
		return p
	}
	for _, c := range []struct {
		name  string
		owner string
		pid   int64
		epoch int16
		bs    []acks.AcknowledgementBatch
		want  int16
	}{
		{"own", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 12, acks.Accept, acks.Reject, acks.Gap)}, codeNone},
		{"the same again", "a", 7, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept), batch(5, 9, acks.Reject)}, codeNone},
		{"part of the same again, with more", "a", 7, 3, []acks.AcknowledgementBatch{batch(8, 11, acks.Reject)}, codeNone},
		{"again with another type", "a", 7, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Reject)}, codeInvalidRecordState},
		{"again at another epoch", "a", 7, 4, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept)}, codeInvalidRecordState},
		{"again by another producer", "a", 8, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept)}, codeInvalidRecordState},
		{"again by another member", "b", 7, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept)}, codeInvalidRecordState},
		{"another member's", "a", 7, 3, []acks.AcknowledgementBatch{batch(20, 20, acks.Accept)}, codeInvalidRecordState},
		{"available", "a", 7, 3, []acks.AcknowledgementBatch{batch(25, 25, acks.Accept)}, codeInvalidRecordState},
		{"beyond", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 30, acks.Accept)}, codeInvalidRequest},
		{"release", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 10, acks.Release)}, codeInvalidRequest},
		{"renew", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 10, acks.Renew)}, codeInvalidRequest},
		{"a bad type after a good one", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 11, acks.Accept, acks.Release)}, codeInvalidRequest},
		{"one bad of two batches", "a", 7, 3, []acks.AcknowledgementBatch{batch(10, 11, acks.Accept), batch(25, 25, acks.Accept)}, codeInvalidRecordState},
	} {
		p := window(t)
		before := dump(p)
		if got := p.staging(c.owner, c.pid, c.epoch, c.bs); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		mustCheck(t, c.name, p)
		if after := dump(p); c.want != codeNone && after != before {
			t.Errorf("%s: refused, but changed\n%s to\n%s", c.name, before, after)
		}
		if code := p.staging("b", 9, 1, []acks.AcknowledgementBatch{batch(20, 24, acks.Accept)}); code != codeNone {
			t.Errorf("%s: a neighbour's own stage answered %d", c.name, code)
		}
	}
}

func TestOutcome(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	staged := func() *partition {
		p, _ := held()
		p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(5, 9, acks.Accept), batch(10, 14, acks.Reject)})
		p.staging("a", 8, 3, []acks.AcknowledgementBatch{batch(15, 19, acks.Accept)})
		return p
	}
	for _, c := range []struct {
		name             string
		pid              int64
		epoch            int16
		commit           bool
		n                int64
		accepted, denied State // of 5 and 10
	}{
		{"commit", 7, 4, true, 10, Acknowledged, Archived},
		{"abort", 7, 4, false, 10, Available, Available},
		{"two epochs up", 7, 5, true, 10, Acknowledged, Archived},
		{"marker of the staged epoch", 7, 3, true, 0, TxPending, TxPending},
		{"older marker", 7, 2, false, 0, TxPending, TxPending},
		{"another producer", 9, 4, true, 0, TxPending, TxPending},
	} {
		p := staged()
		if n := p.outcome(c.pid, c.epoch, c.commit); n != c.n {
			t.Errorf("%s: decided %d offsets, want %d", c.name, n, c.n)
		}
		mustCheck(t, c.name, p)
		wantAt(t, c.name, p, 5, c.accepted, 1)
		wantAt(t, c.name, p, 10, c.denied, 1)
		wantAt(t, c.name+": the other producer's", p, 15, TxPending, 1)
		wantAt(t, c.name+": never staged", p, 0, Acquired, 1)
		after := dump(p)
		if n := p.outcome(c.pid, c.epoch, !c.commit); n != 0 && c.n > 0 {
			t.Errorf("%s: a second marker decided %d offsets", c.name, n)
		}
		if again := dump(p); c.n > 0 && again != after {
			t.Errorf("%s: a second marker changed\n%s to\n%s", c.name, after, again)
		}
	}
}

// Staged records outlive everything that ends an acquisition, and hold the
// start back.
func TestStagedSurvives(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, _ := held()
	if code := p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(0, 4, acks.Accept)}); code != codeNone {
		t.Fatal(code)
	}
	mustAck(t, p, "a", batch(5, 29, acks.Accept))
	for name, do := range map[string]func(){
		"session closed":    func() { p.release("a") },
		"locks ended":       func() { p.expire(lockEnd.Add(time.Hour)) },
		"leader moved":      func() { p.leaderMoved() },
		"log start moved":   func() { p.logStartMoved(50) },
		"foreign marker":    func() { p.outcome(8, 9, true) },
		"fetched by others": func() { take(p, 100, evenly(0, 3, 10)) },
	} {
		do()
		mustCheck(t, name, p)
		wantAt(t, name, p, 2, TxPending, 1)
		if p.start != 0 {
			t.Fatalf("%s: start moved to %d", name, p.start)
		}
	}
	if n := p.outcome(7, 4, true); n != 5 || p.start < 30 {
		t.Fatalf("the commit decided %d offsets, start %d; want 5 and at least 30", n, p.start)
	}
}

// An abort does not look at the delivery limit, so a record can pass it; its
// next release ends it.
func TestAbortKeepsTheCount(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, chunk := loaded(0, 2, 2000), evenly(0, 1, 1)
	for i := range int16(5) {
		got := take(p, 1, chunk)
		wantRanges(t, "delivery", got.ranges, acquiredRange{0, 0, i + 1})
		if code := p.staging("a", 7, i, []acks.AcknowledgementBatch{batch(0, 0, acks.Accept)}); code != codeNone {
			t.Fatal(code)
		}
		if n := p.outcome(7, i+1, false); n != 1 {
			t.Fatalf("abort gave back %d offsets", n)
		}
		wantAt(t, "aborted", p, 0, Available, i+1)
	}
	take(p, 1, chunk)
	p.release("a")
	if p.start != 1 || p.archivedAtLimit != 1 {
		t.Fatalf("start %d, archived at the limit %d; want 1 and 1", p.start, p.archivedAtLimit)
	}
}
