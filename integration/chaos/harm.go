package chaos

import (
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sharetxn/sharetxn/integration/kafka"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// harm is what a process does to itself; its zero value is none. How often is told
// in transactions, not in time, so that on a slow machine it does not do harm
// alone.
type harm struct {
	// KillAt names a step at which the process kills itself, the first time that
	// it comes to it after that many transactions.
	KillAt    string
	KillAfter int
	// StopAt are steps of which one is drawn each time: the process stops itself
	// there, for StopFor, about once in StopEvery transactions.
	StopAt    []string
	StopEvery int
	StopFor   time.Duration
	// Fail and Release are how likely a call of the handler fails, or releases.
	Fail, Release float64
	// LoseAcks and LoseEnds: about once in that many transactions an
	// acknowledgement, or the answer to the end of one, is lost with its connection.
	LoseAcks, LoseEnds int
}

// harmer does it. Safe for concurrent use.
type harmer struct {
	harm harm
	log  *journal
	tap  *kafka.Tap
	// goesOn has a value when the process was stopped and goes on.
	goesOn chan os.Signal

	mu             sync.Mutex
	rng            *rand.Rand
	txns           int // settled so far
	stop, ack, end int // at how many it is due
	stopAt, holdAt string
	againAt        string // is holdAt when something is delivered again
	skip           int    // so many times it comes to holdAt and goes on
	sever          bool   // at holdAt
	loseAck        bool   // the next acknowledgement
}

func newHarmer(what harm, seed uint64, log *journal, tap *kafka.Tap) *harmer {
	h := &harmer{harm: what, log: log, tap: tap, goesOn: make(chan os.Signal, 1), rng: rand.New(rand.NewPCG(seed, 1))}
	signal.Notify(h.goesOn, syscall.SIGCONT)
	h.stop, h.ack, h.end = h.next(what.StopEvery), h.next(what.LoseAcks), h.next(what.LoseEnds)
	h.drawStop()
	return h
}

// next is at how many transactions something is due that happens about every so
// many; 0: never.
func (h *harmer) next(every int) int {
	if every == 0 {
		return math.MaxInt
	}
	return h.txns + every/2 + h.rng.IntN(every)
}

func (h *harmer) drawStop() {
	if n := len(h.harm.StopAt); n > 0 {
		h.stopAt = h.harm.StopAt[h.rng.IntN(n)]
	}
}

// settledAtOnce is how many transactions a process tells of together.
const settledAtOnce = 5

// step is called at each of the library's named steps.
func (h *harmer) step(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if name == h.harm.KillAt && h.txns >= h.harm.KillAfter {
		h.log.line(wordKill, name)
		die()
	}
	switch {
	case name == "ended" && h.txns >= h.ack:
		h.loseAck, h.ack = true, h.next(h.harm.LoseAcks)
	case name == "settled":
		if h.txns++; h.txns%settledAtOnce == 0 {
			h.log.count(transactionsSettled, settledAtOnce)
		}
	}
	switch {
	case name != h.holdAt:
	case h.skip > 0:
		h.skip--
	default:
		h.holdAt = ""
		if h.sever {
			h.log.count("share connections severed", int64(h.tap.Sever(kmsg.ShareFetch.Int16())))
		}
		h.halt(name, 0)
	}
	if name == h.stopAt && h.txns >= h.stop {
		h.halt(name, h.harm.StopFor)
		h.stop = h.next(h.harm.StopEvery)
		h.drawStop()
	}
}

// halt stops all of the process, until the parent lets it go on: after d, or with
// 0 when it likes.
func (h *harmer) halt(name string, d time.Duration) {
	select {
	case <-h.goesOn: // of a stop from outside
	default:
	}
	h.log.line(wordStop, name, d.Milliseconds())
	_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	<-h.goesOn // the signal may reach this thread late, and then it is a step too far
}

// Orders of a parent, each one line: the word, and a step.
const (
	orderHold  = "hold"  // stop at that step next
	orderAgain = "again" // the same, once something was delivered again
	orderSever = "sever" // the same, and first have brokers believe that the member is gone
	orderFree  = "free"  // forget the order before
)

// obey takes an order.
func (h *harmer) obey(line string) {
	order, step, _ := strings.Cut(line, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holdAt, h.againAt, h.sever, h.skip = step, "", order == orderSever, 0
	if order == orderAgain {
		h.holdAt, h.againAt = "", step
	}
}

// again is told that something was delivered again. It may be of the transaction
// after the one that comes to the step next.
func (h *harmer) again() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.againAt != "" {
		h.holdAt, h.againAt, h.skip = h.againAt, "", h.rng.IntN(2)
	}
}

// fate is asked about each request.
func (h *harmer) fate(key int16) kafka.Fate {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch key {
	case kmsg.ShareFetch.Int16(), kmsg.ShareAcknowledge.Int16():
		if h.loseAck {
			h.loseAck = false
			h.log.count("requests with acknowledgements lost", 1)
			return kafka.LoseRequest
		}
	case kmsg.EndTxn.Int16():
		if h.txns >= h.end {
			h.end = h.next(h.harm.LoseEnds)
			h.log.count("answers to EndTxn lost", 1)
			return kafka.LoseAnswer
		}
	}
	return kafka.Pass
}

// handled is what becomes of a call of the handler.
func (h *harmer) handled() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch x := h.rng.Float64(); {
	case x < h.harm.Fail:
		h.log.count("handler failed", 1)
		return errUnwell
	case x < h.harm.Fail+h.harm.Release:
		h.log.count("handler released", 1)
		return processor.Release(50 * time.Millisecond)
	}
	return nil
}
