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

// known tells whether a state is one of Kafka's, which has some that a
// transaction is never seen in here.
func known(state string) bool {
	switch state {
	case "Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead", "PrepareEpochFence":
		return true
	}
	return false
}

func (s Status) preparing() bool { return s == PrepareCommit || s == PrepareAbort }

// Kafka's error codes that the coordinator answers.
const (
	codeNone                      int16 = 0
	codeUnknownTopicOrPartition   int16 = 3
	codeCoordinatorNotAvailable   int16 = 15
	codeNotCoordinator            int16 = 16
	codeNotEnoughReplicas         int16 = 19
	codeInvalidRequest            int16 = 42
	codeInvalidProducerEpoch      int16 = 47
	codeInvalidTxnState           int16 = 48
	codeInvalidProducerIDMapping  int16 = 49
	codeInvalidTransactionTimeout int16 = 50
	codeConcurrentTransactions    int16 = 51
	codeOperationNotAttempted     int16 = 55
	codeProducerFenced            int16 = 90
	codeTransactionalIDNotFound   int16 = 105
)

// lastEpoch is the highest epoch a producer id is used at; the transaction that
// ends there gets a new producer id.
const lastEpoch = math.MaxInt16 - 1

// identity is what a decision needs to know of a transactional id.
type identity struct {
	status Status
	id     int64
	epoch  int16 // -1: made, but never given out
	// prev is whom the present identity follows, while a lost answer may still
	// be asked for again: from the end of a transaction, or an InitProducerId
	// that named its identity, until the next transaction begins.
	prevID    int64
	prevEpoch int16
	hasPrev   bool
}

// follows tells whether (id, epoch) is whom the present identity follows.
func (x identity) follows(id int64, epoch int16) bool {
	return x.hasPrev && id == x.prevID && epoch == x.prevEpoch
}

// verdict is what EndTxn does.
type verdict uint8

const (
	refuse  verdict = iota // answer the code
	begin                  // end the ongoing transaction
	bump                   // abort of an empty transaction: the epoch moves
	already                // a retry: success with the present id and epoch
)

// decideEnd is EndTxn v5 (KIP-890). While markers are written Kafka 4.4.0
// answers CONCURRENT_TRANSACTIONS to whatever epoch and result is asked.
func decideEnd(x identity, id int64, epoch int16, commit bool) (verdict, int16) {
	retry := x.follows(id, epoch)
	switch {
	case x.status.preparing():
		return refuse, codeConcurrentTransactions
	case retry && x.status == Empty: // InitProducerId came in between
		return refuse, codeProducerFenced
	case retry && commit == (x.status == CompleteCommit):
		return already, codeNone
	case retry:
		return refuse, codeInvalidTxnState
	case id != x.id:
		return refuse, codeInvalidProducerIDMapping
	case epoch != x.epoch:
		return refuse, codeProducerFenced
	case x.status == Ongoing:
		return begin, codeNone
	case commit:
		return refuse, codeInvalidTxnState
	}
	return bump, codeNone
}

// decideAdd says whether a request of (id, epoch) may become part of the
// transaction, or begin it.
func decideAdd(x identity, id int64, epoch int16) int16 {
	switch {
	case x.status.preparing():
		return codeConcurrentTransactions
	case id != x.id:
		return codeInvalidProducerIDMapping
	case epoch != x.epoch:
		return codeProducerFenced
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

// decideInit: id -1 means that the client claims none. An ongoing transaction
// is aborted for a claim of any epoch, as Kafka does: the epoch is looked at
// when the client comes again.
func decideInit(x identity, id int64, epoch int16) (initVerdict, int16) {
	claimed := id >= 0
	switch {
	case x.status.preparing():
		return initRefuse, codeConcurrentTransactions
	case !claimed && x.status != Ongoing, x.epoch < 0:
		return initBump, codeNone
	case claimed && id != x.id && !x.follows(id, epoch):
		return initRefuse, codeProducerFenced
	case x.status == Ongoing:
		return initFence, codeConcurrentTransactions
	case x.follows(id, epoch):
		return initRepeat, codeNone
	case epoch != x.epoch:
		return initRefuse, codeProducerFenced
	}
	return initBump, codeNone
}
