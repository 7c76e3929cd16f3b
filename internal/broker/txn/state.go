// Package txn coordinates the embedded broker's transactions as Kafka does with
// transaction.version 2 (KIP-890): a pure table decides, Coordinator keeps the
// state, the timers and the order of markers. EndTxn exists in version 5 only.
package txn

import "math"

// Status of a transactional id (KIP-98).
type Status uint8

const (
	Empty Status = iota
	Ongoing
	PrepareCommit
	PrepareAbort
	CompleteCommit
	CompleteAbort
)

func (s Status) String() string {
	return [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}[s]
}

func (s Status) preparing() bool { return s == PrepareCommit || s == PrepareAbort }

// Kafka's error codes that the coordinator answers.
const (
	codeNone                      int16 = 0
	codeCoordinatorNotAvailable   int16 = 15
	codeNotCoordinator            int16 = 16
	codeInvalidRequest            int16 = 42
	codeInvalidProducerEpoch      int16 = 47
	codeInvalidTxnState           int16 = 48
	codeInvalidProducerIDMapping  int16 = 49
	codeInvalidTransactionTimeout int16 = 50
	codeConcurrentTransactions    int16 = 51
	codeProducerFenced            int16 = 90
	codeTransactionalIDNotFound   int16 = 105
)

// lastEpoch is the highest epoch a producer id is used at; the transaction that
// ends there gets a new producer id.
const lastEpoch = math.MaxInt16 - 1

// identity is what a decision needs to know of a transactional id.
type identity struct {
	status   Status
	id       int64
	epoch    int16
	prevID   int64 // of the transaction that ended before the present epoch
	endedAt  int16 // its epoch
	hasEnded bool  // false after InitProducerId: the evidence is gone
}

// retries tells whether (id, epoch) names the transaction that ended last.
func (x identity) retries(id int64, epoch int16) bool {
	return x.hasEnded && id == x.prevID && epoch == x.endedAt
}

// verdict is what EndTxn does.
type verdict uint8

const (
	refuse  verdict = iota // answer the code
	begin                  // end the ongoing transaction
	bump                   // abort of an empty transaction: the epoch moves
	already                // a retry: success with the present id and epoch
)

// decideEnd is EndTxn v5 (Kafka's TransactionCoordinator; KIP-890).
func decideEnd(x identity, id int64, epoch int16, commit bool) (verdict, int16) {
	if x.retries(id, epoch) {
		switch x.status {
		case PrepareCommit, PrepareAbort:
			if commit == (x.status == PrepareCommit) {
				return refuse, codeConcurrentTransactions
			}
			return refuse, codeInvalidTxnState
		case CompleteCommit, CompleteAbort:
			if commit == (x.status == CompleteCommit) {
				return already, codeNone
			}
			return refuse, codeInvalidTxnState
		case Empty, Ongoing: // the next transaction is under way at a newer epoch
			return refuse, codeProducerFenced
		}
	}
	switch {
	case id != x.id:
		return refuse, codeInvalidProducerIDMapping
	case epoch != x.epoch:
		return refuse, codeProducerFenced
	case x.status == Ongoing:
		return begin, codeNone
	case x.status.preparing():
		return refuse, codeConcurrentTransactions
	case commit:
		return refuse, codeInvalidTxnState
	}
	return bump, codeNone
}

// decideAdd says whether a request of (id, epoch) may become part of the
// transaction, or begin it.
func decideAdd(x identity, id int64, epoch int16) int16 {
	switch {
	case id != x.id:
		return codeInvalidProducerIDMapping
	case epoch != x.epoch:
		return codeProducerFenced
	case x.status.preparing():
		return codeConcurrentTransactions
	}
	return codeNone
}

// initVerdict is what InitProducerId does.
type initVerdict uint8

const (
	initRefuse initVerdict = iota
	initFence              // abort the ongoing transaction one epoch up, then ask to come again
	initBump               // a new epoch
	initRepeat             // the answer to an earlier one was lost: the present epoch again
)

// decideInit: id -1 means that the client claims none.
func decideInit(x identity, id int64, epoch int16) (initVerdict, int16) {
	repeat := id >= 0 && x.hasEnded && id == x.prevID && epoch == x.endedAt
	switch {
	case id >= 0 && !repeat && (id != x.id || epoch != x.epoch):
		return initRefuse, codeProducerFenced
	case x.status == Ongoing:
		return initFence, codeConcurrentTransactions
	case x.status.preparing():
		return initRefuse, codeConcurrentTransactions
	case repeat:
		return initRepeat, codeNone
	}
	return initBump, codeNone
}
