// Package check judges a history: what brokers, members, producers and readers
// did and saw while a share group was at work, and what lies in the cluster when
// all is over. It finds each record that was lost, published twice or reported
// wrongly, and names the record, the transactions and the rule. It knows nothing
// of this module's clients, nor of any other, and is pure: [Judge] reads no clock
// and does no I/O.
//
// Histories come from an embedded cluster
// ([github.com/sharetxn/sharetxn/sharetxntest.Cluster.History]), or from a test of
// one's own that writes down what it sees, also on real Kafka; a [Recorder] keeps
// the order. As a file a history is JSON lines, one event a line:
//
//	{"event":"history","version":1,"group":"g","guarantee":"staged","observed":true,"outputs":["out"]}
//	{"event":"delivered","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"acquired","member":"m"}
//	{"event":"produced","topic":"out","partition":0,"first":0,"last":0,"producer":7,"epoch":0}
//	{"event":"staged","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"staged","producer":7,"epoch":0,"verdict":"accept"}
//	{"event":"ended","id":"p","producer":7,"epoch":0,"commit":true,"byProducer":true}
//	{"event":"resolved","topic":"in","partition":0,"first":0,"last":0,"count":1,"to":"acknowledged","producer":7,"epoch":0}
//	{"event":"source","topic":"in","partition":0,"first":0,"last":0}
//	{"event":"visible","topic":"out","partition":0,"first":0,"last":0,"txn":{"producer":7,"epoch":0}}
//	{"event":"share","topic":"in","partition":0,"start":1,"end":1,"acquired":0,"staged":0}
//	{"event":"log","topic":"out","partition":0,"start":0,"stable":2,"end":2}
//
// Each line may have a "time" (RFC 3339). An event's name is its type's in lower
// case, its fields are the type's; the first line is the [Header].
//
// # Rules
//
//   - I1: source records with visible output are those acknowledged, each once; all
//     of a record's outputs are visible, or none.
//   - I2: rejected records are those in the dead letter topics, once each.
//   - I3: at rest nothing is left, acquired or staged, and every last stable offset
//     is the high watermark.
//   - I4: what was reported Committed is visible and acknowledged, Aborted never
//     visible, and Unknown becomes one of them.
//   - I5: no transaction commits for a producer that had been fenced.
//   - I6: of two that held a record at the same time not both publish it.
//   - I7: a delivery counts one more than the one before, and no record is archived
//     because its deliveries are used up.
//   - I8: a read_committed reader, also during faults, sees whole transactions, and
//     all that it saw stays.
//   - I9: after the last fault all is done in the bound.
//
// When the group is reset (event "reset"), all this begins anew for the records
// from there on: each is to be done once more, and no transaction of before may
// commit any more. What lies below need not be done. A reset to offset -1 leaves
// it to the group's policy where that is, which event "started" tells; until then
// what is due stays as it was:
//
//	{"event":"reset","topic":"in","partition":0,"offset":-1}
//	{"event":"started","topic":"in","partition":0,"offset":0}
//
// A rule can only be held against what a history tells: [Report.Unjudged] says
// which ones it could not be, and why. With guarantee AckAfterCommit duplicates
// are conceded, with profile KIP93 those that its text concedes: they are in the
// report, marked so.
package check
