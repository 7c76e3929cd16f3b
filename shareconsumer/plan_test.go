package shareconsumer

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
)

// took is a pace of so long a record.
func took(each time.Duration) (p pace) {
	p.saw(1000*each, 1000)
	return p
}

func TestPace(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	var p pace
	if p.known() {
		t.Fatal("nothing was seen")
	}
	p.saw(0, 500)
	if !p.known() || p.within(time.Second, 777) != 777 {
		t.Fatalf("no time at all: %d", p.within(time.Second, 777))
	}
	p = took(10 * time.Millisecond)
	if got := p.within(time.Second, 4000); got != 100 {
		t.Fatalf("%d within a second at 10 ms each", got)
	}
	for range 40 { // what was seen before fades
		p.saw(time.Second, 1000)
	}
	if got := p.within(time.Second, 4000); got < 990 || got > 1010 {
		t.Fatalf("%d within a second at 1 ms each", got)
	}
	for range 40 {
		p.saw(time.Minute, 1)
	}
	if got := p.within(time.Second, 4000); got != 0 {
		t.Fatalf("%d within a second at a minute each", got)
	}
}

func TestSupply(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const lock = 30 * time.Second
	for name, c := range map[string]struct {
		s       supply
		records int
		quick   bool
	}{
		"nothing seen yet":         {supply{lock: lock, poll: 500, partitions: 4}, 500, false},
		"at once, the second":      {supply{lock: lock, poll: 500, partitions: 4, pace: took(0), asked: 500}, 1000, true},
		"at once, grown":           {supply{lock: lock, poll: 500, partitions: 4, pace: took(0), asked: 4000}, 4000, true},
		"few partitions":           {supply{lock: lock, poll: 500, partitions: 1, pace: took(0), asked: 4000}, 1000, true},
		"large polls":              {supply{lock: lock, poll: 8000, partitions: 1, pace: took(0), asked: 8000}, 8000, true},
		"a second's worth":         {supply{lock: lock, poll: 500, partitions: 4, pace: took(time.Millisecond / 2), asked: 4000}, 2000, true},
		"a poll takes a second":    {supply{lock: lock, poll: 500, partitions: 4, pace: took(2 * time.Millisecond), asked: 500}, 500, false},
		"a quarter of the lock":    {supply{lock: lock, poll: 500, partitions: 4, pace: took(100 * time.Millisecond), asked: 500}, 75, false},
		"slower than the lock":     {supply{lock: lock, poll: 500, partitions: 4, pace: took(time.Minute), asked: 500}, 1, false},
		"short locks":              {supply{lock: 800 * time.Millisecond, poll: 100, partitions: 4, pace: took(time.Millisecond), asked: 100}, 100, false},
		"transactional":            {supply{mode: Transactional, lock: lock, poll: 500, partitions: 4, asked: 500}, 500, false},
		"transactional, quick":     {supply{mode: Transactional, lock: lock, poll: 100, partitions: 4, pace: took(100 * time.Microsecond), asked: 800}, 1000, false},
		"transactional, growing":   {supply{mode: Transactional, lock: lock, poll: 100, partitions: 4, pace: took(100 * time.Microsecond), asked: 100}, 200, false},
		"transactional, again":     {supply{mode: Transactional, lock: lock, poll: 100, partitions: 4, pace: took(0), asked: 800, redelivered: true}, 100, false},
		"transactional, steady":    {supply{mode: Transactional, lock: lock, poll: 500, partitions: 4, pace: took(time.Millisecond), asked: 500}, 500, false},
		"transactional, short":     {supply{mode: Transactional, lock: 80 * time.Millisecond, poll: 10, partitions: 4, pace: took(100 * time.Microsecond), asked: 800}, 100, false},
		"transactional, slow":      {supply{mode: Transactional, lock: lock, poll: 500, partitions: 4, pace: took(time.Minute), asked: 500}, 500, false},
		"implicit":                 {supply{mode: Implicit, lock: lock, poll: 10, partitions: 4, pace: took(0), asked: 10}, 20, true},
		"a hard limit on a member": {supply{acquire: RecordLimit, lock: lock, poll: 500, partitions: 4, pace: took(0), asked: 500}, 1000, false},
	} {
		if got := c.s.records(); got != c.records {
			t.Errorf("%s: asks for %d records, want %d", name, got, c.records)
		}
		if got := c.s.quick(); got != c.quick {
			t.Errorf("%s: quick %v", name, got)
		}
		if c.s.redelivered = true; c.s.quick() {
			t.Errorf("%s: fetches in advance what was delivered before", name)
		}
	}
	s := supply{lock: lock, poll: 500, partitions: 4, pace: took(0), asked: 4000}
	for waiting, want := range map[int]bool{0: true, 1999: true, 2000: false} {
		if got := s.scarce(waiting); got != want {
			t.Errorf("%d waiting: scarce %v", waiting, got)
		}
	}
}

