package processor

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Why a handler's context ends.
var (
	errHandlerTimeout = errors.New("the handler took longer than HandlerTimeout")
	errHardStop       = errors.New("the processor was stopped hard")
)

// callGrace is how long a call may go on after its context has ended.
const callGrace = time.Second

// maxAbandoned is how many calls of a member may never return before it stops:
// a goroutine cannot be killed, so these are leaked memory.
const maxAbandoned = 100

var errAbandoned = fmt.Errorf("processor: more than %d handler calls did not return after their context had ended; a handler must return when its ctx ends", maxAbandoned)

// call is a call of the handler under way, for one item or a row of them or, with
// a BatchHandler, several. It belongs to the member's loop but for its goroutine.
type call struct {
	g      *group
	items  []*item
	row    *row // of a Handler
	cancel context.CancelCauseFunc
	began  time.Time
	ends   time.Time   // HandlerTimeout
	told   atomic.Bool // the hooks were, by the call itself or by the loop that gave it up
	ended  time.Time   // when cancel was called; zero: not
	why    error
}

// called is what a call came to.
type called struct {
	*call
	decisions []decision
}

// end ends the call's context.
func (c *call) end(now time.Time, why error) {
	if c.ended.IsZero() {
		c.ended, c.why = now, why
		c.cancel(why)
	}
}

// look ends the call's context where its time is up or a lock is lost, says
// whether it is to be given up, and when to look again.
func (c *call) look(now time.Time) (abandon bool, at time.Time) {
	if c.whole() {
		if at = c.began.Add(rowTime); !now.Before(at) {
			at = time.Time{} // it is over, and about to tell
		}
		return false, at
	}
	if c.ended.IsZero() {
		at = c.ends
		switch {
		case !now.Before(c.ends):
			c.end(now, errHandlerTimeout)
		default:
			for _, it := range c.items {
				if !it.rec.Held() {
					c.end(now, sharetxn.ErrLockExpired)
					break
				}
				if d := it.rec.AcquisitionDeadline(); d.Before(at) {
					at = d
				}
			}
		}
	}
	if !c.ended.IsZero() {
		at = c.ended.Add(callGrace)
		return !now.Before(at), at
	}
	return false, at
}

// whole tells of a row that was not taken apart: for so short a time nobody looks
// at locks and timeouts.
func (c *call) whole() bool { return c.row != nil && len(c.items) > 1 }

// handleBatch calls the user's BatchHandler. Like handle it runs beside the member's
// loop, which may have given the call up when it returns.
func handleBatch(ctx context.Context, cfg *Config, in []*Record) []decision {
	b := NewBatch(in...)
	err := guard(func() error { return cfg.BatchHandler(ctx, b) })
	if p, ok := errors.AsType[*panicError](err); ok {
		b.misuse = p // nothing of it counts
	}
	return b.conclude(err)
}

// handle calls the user's Handler.
func handle(ctx context.Context, cfg *Config, in *Record) decision {
	d := decision{own: true}
	err := guard(func() error {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		outputs, err := cfg.Handler(ctx, in)
		d = d.decided(outputs, err) // asks err, which is the user's code too
		return nil
	})
	if err != nil {
		d = d.decided(nil, err)
	}
	return d
}

// decided reads what a Handler returned.
func (d decision) decided(outputs []*kgo.Record, err error) decision {
	reject, isReject := errors.AsType[*RejectError](err)
	release, isRelease := errors.AsType[*ReleaseError](err)
	switch {
	case err == nil:
		d.kind, d.outputs = accepted, outputs
	case isReject:
		d.kind, d.err = rejected, given(reject.Reason)
	case isRelease:
		d.kind, d.backoff = released, release.Backoff
	default:
		d.kind, d.err = failed, err
	}
	return d
}

var errNoReason = errors.New("no reason given")

// given is the reason, if there is one.
func given(reason error) error {
	if reason == nil {
		return errNoReason
	}
	return reason
}

var errGoexit = errors.New("the handler ended its goroutine (runtime.Goexit)")

// panicError is a handler's panic.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("the handler panicked: %v", e.value) }

// guard makes an error of a panic. A Goexit ends the goroutine all the same, so
// what is to be done after must be deferred by the caller.
func guard(fn func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return fn()
}
