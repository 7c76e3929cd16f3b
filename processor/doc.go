// Package processor runs consume-transform-produce over a share group
// (KIP-932): a handler turns each record into outputs, and each record's outputs
// are published once. Either its acknowledgement commits in their transaction
// (guarantee Staged, KIP-1289), or the transaction commits only if no other has
// decided the record, by the group's ledger (guarantee Ledger, Kafka 4.2).
//
// A record moves one way: poll, look (in the ledger), handle, bind, stage or
// check, end, settle. The handler
// runs before anything is sent, so one that fails costs no transaction and
// holds up none of its neighbours. What fails is tried again under the record's
// lock, which is renewed meanwhile, alone; what keeps failing goes to the dead
// letter topic, in a transaction, at the latest on the last delivery that the
// group allows.
//
// # Order
//
// A share group keeps no order, and a Processor adds none: records are handled
// as they come, several at a time if Concurrency or Members say so, and one
// that failed comes later than its neighbours. Within one transaction outputs
// are produced in the order in which their records were decided, and the
// outputs of one record in the order in which the handler gave them.
package processor
