package txnmanager

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// What an heir believes of the transaction before, by all that the coordinator said of
// the id before it gave the identity.
func TestPast(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const id, other = 7, 8
	at := func(state string, epoch int16, places ...place) described {
		return described{state, identity{id, epoch}, places}
	}
	in := []place{{"out", 1}, {"out", 0}}
	sorted := []place{{"out", 0}, {"out", 1}}
	got := func(epoch int16) identity { return identity{id, epoch} }
	unknown := past{id: id}
	committed := func(epoch int16) past { return past{id, true, true, epoch} }
	aborted := func(epoch int16) past { return past{id, true, false, epoch} }
	for name, c := range map[string]struct {
		saw  []described
		got  identity
		want past
		left []place
	}{
		"nobody had it":                              {[]described{{}}, got(0), noPast, nil},
		"nobody had it but for a moment":             {[]described{{}, at("Empty", 0)}, got(1), unknown, nil},
		"another producer id":                        {[]described{at("CompleteCommit", 32766)}, identity{other, 0}, noPast, nil},
		"nothing since it was taken":                 {[]described{at("Empty", 4)}, got(5), unknown, nil},
		"a state of a later Kafka":                   {[]described{at("PrepareSomething", 4)}, got(5), unknown, nil},
		"committed":                                  {[]described{at("CompleteCommit", 4)}, got(5), committed(3), nil},
		"committed, and somebody was in between":     {[]described{at("CompleteCommit", 4)}, got(6), past{id: id, commit: true}, nil},
		"aborted":                                    {[]described{at("CompleteAbort", 4)}, got(5), aborted(3), nil},
		"aborted, and somebody was in between":       {[]described{at("CompleteAbort", 4)}, got(7), past{id: id}, nil},
		"about to commit":                            {[]described{at("PrepareCommit", 4, in...)}, got(5), committed(3), sorted},
		"about to commit, and seen to":               {[]described{at("PrepareCommit", 4, in...), at("CompleteCommit", 4)}, got(5), committed(3), sorted},
		"about to abort":                             {[]described{at("PrepareAbort", 4, in...)}, got(5), aborted(3), sorted},
		"open, and aborted for us":                   {[]described{at("Ongoing", 3, in...), at("PrepareAbort", 4, in[0]), at("CompleteAbort", 4)}, got(5), aborted(3), sorted},
		"open, and aborted by its own":               {[]described{at("Ongoing", 3, in...), at("CompleteAbort", 4)}, got(5), aborted(3), sorted},
		"open, and committed by its own":             {[]described{at("Ongoing", 3, in...), at("CompleteCommit", 4)}, got(5), committed(3), sorted},
		"open, and the next committed":               {[]described{at("Ongoing", 3, in...), at("CompleteCommit", 5)}, got(6), past{id: id, commit: true}, nil},
		"open, and a later one aborted":              {[]described{at("Ongoing", 3, in...), at("CompleteAbort", 6)}, got(7), past{id: id}, nil},
		"open, given at once":                        {[]described{at("Ongoing", 3, in...)}, got(5), unknown, nil},
		"open twice: the places are of the second":   {[]described{at("Ongoing", 2, place{"old", 0}), at("Ongoing", 3, in...), at("CompleteAbort", 4)}, got(5), aborted(3), sorted},
		"open, then of another producer id, aborted": {[]described{at("Ongoing", 32766, in...), {describedCompleteAbort, identity{other, 0}, nil}}, identity{other, 1}, past{id: other}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := &will{}
			for _, d := range c.saw {
				w.saw(d)
			}
			p := w.read(c.got)
			if p != c.want {
				t.Errorf("%+v, want %+v", p, c.want)
			}
			if left := w.left(p); fmt.Sprint(left) != fmt.Sprint(c.left) || (len(left) > 0) != (len(c.left) > 0) {
				t.Errorf("left in %v, want %v", left, c.left)
			}
			if !reflect.DeepEqual(w.last, c.saw[len(c.saw)-1]) {
				t.Errorf("the last is %+v", w.last)
			}
		})
	}
}
