package chaos

import (
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

// harm is what a process does to itself; its zero value is none.
type harm struct {
	// KillAt names a step at which the process kills itself, the first time that
	// it comes to it after KillAfter.
	KillAt    string
	KillAfter time.Duration
	// StopAt are steps of which one is drawn each time: the process stops itself
	// there, for StopFor, about every StopEvery.
	StopAt             []string
	StopEvery, StopFor time.Duration
	// Fail and Release are how likely a call of the handler fails, or releases.
	Fail, Release float64
	// LoseAcks and LoseEnds: about that often an acknowledgement, or the answer
	// to the end of a transaction, is lost with its connection.
	LoseAcks, LoseEnds time.Duration
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
	kill           time.Time // not before; zero: never
	stop, ack, end time.Time
	stopAt, holdAt string
	sever          bool // at holdAt
	loseAck        bool // the next acknowledgement
}

func newHarmer(what harm, seed uint64, log *journal, tap *kafka.Tap) *harmer {
	h := &harmer{harm: what, log: log, tap: tap, goesOn: make(chan os.Signal, 1), rng: rand.New(rand.NewPCG(seed, 1))}
	signal.Notify(h.goesOn, syscall.SIGCONT)
	now := time.Now()
	if what.KillAt != "" {
		h.kill = now.Add(what.KillAfter)
	}
	h.stop, h.ack, h.end = h.next(now, what.StopEvery), h.next(now, what.LoseAcks), h.next(now, what.LoseEnds)
	h.drawStop()
	return h
}

// next is when something is due that happens about every so often.
func (h *harmer) next(now time.Time, every time.Duration) time.Time {
	if every == 0 {
		return time.Time{}
	}
	return now.Add(every/2 + time.Duration(h.rng.Int64N(int64(every))))
}

func (h *harmer) drawStop() {
	if n := len(h.harm.StopAt); n > 0 {
		h.stopAt = h.harm.StopAt[h.rng.IntN(n)]
	}
}

func due(now, at time.Time) bool { return !at.IsZero() && !now.Before(at) }

// step is called at each of the library's named steps.
func (h *harmer) step(name string) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	if name == h.harm.KillAt && due(now, h.kill) {
		h.log.line(wordKill, name)
		die()
	}
	if name == "ended" && due(now, h.ack) {
		h.loseAck, h.ack = true, h.next(now, h.harm.LoseAcks)
	}
	if name == h.holdAt {
		h.holdAt = ""
		if h.sever {
			h.log.count("share connections severed", int64(h.tap.Sever(kmsg.ShareFetch.Int16())))
		}
		h.halt(name, 0)
	}
	if name == h.stopAt && due(now, h.stop) {
		h.halt(name, h.harm.StopFor)
		h.stop = h.next(time.Now(), h.harm.StopEvery)
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
	orderSever = "sever" // the same, and first have brokers believe that the member is gone
	orderFree  = "free"  // forget the order before
)

// obey takes an order.
func (h *harmer) obey(line string) {
	order, step, _ := strings.Cut(line, " ")
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holdAt, h.sever = step, order == orderSever
}

// fate is asked about each request.
func (h *harmer) fate(key int16) kafka.Fate {
	now := time.Now()
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
		if due(now, h.end) {
			h.end = h.next(now, h.harm.LoseEnds)
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
