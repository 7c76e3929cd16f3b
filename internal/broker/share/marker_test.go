package share

import (
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/testkit"
)

// Where a producer has something staged is named once, whatever groups staged
// it, and from then on it can stage no more at that epoch; at the next it can,
// and so can others.
func TestStagedBy(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	a, b := r.user("a"), r.user("b")
	b.group = "h"
	earliest := "earliest"
	if err := r.e.SetGroupConfig("h", map[string]*string{configReset: &earliest}); err != nil {
		t.Fatal(err)
	}
	for _, u := range []*user{a, b} {
		epoch := u.join()
		u.fetch()
		if code := u.stage(u.staging(epoch, batch(0, 4, acks.Accept))); code != codeNone {
			t.Fatalf("%s: staging answered %d", u.id, code)
		}
	}
	if got := r.e.StagedBy(8, 9); got != nil {
		t.Fatalf("another producer staged on %v", got)
	}
	if got := r.e.StagedBy(7, 3); got != nil {
		t.Fatalf("below epoch 3 is staged on %v", got)
	}
	if got := r.e.StagedBy(7, 4); !slices.Equal(got, []Place{{r.in, 0}}) {
		t.Fatalf("staged on %v", got)
	}
	req := a.staging(a.join(), batch(5, 5, acks.Accept))
	if resp := r.e.Stage(ctx, a.conn, req); resp.ErrorCode != codeInvalidProducerEpoch {
		t.Fatalf("late staging answered %d", resp.ErrorCode)
	}
	req.ProducerEpoch = 4
	if code := a.stage(req); code != codeNone {
		t.Fatalf("staging of the next transaction answered %d", code)
	}
}

// A marker that came to one partition ends what is staged there and no more; one
// that comes again ends nothing, least of all what the next transaction staged.
func TestOutcomeAt(t *testing.T) {
	ctx := testkit.Deadline(t, 10*time.Second)
	r := newRig(ctx, t, nil)
	r.add(10)
	u := r.user("a")
	epoch := u.join()
	u.fetch()
	if code := u.stage(u.staging(epoch, batch(0, 4, acks.Accept))); code != codeNone {
		t.Fatalf("staging answered %d", code)
	}
	if n := r.e.OutcomeAt(Place{r.in, 1}, 7, 4, true); n != 0 {
		t.Fatalf("a marker elsewhere resolved %d", n)
	}
	r.wantState("marker elsewhere", 0, TxPending, 1)
	if n := r.e.OutcomeAt(Place{r.in, 0}, 7, 4, true); n != 5 {
		t.Fatalf("the marker resolved %d", n)
	}
	r.wantWindow("after the commit", 5, 10)
	next := u.staging(epoch, batch(5, 7, acks.Accept))
	next.ProducerEpoch = 4
	if code := u.stage(next); code != codeNone {
		t.Fatalf("the next staging answered %d", code)
	}
	for _, commit := range []bool{true, false} {
		if n := r.e.OutcomeAt(Place{r.in, 0}, 7, 4, commit) + r.e.Outcome(7, 4, commit); n != 0 {
			t.Fatalf("a repeated marker resolved %d", n)
		}
		r.wantState("repeated marker", 5, TxPending, 1)
		r.wantWindow("repeated marker", 5, 10)
	}
	if n := r.e.OutcomeAt(Place{r.in, 0}, 7, 5, true); n != 3 {
		t.Fatalf("the next marker resolved %d", n)
	}
	r.wantWindow("after the next commit", 8, 10)
}
