package shareconsumer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/bind"
)

// committedPlainly has a transaction commit records with those offsets, and says how
// long their plain acknowledgements may wait.
func committedPlainly(t *testing.T, c *Consumer, l *lease, patience time.Duration) {
	t.Helper()
	c.gave(l)
	b := c.handOut(time.Now())
	h := hold(t, b)
	b.AcceptRest()
	h.Settle(bind.Settlement{Outcome: uint8(sharetxn.Committed), Plain: true, Patience: patience})
}

// What need not be acknowledged at once waits for a fetch, or for something that
// leaves anyway, no longer than it was told to and never until its lock ends.
func TestPatientAcknowledgementsWaitForCompany(t *testing.T) {
	const patience = 100 * time.Millisecond
	type settled struct {
		offset   int64
		patience time.Duration
	}
	for name, tc := range map[string]struct {
		queued    []settled
		lock      time.Duration // of the first
		poll, dry bool
		want      action
		rests     time.Duration // with rest: how long
	}{
		"patient":                {queued: []settled{{5, patience}}, want: rest, rests: patience},
		"not patient":            {queued: []settled{{5, 0}}, want: sendAcks},
		"beside one that is not": {queued: []settled{{5, patience}, {6, 0}}, want: sendAcks},
		"a lock that ends soon":  {queued: []settled{{5, patience}}, lock: 60 * time.Millisecond, want: rest, rests: 30 * time.Millisecond},
		"a fetch is due":         {queued: []settled{{5, patience}}, poll: true, want: fetchRecords},
		"a fetch that may park":  {queued: []settled{{5, patience}}, poll: true, dry: true, want: sendAcks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := bookkeeper()
				c.cfg.mode = Transactional
				s.epoch, s.want = 1, make(map[partKey]acks.TopicIDPartition)
				for i, q := range tc.queued {
					l := leaseOf(s, q.offset)
					s.want[l.key()] = l.tp
					if i == 0 && tc.lock > 0 {
						c.lock, l.deadline = tc.lock, time.Now().Add(tc.lock)
					}
					committedPlainly(t, c, l, q.patience)
				}
				if tc.poll {
					c.polling = 1
				}
				if tc.dry {
					s.dry = 1
				}
				now := time.Now()
				if got := choose(s.view(now)); got != tc.want {
					t.Fatalf("%v, want %v", got, tc.want)
				}
				if tc.want == rest {
					if got := s.restFor(now); got != tc.rests {
						t.Errorf("looks again after %v, want %v", got, tc.rests)
					}
					if got := choose(s.view(now.Add(tc.rests))); got != sendAcks {
						t.Errorf("once its time is up: %v, want %v", got, sendAcks)
					}
				}
				if got := len(s.takeQueue(all).pieces); got != len(tc.queued) {
					t.Errorf("%d leave together, want %d", got, len(tc.queued))
				}
			})
		})
	}
}
