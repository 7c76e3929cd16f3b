package acks

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

func TestType(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		t             Type
		text          string
		known, staged bool
	}{
		{Gap, "gap", true, false},
		{Accept, "accept", true, true},
		{Release, "release", true, false},
		{Reject, "reject", true, true},
		{Renew, "renew", true, false},
		{5, "Type(5)", false, false},
		{-1, "Type(-1)", false, false},
	} {
		if c.t.String() != c.text || c.t.Known() != c.known || c.t.Transactional() != c.staged {
			t.Errorf("%d: %v, known %v, transactional %v; want %+v", c.t, c.t, c.t.Known(), c.t.Transactional(), c)
		}
	}
	// The numbers are the protocol's.
	if Gap != 0 || Accept != 1 || Release != 2 || Reject != 3 || Renew != 4 {
		t.Error("type numbers differ from KIP-932")
	}
}

func TestSamePartition(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	a := TopicIDPartition{TopicID: [16]byte{1}, Topic: "orders", Partition: 2}
	for _, c := range []struct {
		name string
		b    TopicIDPartition
		same bool
	}{
		{"equal", a, true},
		{"name unknown", TopicIDPartition{TopicID: [16]byte{1}, Partition: 2}, true},
		{"created anew", TopicIDPartition{TopicID: [16]byte{2}, Topic: "orders", Partition: 2}, false},
		{"other partition", TopicIDPartition{TopicID: [16]byte{1}, Topic: "orders", Partition: 3}, false},
	} {
		if a.Same(c.b) != c.same {
			t.Errorf("%s: Same is %v", c.name, !c.same)
		}
	}
	if a.String() != "orders-2" {
		t.Errorf("reads %q", a)
	}
	if got := (TopicIDPartition{Partition: 2}).String(); got != "AAAAAAAAAAAAAAAAAAAAAA-2" {
		t.Errorf("without a name reads %q", got)
	}
}

func TestRuns(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for _, c := range []struct {
		name    string
		b       AcknowledgementBatch
		offsets int64
		want    []Run
	}{
		{"one type", AcknowledgementBatch{5, 1 << 40, []Type{Accept}}, 1<<40 - 4, []Run{{5, 1 << 40, Accept}}},
		{"one offset", AcknowledgementBatch{5, 5, []Type{Reject}}, 1, []Run{{5, 5, Reject}}},
		{"a type each, all equal", AcknowledgementBatch{5, 7, []Type{Accept, Accept, Accept}}, 3, []Run{{5, 7, Accept}}},
		{"mixed", AcknowledgementBatch{5, 9, []Type{Accept, Accept, Gap, Reject, Reject}}, 5, []Run{{5, 6, Accept}, {7, 7, Gap}, {8, 9, Reject}}},
		{"inverted", AcknowledgementBatch{5, 4, nil}, 0, nil},
	} {
		if got := slices.Collect(c.b.Runs()); !slices.Equal(got, c.want) {
			t.Errorf("%s: runs %v, want %v", c.name, got, c.want)
		}
		if got := c.b.Offsets(); got != c.offsets {
			t.Errorf("%s: %d offsets, want %d", c.name, got, c.offsets)
		}
	}
}

func TestRunsStopEarly(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	b := AcknowledgementBatch{0, 3, []Type{Accept, Reject, Accept, Reject}}
	n := 0
	for range b.Runs() {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("gave %d runs after a break at 2", n)
	}
}
