// Package processor runs consume-transform-produce over a share group
// (KIP-932): a handler turns each record into outputs, and the outputs and the
// record's acknowledgement commit in one transaction (KIP-1289) or not at all.
//
// A record moves one way: poll, handle, bind, stage, end, settle. The handler
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
