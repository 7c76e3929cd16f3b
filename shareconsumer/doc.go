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
//
// A member joins at the first Poll and stays until Close, unless MaxPollInterval
// lets it leave when nobody polls. It gets what the group's coordinator assigns
// to it of its Topics, which SetTopics replaces at run time; Pause and Resume stop
// and go on fetching from parts of that. What happens to the member, to its
// session with each broker, to each fetch and acknowledgement, and to records
// that go without a verdict is told to the hooks of package sharetxn: HookMember,
// HookSession, HookFetch, HookAcknowledge, HookRenew, HookLost.
package shareconsumer
