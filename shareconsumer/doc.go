// Package shareconsumer is a share group consumer (KIP-932): a group as a
// queue, whose records are handed out under an acquisition lock and wait for a
// verdict each.
//
// One Consumer is one member. Poll gives a Batch of records that this member
// holds; each gets a verdict (Accept, Reject, Release), and the verdicts leave
// by the consumer's mode: Explicit by Batch.CommitSync or CommitAsync,
// Transactional through a transaction of package producer, Implicit with the
// next Poll. In no mode but Implicit is a record acknowledged that the caller
// did not decide.
package shareconsumer
