package txnmanager

// rpc is a request whose error codes have a meaning of their own. Commit and
// abort are both EndTxn, but 48 or 120 say opposite things about them.
type rpc uint8

const (
	rpcFindCoordinator rpc = iota
	rpcInit                // InitProducerId
	rpcProduce             // as it ends for a record, after kgo's own retries
	rpcStage               // TxnShareAcknowledge, code of the whole answer
	rpcStagePartition      // TxnShareAcknowledge, code of one partition
	rpcCommit              // EndTxn v5, commit
	rpcAbort               // EndTxn v5, abort
	rpcAdd                 // AddPartitionsToTxn, which only the repair of lost markers sends
	rpcDescribe            // DescribeTransactions, before an id is taken

	rpcs
)

func (r rpc) String() string {
	return [rpcs]string{"FindCoordinator", "InitProducerId", "Produce", "TxnShareAcknowledge", "TxnShareAcknowledge", "EndTxn", "EndTxn", "AddPartitionsToTxn", "DescribeTransactions"}[r]
}

// verdict is what an error code means for what comes next.
type verdict uint8

const (
	vOK           verdict = iota
	vAgain                // not done; the same request once more, after a pause
	vElsewhere            // not done here; look the coordinator up, then the same request
	vMoved                // the partition has another leader
	vAbort                // the transaction can only abort; the producer lives on
	vNotCommitted         // proof that the commit was not done and will not be
	vCommitted            // of an abort: proof that the transaction is committed
	vFenced               // the coordinator knows a newer producer
	vRefused              // by configuration or access: fatal
	vUnsupported          // the broker does not speak it: fatal
	vUnclear              // tells nothing about what was done: the same request again

	verdicts
)

func (v verdict) String() string {
	return [verdicts]string{"ok", "again", "elsewhere", "moved", "abort", "not committed", "committed", "fenced", "refused", "unsupported", "unclear"}[v]
}

// codes is one request's row of the table; what it does not list is otherwise.
type codes struct {
	listed    map[int16]verdict
	otherwise verdict
}

// meaning is the table of error codes. Its source is the project's reference on
// KIP-890 and KIP-1289; classify_test.go has a row for each of its lines.
var meaning = [rpcs]codes{
	rpcFindCoordinator: {map[int16]verdict{
		0: vOK, 7: vAgain, 13: vAgain, 14: vAgain, 15: vAgain, 16: vAgain,
		30: vAbort, 120: vAbort, 53: vRefused,
	}, vRefused},
	rpcInit: {map[int16]verdict{
		0: vOK, 7: vAgain, 13: vAgain, 14: vAgain, 51: vAgain, 15: vElsewhere, 16: vElsewhere,
		47: vFenced, 49: vFenced, 90: vFenced, 120: vAbort,
		31: vRefused, 35: vRefused, 42: vRefused, 50: vRefused, 53: vRefused,
	}, vRefused},
	// 47 is a leader's word on an old epoch: fenced, or timed out. The abort's
	// answer tells which, as it does for everything else here.
	rpcProduce: {map[int16]verdict{
		0: vOK, 46: vOK,
		31: vRefused, 43: vRefused, 53: vRefused, 49: vFenced, 90: vFenced,
	}, vAbort},
	// An answered error means that nothing was staged. 51 is the normal answer
	// to the first request after an EndTxn, until its markers are written.
	rpcStage: {map[int16]verdict{
		0: vOK, 7: vAgain, 13: vAgain, 14: vAgain, 15: vAgain, 16: vAgain, 19: vAgain, 51: vAgain,
		31: vRefused, 53: vRefused, 35: vUnsupported, 49: vFenced, 90: vFenced, 105: vFenced,
	}, vAbort},
	rpcStagePartition: {map[int16]verdict{
		0: vOK, 7: vAgain, 13: vAgain, 14: vAgain, 15: vAgain, 16: vAgain, 19: vAgain, 51: vAgain,
		6: vMoved, 35: vUnsupported, 49: vFenced, 90: vFenced, 105: vFenced, 53: vRefused,
	}, vAbort},
	// 15 and 16 may follow a decision that is already written; see hidesCommit.
	rpcCommit: {map[int16]verdict{
		0: vOK, 14: vAgain, 51: vAgain, 15: vElsewhere, 16: vElsewhere,
		48: vNotCommitted, 59: vAbort, 120: vAbort,
		47: vFenced, 49: vFenced, 90: vFenced, 105: vFenced, 53: vRefused,
	}, vUnclear},
	// 120 is fatal here, so that aborting cannot go round in circles.
	rpcAbort: {map[int16]verdict{
		0: vOK, 14: vAgain, 51: vAgain, 15: vElsewhere, 16: vElsewhere,
		48: vCommitted, 59: vAbort, 120: vRefused,
		47: vFenced, 49: vFenced, 90: vFenced, 105: vFenced, 53: vRefused,
	}, vUnclear},
	// Partitions that a broker does not know yet, and rights that were taken away,
	// may come: a repair is tried again.
	rpcAdd: {map[int16]verdict{
		0: vOK, 3: vAgain, 14: vAgain, 51: vAgain, 55: vAgain, 15: vElsewhere, 16: vElsewhere,
		47: vFenced, 49: vFenced, 90: vFenced, 29: vRefused, 53: vRefused,
	}, vUnclear},
	// 105 is what a coordinator says of an id that nobody has had.
	rpcDescribe: {map[int16]verdict{
		0: vOK, 105: vOK, 7: vAgain, 13: vAgain, 14: vAgain, 15: vElsewhere, 16: vElsewhere, 53: vRefused,
	}, vRefused},
}

// classify is the table.
func classify(r rpc, code int16) verdict {
	if v, ok := meaning[r].listed[code]; ok {
		return v
	}
	return meaning[r].otherwise
}

// hidesCommit tells whether a commit that was answered with v may be done all
// the same: a coordinator that loses its log or its leadership answers 15 or 16
// after it wrote the decision.
func hidesCommit(v verdict) bool { return v == vElsewhere || v == vUnclear }
