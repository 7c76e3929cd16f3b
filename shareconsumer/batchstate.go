package shareconsumer

import "fmt"

// state is where a batch is between its poll and its end:
//
//	open --hold--> held --freeze--> frozen --settle--> settled
//	  \                \---abort---> open (what was not staged)
//	   \--commit, close, forget---> settled
type state uint8

const (
	open state = iota
	held
	frozen
	settled
)

func (s state) String() string { return [...]string{"open", "held", "frozen", "settled"}[s] }

// event is what may be asked of a batch.
type event uint8

const (
	evHold    event = iota // a transaction takes it
	evFreeze               // the transaction takes its verdicts
	evCommit               // settled with a proven commit
	evReopen               // a proven abort, of which records are still ours
	evDrop                 // a proven abort, of which nothing is ours
	evUnknown              // the outcome is unknown: stays as it is
	evPlain                // CommitSync, CommitAsync, Split, Renew, KeepLocked: needs an open batch
	evClose                // Close, Forget
	events
)

func (e event) String() string {
	return [...]string{"hold", "freeze", "commit", "reopen", "drop", "unknown", "plain use", "close"}[e]
}

// transitions is the whole state machine; what is missing is refused.
var transitions = map[state]map[event]state{
	open: {
		evHold:  held,
		evPlain: open,
		evClose: settled,
	},
	held: {
		evFreeze:  frozen,
		evReopen:  open, // aborted before staging
		evDrop:    settled,
		evUnknown: held,
		evClose:   held, // remembered: released when a transaction gives it back
	},
	frozen: {
		evCommit:  settled,
		evReopen:  open,
		evDrop:    settled,
		evUnknown: frozen,
		evClose:   frozen, // likewise
	},
	settled: {
		evClose: settled, // so that it can be deferred
		// settled again by whoever settles an outcome twice
		evCommit:  settled,
		evDrop:    settled,
		evReopen:  settled,
		evUnknown: settled,
	},
}

// next gives the state after an event, or why it is refused.
func (s state) next(e event) (state, error) {
	to, ok := transitions[s][e]
	if !ok {
		return s, fmt.Errorf("a %v batch refuses %v", s, e)
	}
	return to, nil
}