func TestParking(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		p    parking
		want time.Duration
	}{
		"in advance":                {parking{longest: 500 * ms}, 0},
		"in advance, with riders":   {parking{riders: true, longest: 500 * ms}, 0},
		"a poll, nothing out":       {parking{demand: true, dry: 3, longest: 500 * ms}, 500 * ms},
		"a poll, records out":       {parking{demand: true, out: true, longest: 500 * ms}, 5 * ms},
		"nothing came twice":        {parking{demand: true, out: true, dry: 2, longest: 500 * ms}, 20 * ms},
		"nothing came for long":     {parking{demand: true, out: true, dry: 1 << 30, longest: 500 * ms}, 40 * ms},
		"riders want their results": {parking{demand: true, riders: true, longest: 500 * ms}, 5 * ms},
		"shorter anyway":            {parking{demand: true, out: true, longest: 2 * ms}, 2 * ms},
	} {
		if got := c.p.wait(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// No fetch is parked for longer than a tenth of the lock or a quarter of
// CloseTimeout, in no mode: a renewal would wait for it.
func TestParkingIsBoundedByTheLock(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for name, c := range map[string]struct {
		lock, wait, closing, want time.Duration
	}{
		"MaxWait":      {time.Minute, 500 * time.Millisecond, 5 * time.Second, 500 * time.Millisecond},
		"lock":         {time.Second, 500 * time.Millisecond, 5 * time.Second, 100 * time.Millisecond},
		"CloseTimeout": {time.Minute, 500 * time.Millisecond, time.Second, 250 * time.Millisecond},
	} {
		for _, mode := range []Mode{Explicit, Transactional, Implicit} {
			cons, s := bookkeeper()
			cons.lock, cons.polling = c.lock, 1
			cons.cfg.mode, cons.cfg.maxWait, cons.cfg.closeTimeout = mode, c.wait, c.closing
			if got := s.order().wait; got != c.want {
				t.Errorf("%s, %v: %v, want %v", name, mode, got, c.want)
			}
			s.out = 1 // a transaction's renewals may wait so long, what others decide may not
			want := min(c.want, shortWait)
			if mode == Transactional {
				want = c.want
			}
			if got := s.order().wait; got != want {
				t.Errorf("%s, %v, with records out: %v, want %v", name, mode, got, want)
			}
		}
	}
}

// A fetch in advance does not park for the poll that is about to be given what
// waits already: what that decides would have to wait for it.
func TestNoFetchParksBesideWhatWaits(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	cons, s := bookkeeper()
	cons.polling = 1 // it has not woken yet
	if got := s.order().wait; got != cons.cfg.maxWait {
		t.Fatalf("nothing waits: %v, want %v", got, cons.cfg.maxWait)
	}
	cons.gave(leaseOf(s, 5, 6))
	if got := s.order().wait; got != 0 {
		t.Errorf("records wait: %v, want 0", got)
	}
}
