package share

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestCheckBatches(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name  string
		renew bool
		bs    []acks.AcknowledgementBatch
		want  int16
	}{
		{"none", false, nil, codeNone},
		{"one type", false, []acks.AcknowledgementBatch{batch(5, 9, acks.Accept)}, codeNone},
		{"a type each", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept, acks.Gap, acks.Reject)}, codeNone},
		{"ascending", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept), batch(8, 8, acks.Release)}, codeNone},
		{"inverted", false, []acks.AcknowledgementBatch{batch(9, 5, acks.Accept)}, codeInvalidRequest},
		{"negative", false, []acks.AcknowledgementBatch{batch(-2, 5, acks.Accept)}, codeInvalidRequest},
		{"from -1 on", false, []acks.AcknowledgementBatch{batch(-1, 5, acks.Accept)}, codeNone},
		{"overlapping", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept), batch(6, 8, acks.Accept)}, codeInvalidRequest},
		{"the last offset again", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept), batch(7, 8, acks.Accept)}, codeNone},
		{"descending", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept), batch(1, 2, acks.Accept)}, codeInvalidRequest},
		{"no types", false, []acks.AcknowledgementBatch{batch(5, 7)}, codeInvalidRequest},
		{"too few types", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Accept, acks.Accept)}, codeInvalidRequest},
		{"too many types", false, []acks.AcknowledgementBatch{batch(5, 6, acks.Accept, acks.Accept, acks.Accept)}, codeInvalidRequest},
		{"type 5", true, []acks.AcknowledgementBatch{batch(5, 7, 5)}, codeInvalidRequest},
		{"type -1", true, []acks.AcknowledgementBatch{batch(5, 7, -1)}, codeInvalidRequest},
		{"renew in a renewing request", true, []acks.AcknowledgementBatch{batch(5, 7, acks.Renew)}, codeNone},
		{"renew elsewhere", false, []acks.AcknowledgementBatch{batch(5, 7, acks.Renew)}, codeInvalidRequest},
	} {
		if got := checkBatches(c.bs, c.renew); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

// TestAcknowledgeRules is B3's list at a share partition whose window is
// [5, 30): 5 to 9 acquired by a, 10 to 14 accepted, 15 to 19 acquired by b,
// 20 to 24 available, 25 to 29 staged by a.
func TestAcknowledgeRules(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	window := func(t *testing.T) *partition {
		p, chunk := held()
		mustAck(t, p, "a", batch(0, 4, acks.Accept), batch(10, 14, acks.Accept), batch(15, 24, acks.Release))
		take(p, 5, chunk, exact, func(a *acquireAsk) { a.owner = "b" })
		if code := p.staging("a", 7, 3, []acks.AcknowledgementBatch{batch(25, 29, acks.Accept)}); code != codeNone {
			t.Fatal(code)
		}
		return p
	}
	for _, c := range []struct {
		name  string
		bs    []acks.AcknowledgementBatch
		renew bool
		want  int16
	}{
		{"own", []acks.AcknowledgementBatch{batch(5, 9, acks.Accept)}, true, codeNone},
		{"part of own", []acks.AcknowledgementBatch{batch(6, 7, acks.Accept, acks.Release)}, true, codeNone},
		{"below the start", []acks.AcknowledgementBatch{batch(0, 4, acks.Accept)}, true, codeNone},
		{"across the start (measured)", []acks.AcknowledgementBatch{batch(3, 9, acks.Accept)}, true, codeNone},
		{"accepted before (measured)", []acks.AcknowledgementBatch{batch(10, 10, acks.Accept)}, true, codeInvalidRecordState},
		{"another member's", []acks.AcknowledgementBatch{batch(15, 15, acks.Accept)}, true, codeInvalidRecordState},
		{"available", []acks.AcknowledgementBatch{batch(20, 20, acks.Accept)}, true, codeInvalidRecordState},
		{"staged", []acks.AcknowledgementBatch{batch(25, 25, acks.Accept)}, true, codeInvalidRecordState},
		{"staged, released", []acks.AcknowledgementBatch{batch(25, 25, acks.Release)}, true, codeInvalidRecordState},
		{"partly beyond (measured)", []acks.AcknowledgementBatch{batch(5, 30, acks.Accept)}, true, codeInvalidRequest},
		{"beyond (measured)", []acks.AcknowledgementBatch{batch(40, 42, acks.Accept)}, true, codeInvalidRequest},
		{"renewed", []acks.AcknowledgementBatch{batch(5, 9, acks.Renew)}, true, codeNone},
		{"renewed where the group may not", []acks.AcknowledgementBatch{batch(5, 9, acks.Renew)}, false, codeInvalidRecordState},
		{"one offset twice", []acks.AcknowledgementBatch{batch(5, 7, acks.Accept), batch(7, 9, acks.Accept)}, true, codeInvalidRecordState},
		{"one offset renewed and then accepted", []acks.AcknowledgementBatch{batch(5, 7, acks.Renew), batch(7, 9, acks.Accept)}, true, codeNone},
		{"from -1 on", []acks.AcknowledgementBatch{batch(-1, 9, acks.Accept)}, true, codeNone},
		{"one bad of two batches", []acks.AcknowledgementBatch{batch(5, 6, acks.Accept), batch(15, 15, acks.Accept)}, true, codeInvalidRecordState},
		{"one bad offset of a batch", []acks.AcknowledgementBatch{batch(8, 10, acks.Accept, acks.Reject, acks.Accept)}, true, codeInvalidRecordState},
	} {
		p := window(t)
		before := dump(p)
		if got := p.acknowledge("a", c.bs, ackRule{renew: c.renew, deadline: lockEnd}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		mustCheck(t, c.name, p)
		if after := dump(p); c.want != codeNone && after != before {
			t.Errorf("%s: refused, but changed\n%s to\n%s", c.name, before, after)
		}
		mustAck(t, p, "b", batch(15, 19, acks.Accept)) // a neighbour's own still works
	}
}

func TestAcknowledgeOnAnEmptyWindow(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	p, _ := held()
	mustAck(t, p, "a", batch(0, 29, acks.Accept))
	for _, c := range []struct {
		first, last int64
		want        int16
	}{
		{0, 29, codeNone},                // done before (measured)
		{32, 33, codeInvalidRecordState}, // never acquired (measured)
		{25, 32, codeInvalidRecordState},
	} {
		if got := p.acknowledge("a", []acks.AcknowledgementBatch{batch(c.first, c.last, acks.Accept)}, ackRule{}); got != c.want {
			t.Errorf("%d to %d: %d, want %d", c.first, c.last, got, c.want)
		}
	}
}
