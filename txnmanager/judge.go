package txnmanager

import "github.com/sharetxn/sharetxn"

// question is what the coordinator is asked about one transaction, and what is
// known so far. The request is the same each time: EndTxn v5 at the epoch of
// the transaction, which a coordinator answers as a retry once it was done.
type question struct {
	commit           bool // asked for now; a refused commit turns into an abort
	mayHaveCommitted bool // a commit was sent to which no answer is known that denies it
	notCommitted     bool // proven
}

// judgement is what an answer makes of the question.
type judgement struct {
	final   bool // no further request
	outcome sharetxn.Outcome
	next    event // if final
	// abort: ask for the abort now, which also moves the epoch.
	abort        bool
	notCommitted bool // proven from here on
}

var askAgain = judgement{}

// judge is the only place that turns an answer into an outcome.
func judge(v verdict, q question) judgement {
	harmless := q.notCommitted || !q.mayHaveCommitted // no commit can have been done
	aborted := func(next event) judgement {
		return judgement{final: true, outcome: sharetxn.Aborted, next: next}
	}
	unknown := func(next event) judgement {
		return judgement{final: true, outcome: sharetxn.Unknown, next: next}
	}
	switch v {
	case vAgain, vElsewhere, vUnclear:
		return askAgain
	case vFenced:
		if harmless {
			return aborted(evFenced)
		}
		return unknown(evFenced)
	case vRefused:
		if harmless {
			return aborted(evSettledLost)
		}
		return unknown(evUnanswered)
	case vOK:
		if q.commit {
			return judgement{final: true, outcome: sharetxn.Committed, next: evSettled}
		}
		return aborted(evSettled)
	case vNotCommitted:
		if q.commit {
			return judgement{abort: true, notCommitted: true}
		}
	case vAbort:
		if q.commit {
			return judgement{abort: true}
		}
		if harmless {
			return aborted(evSettledLost)
		}
		return unknown(evUnanswered)
	case vCommitted:
		if !q.commit && !harmless {
			return judgement{final: true, outcome: sharetxn.Committed, next: evSettledLost}
		}
	case vMoved, vUnsupported, verdicts:
	}
	// The coordinator contradicts itself, or someone else ends our transactions:
	// nothing is proven, and going on would be guessing.
	return unknown(evFenced)
}
