package shareconsumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
)

// Fetches of a Transactional consumer grow with what its transactions commit, and
// with nothing else: what is only polled, or comes back by an abort, may be held for
// long.
func TestCommittedTransactionsAreSuppliedAhead(t *testing.T) {
	const polled = 10
	for name, tc := range map[string]struct {
		outcome sharetxn.Outcome
		took    time.Duration // from the fetch to the end, and from end to end
		want    int
	}{
		"committed quickly":     {sharetxn.Committed, 10 * time.Millisecond, 2 * polled},
		"committed, not faster": {sharetxn.Committed, 100 * time.Millisecond, polled},
		"committed slowly":      {sharetxn.Committed, 10 * time.Second, polled},
		"aborted":               {sharetxn.Aborted, 0, polled},
		"unknown":               {sharetxn.Unknown, 0, polled},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := bookkeeper()
				c.cfg.mode, c.cfg.maxPollRecords = Transactional, polled
				s.want = map[partKey]acks.TopicIDPartition{{topic: [16]byte{1}}: {TopicID: [16]byte{1}, Topic: "in"}}
				for i := range int64(3) {
					var offsets []int64
					for o := range int64(polled) {
						offsets = append(offsets, polled*i+o)
					}
					l := leaseOf(s, offsets...)
					l.fetched = time.Now()
					c.gave(l)
					b := c.handOut(time.Now())
					h := hold(t, b)
					b.AcceptRest()
					time.Sleep(tc.took) // virtual
					h.Settle(settlement(tc.outcome, false))
					s.asked = polled
				}
				if got := s.supply().records(); got != tc.want {
					t.Errorf("the next fetch asks for %d records, want %d", got, tc.want)
				}
				if s.supply().quick() {
					t.Error("fetches though no poll waits")
				}
				s.redelivered = true
				if got := s.supply().records(); got != polled {
					t.Errorf("after what was delivered before it asks for %d records, want %d", got, polled)
				}
			})
		})
	}
}

// A pause in which nothing is there to do is no slowness.
func TestIdleTimeIsNoPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, s := bookkeeper()
		c.cfg.mode = Transactional
		for i := range int64(2) {
			l := leaseOf(s, i)
			l.fetched = time.Now()
			committedPlainly(t, c, l, 0)
			time.Sleep(time.Hour) // virtual
		}
		if got := c.pace.within(time.Second, 7); got != 7 {
			t.Errorf("%d records within a second, want as many as may be", got)
		}
	})
}
