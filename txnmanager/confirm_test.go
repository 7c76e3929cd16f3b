package txnmanager

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Each partition is contradicted at its lowest offset with the other verdict, in
// one request, or in one each where a call is all or nothing.
func TestContradictions(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	mixed := []acks.AcknowledgementBatch{
		{FirstOffset: 3, LastOffset: 5, Types: []acks.Type{acks.Reject, acks.Accept, acks.Accept}},
		{FirstOffset: 9, LastOffset: 9, Types: []acks.Type{acks.Accept}},
	}
	for profile, requests := range map[wire.Profile]int{wire.Draft95: 1, wire.KIP93: 2} {
		r := &stageRequest{node: 7, member: member(t, "g", "m", 1), profile: profile, parts: []part{{tp(1, 0), accept(10, 19)}, {tp(1, 1), mixed}}}
		cs := r.contradictions()
		if len(cs) != requests {
			t.Fatalf("%v: %d requests, want %d", profile, len(cs), requests)
		}
		var parts []part
		for _, c := range cs {
			if c.node != 7 || c.member != r.member || !c.contradicts {
				t.Errorf("%v: %+v", profile, c)
			}
			parts = append(parts, c.parts...)
		}
		for i, want := range []struct {
			offset int64
			verdict
		}{{10, 0}, {3, 1}} {
			typ := []acks.Type{acks.Reject, acks.Accept}[want.verdict]
			b := parts[i].batches
			if len(b) != 1 || b[0].FirstOffset != want.offset || b[0].LastOffset != want.offset || len(b[0].Types) != 1 || b[0].Types[0] != typ {
				t.Errorf("%v: partition %d is contradicted by %+v", profile, i, b)
			}
		}
	}
}

// Only a refusal for every partition proves that all is staged.
func TestContradicted(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	tx := &Transaction{m: &TransactionManager{id: "tx"}, freed: make(freedSet)}
	c := &stageRequest{member: member(t, "g", "m", 1), contradicts: true, parts: []part{{tp(1, 0), accept(0, 0)}, {tp(1, 1), accept(5, 5)}}}
	for _, x := range []struct {
		name  string
		resp  *wire.Response
		again bool
		is    error // nil: proven
		class sharetxn.Class
	}{
		{"all refused", response(0, 1, 0, 121, 1, 1, 121), false, nil, 0},
		{"one passed", response(0, 1, 0, 121, 1, 1, 0), false, sharetxn.ErrStale, sharetxn.ClassAbortable},
		{"all passed", response(0, 1, 0, 0, 1, 1, 0), false, sharetxn.ErrStale, sharetxn.ClassAbortable},
		{"passed, and not now", response(0, 1, 0, 51, 1, 1, 0), false, sharetxn.ErrStale, sharetxn.ClassAbortable},
		{"not now", response(0, 1, 0, 121, 1, 1, 51), true, nil, sharetxn.ClassAbortable},
		{"not now at all", response(15), true, nil, sharetxn.ClassAbortable},
		{"another leader", response(0, 1, 0, 6, 1, 1, 121), false, nil, sharetxn.ClassAbortable},
		{"unknown", response(0, 1, 0, -1, 1, 1, 121), false, nil, sharetxn.ClassAbortable},
		{"fenced", response(90), false, sharetxn.ErrFenced, sharetxn.ClassFatal},
		{"not spoken", response(35), false, sharetxn.ErrUnsupported, sharetxn.ClassFatal},
		{"left out", response(0, 1, 0, 121), false, nil, sharetxn.ClassAbortable},
		{"too many", response(0, 1, 0, 121, 1, 1, 121, 2, 0, 121), false, nil, sharetxn.ClassAbortable},
		{"twice", response(0, 1, 0, 121, 1, 0, 121), false, nil, sharetxn.ClassAbortable},
	} {
		clear(tx.freed)
		again, err := tx.contradicted(c, x.resp)
		if kept := len(tx.freed) == 0; kept == errors.Is(x.is, sharetxn.ErrStale) {
			t.Errorf("%s: freed %v", x.name, tx.freed)
		}
		if again != x.again || sharetxn.ClassOf(err) != x.class || x.is != nil && !errors.Is(err, x.is) {
			t.Errorf("%s: again %v, %v", x.name, again, err)
		}
	}
}

// A member that its group forgets between staging and the proof is told as one that
// was forgotten before.
func TestContradictionDeniesMember(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	c := &stageRequest{member: member(t, "g", "m", 1), contradicts: true, parts: []part{{tp(1, 0), accept(0, 0)}}}
	for code, denied := range map[int16]bool{25: true, 113: true, 110: true, 69: true, 90: false, 15: false, 35: false} {
		tx := &Transaction{m: &TransactionManager{id: "tx"}, freed: make(freedSet)}
		if _, err := tx.contradicted(c, response(code)); err == nil || (tx.outcast == c.member) != denied {
			t.Errorf("%d: outcast %v, %v", code, tx.outcast, err)
		}
	}
}
