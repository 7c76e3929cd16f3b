package tail

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
)

// A partition is as new as the last question about its end that reading has caught up
// with, and is asked about once for each time that is wanted.
func TestFreshness(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var f freshness
	if !f.knows(time.Time{}) || f.knows(at(1)) {
		t.Fatal("nothing was asked: no time but the zero one is known")
	}
	if !f.want(at(5)) || f.want(at(5)) || f.want(at(3)) {
		t.Fatal("the first is news, the same again is not")
	}
	f.told(at(6), 10, 9)
	if f.knows(at(5)) || !f.wanted.IsZero() || f.want(at(6)) {
		t.Fatal("asked, and one record is not read yet: nothing more to ask")
	}
	if f.reached(9) || !f.reached(10) || f.reached(11) {
		t.Fatal("read to the end: that is news once")
	}
	if !f.knows(at(6)) || f.knows(at(7)) {
		t.Fatal("as new as the question, and no newer")
	}
	if !f.want(at(8)) {
		t.Fatal("a later record is news")
	}
	f.told(at(7), 12, 12) // the question was under way already
	if !f.knows(at(7)) || f.knows(at(8)) || f.wanted != at(8) {
		t.Fatal("an older question answers no newer wish")
	}
	f.told(at(9), 12, 12)
	if !f.knows(at(8)) || !f.wanted.IsZero() {
		t.Fatal("nothing was written since")
	}
}

// A record that was delivered after the ledger was read is done only once its log was
// looked at again; what is not done needs no look, nor does who asks for what is known.
func TestDoneIsAskedAgain(t *testing.T) {
	ctx := testkit.Deadline(t, time.Minute)
	w := start(t)
	l, _ := w.open(ctx, t)
	x := w.begin(ctx, t, l, "a", w.positions(0, 0)...)
	x.end(ctx, kgo.TryCommit)
	w.until(ctx, t, l, "DF", 0, 0, 1)
	at := w.positions(0, 0, 1)
	for i := range at {
		at[i].Since = time.Now()
	}
	changed := l.Changed()
	if got := l.Look(at); got[0] != index.Unsure || got[1] != index.Fresh {
		t.Fatalf("delivered since: %v", got)
	}
	for l.Look(at)[0] != index.Done {
		select {
		case <-changed:
			changed = l.Changed()
		case <-ctx.Done():
			t.Fatal("it is never said to be done")
		}
	}
	if got := l.Look(w.positions(0, 0)); got[0] != index.Done {
		t.Errorf("what is known: %v", got)
	}
}
