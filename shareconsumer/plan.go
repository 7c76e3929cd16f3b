package shareconsumer

import "time"

// pace is how long records take their consumer: of what was handed out lately,
// how many records, and for how long nobody waited for more; of a Transactional
// consumer, of what transactions committed lately. Old sights fade.
type pace struct {
	busy    time.Duration
	records int
}

// saw takes in a time of work on records.
func (p *pace) saw(busy time.Duration, records int) {
	p.busy = p.busy*3/4 + busy
	p.records = p.records*3/4 + records
}

// known tells whether anything was seen yet.
func (p pace) known() bool { return p.records > 0 }

// within is how many records are consumed in a time, at most most.
func (p pace) within(d time.Duration, most int) int {
	if p.busy <= 0 || int64(p.busy)/int64(p.records) == 0 {
		return most
	}
	return int(min(int64(d)/(int64(p.busy)/int64(p.records)), int64(most)))
}

const (
	// ahead is for how long consumers may be supplied in advance, and supplyLock
	// what part of the lock: what waits has to be handled before its lock ends,
	// and what waits here is kept from others.
	ahead      = time.Second
	supplyLock = 8
	// transactionAhead is the same for transactions. Their records may not be
	// acknowledged one by one, so a process that ends leaves all that it has to
	// another delivery; but with each fetch begins a batch of another partition, and a
	// transaction with records of two costs more than one with as many of one.
	transactionAhead = 100 * time.Millisecond
	// sharedLocks is how much of a partition's record locks (2000 by default) one
	// fetch asks for, so that it leaves some to other members and to what is not
	// acknowledged yet; mostAsked bounds the whole.
	sharedLocks = 1000
	mostAsked   = 4000
)

// supply is what is known when a fetch is sized.
type supply struct {
	mode       Mode
	acquire    Acquire
	pace       pace
	lock       time.Duration
	poll       int // MaxPollRecords
	partitions int // of the broker
	asked      int // records, by the fetch before; 0: none yet
	// redelivered: the last answer had records that were delivered before. They are
	// not fetched in advance: should this process end, that would cost another
	// delivery for nothing.
	redelivered bool
}

// records is how many records a fetch asks for. It begins with one poll's, grows
// with what is consumed at once, and shrinks to what is handled while a quarter
// of the lock passes, so that slow handlers leave their records to others. In a
// Transactional consumer the user gathers what a transaction takes, so it does not
// shrink there, and grows with what is committed.
func (s supply) records() int {
	if !s.pace.known() || s.mode == Transactional && s.redelivered {
		return s.poll
	}
	most := max(s.poll, min(s.partitions*sharedLocks, mostAsked))
	n := s.pace.within(s.horizon(), most)
	switch {
	case n > s.poll:
		return min(n, 2*max(s.asked, s.poll))
	case s.mode == Transactional:
		return s.poll
	}
	return max(1, s.pace.within(s.lock/4, s.poll))
}

func (s supply) horizon() time.Duration {
	if s.mode == Transactional {
		return min(s.lock/supplyLock, transactionAhead)
	}
	return min(s.lock/supplyLock, ahead)
}

// quick tells whether records are consumed so fast that more than a poll's worth
// may wait here.
func (s supply) quick() bool {
	return s.mode != Transactional && s.acquire == BatchOptimized && !s.redelivered && s.pace.known() && s.pace.within(s.horizon(), 2*s.poll) >= 2*s.poll
}

// scarce tells whether a quick consumer is about to run out of the records that
// wait.
func (s supply) scarce(waiting int) bool { return waiting < max(s.poll, s.records()/2) }

const (
	// shortWait is how long a fetch parks while acknowledgements may come, which
	// would have to wait for it; doubled each time that it brings nothing, up to
	// longestShort.
	shortWait    = 5 * time.Millisecond
	longestShort = 40 * time.Millisecond
	// closePart is the part of CloseTimeout that a parked fetch may use up, be it
	// not too short.
	closePart = 4
)

// longest is how long a broker may hold a fetch at most. Deadlines are counted
// from when it is sent, and Close waits for it; but where locks or CloseTimeout
// are as short as its way over the network, fetches would follow each other
// without a pause.
func longest(maxWait, lock, closing time.Duration) time.Duration {
	return min(maxWait, max(shortWait, min(lock/10, closing/closePart)))
}

// parking is what is known when a fetch's wait is chosen.
type parking struct {
	demand  bool // a poll waits
	riders  bool // acknowledgements go along, and their results come with the answer
	out     bool // acknowledgements may come meanwhile
	dry     int  // answers without records in a row
	longest time.Duration
}

// wait is how long the broker may hold the fetch.
func (p parking) wait() time.Duration {
	switch {
	case !p.demand:
		return 0
	case p.riders, p.out:
		return min(shortWait<<min(p.dry, 8), longestShort, p.longest)
	}
	return p.longest
}
