// Package txnmanager is the engine below package producer: the state machine of
// one transactional id. It stages share acknowledgements (KIP-1289), always
// ends a transaction by its own EndTxn v5 (KIP-890), and reports an outcome
// only where an answer of the coordinator proves it. It is for authors of other
// front ends; its API may change in any minor version.
//
// Tables decide, and nothing else: state.go says what may follow what,
// classify.go what an error code means to which request, judge.go what an
// answer to EndTxn proves.
package txnmanager
