package txnmanager

import (
	"errors"
	"strconv"

	"github.com/sharetxn/sharetxn"
)

// State of a transactional id, as its TransactionManager sees it.
type State uint8

const (
	// Uninitialised: no producer id and epoch that could be used.
	Uninitialised State = iota
	// Ready: a transaction can begin.
	Ready
	// Open: a transaction is open and may commit.
	Open
	// AbortOnly: a transaction is open and can only abort; nothing undoes it.
	AbortOnly
	// Ending: commit or abort is under way.
	Ending
	// OutcomeUnknown: EndTxn was sent and no answer proves what became of it.
	// The next Begin settles it.
	OutcomeUnknown
	// Fenced: another producer has the transactional id. For good.
	Fenced
	// Closed: Close was called. For good.
	Closed

	states
)

func (s State) String() string {
	names := [states]string{"uninitialised", "ready", "open", "abort only", "ending", "outcome unknown", "fenced", "closed"}
	if s < states {
		return names[s]
	}
	return "State(" + strconv.Itoa(int(s)) + ")"
}

// event is what happens to a transactional id.
type event uint8

const (
	evInit        event = iota // a producer id and epoch are asked for
	evReady                    // they were given
	evBegin                    // a transaction begins
	evFail                     // something of the open transaction failed
	evCommit                   // commit was asked for
	evAbort                    // abort was asked for
	evSettled                  // the outcome is proven, and producer id and epoch for the next transaction are known
	evSettledLost              // the outcome is proven, producer id and epoch must be asked for
	evUnanswered               // the bound passed and nothing proves the outcome
	evFenced                   // the coordinator knows a newer producer
	evClose                    // Close

	events
)

func (e event) String() string {
	return [events]string{"init", "ready", "begin", "fail", "commit", "abort", "settled", "settled, epoch lost", "unanswered", "fenced", "close"}[e]
}

// Refusals of the table that are no sentinel of root.
var (
	errUninitialised = errors.New("not initialised")
	errAbortOnly     = errors.New("the transaction can only abort")
	errNoSuchStep    = errors.New("no such step")
)

// step is an entry of the table: a next state, or why there is none.
type step struct {
	to      State
	allowed bool
	refusal error
}

func to(s State) step        { return step{to: s, allowed: true} }
func not(refusal error) step { return step{refusal: refusal} }

// table has an entry for every state and event. What it refuses with
// errNoSuchStep no caller can bring about.
var table = [states][events]step{
	Uninitialised: {
		evInit: to(Uninitialised), evReady: to(Ready), evBegin: not(errUninitialised), evFail: not(sharetxn.ErrTxnEnded),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: not(errNoSuchStep), evSettledLost: not(errNoSuchStep), evUnanswered: not(errNoSuchStep),
		evFenced: to(Fenced), evClose: to(Closed),
	},
	Ready: {
		evInit: to(Ready), evReady: to(Ready), evBegin: to(Open), evFail: not(sharetxn.ErrTxnEnded),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: not(errNoSuchStep), evSettledLost: not(errNoSuchStep), evUnanswered: not(errNoSuchStep),
		evFenced: to(Fenced), evClose: to(Closed),
	},
	Open: {
		evInit: not(sharetxn.ErrTxnOpen), evReady: to(Open), evBegin: not(sharetxn.ErrTxnOpen), evFail: to(AbortOnly),
		evCommit: to(Ending), evAbort: to(Ending),
		evSettled: not(errNoSuchStep), evSettledLost: not(errNoSuchStep), evUnanswered: not(errNoSuchStep),
		evFenced: not(errNoSuchStep), evClose: to(Closed),
	},
	AbortOnly: {
		evInit: not(sharetxn.ErrTxnOpen), evReady: to(AbortOnly), evBegin: not(sharetxn.ErrTxnOpen), evFail: to(AbortOnly),
		evCommit: not(errAbortOnly), evAbort: to(Ending),
		evSettled: not(errNoSuchStep), evSettledLost: not(errNoSuchStep), evUnanswered: not(errNoSuchStep),
		evFenced: not(errNoSuchStep), evClose: to(Closed),
	},
	Ending: {
		evInit: not(sharetxn.ErrTxnOpen), evReady: not(errNoSuchStep), evBegin: not(sharetxn.ErrTxnOpen), evFail: to(Ending),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: to(Ready), evSettledLost: to(Uninitialised), evUnanswered: to(OutcomeUnknown),
		evFenced: to(Fenced), evClose: to(Closed),
	},
	OutcomeUnknown: {
		evInit: not(sharetxn.ErrOutcomeUnknown), evReady: not(errNoSuchStep), evBegin: not(sharetxn.ErrOutcomeUnknown), evFail: not(sharetxn.ErrTxnEnded),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: to(Ready), evSettledLost: to(Uninitialised), evUnanswered: to(OutcomeUnknown),
		evFenced: to(Fenced), evClose: to(Closed),
	},
	Fenced: {
		evInit: not(sharetxn.ErrFenced), evReady: not(sharetxn.ErrFenced), evBegin: not(sharetxn.ErrFenced), evFail: not(sharetxn.ErrTxnEnded),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: not(errNoSuchStep), evSettledLost: not(errNoSuchStep), evUnanswered: not(errNoSuchStep),
		evFenced: to(Fenced), evClose: to(Closed),
	},
	Closed: {
		evInit: not(sharetxn.ErrClosed), evReady: not(sharetxn.ErrClosed), evBegin: not(sharetxn.ErrClosed), evFail: not(sharetxn.ErrTxnEnded),
		evCommit: not(sharetxn.ErrTxnEnded), evAbort: not(sharetxn.ErrTxnEnded),
		evSettled: not(sharetxn.ErrClosed), evSettledLost: not(sharetxn.ErrClosed), evUnanswered: not(sharetxn.ErrClosed),
		evFenced: not(sharetxn.ErrClosed), evClose: to(Closed),
	},
}

// next is the table.
func (s State) next(e event) (State, error) {
	st := table[s][e]
	if !st.allowed {
		return s, st.refusal
	}
	return st.to, nil
}
