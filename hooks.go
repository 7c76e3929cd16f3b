package sharetxn

import (
	"context"
	"time"
)

// Hook is any value that implements one or more of the Hook* interfaces of
// this package; see WithHooks. Hooks are called synchronously from the
// library's goroutines, also concurrently: they must be quick, safe for
// concurrent use, and must not call back into the library.
type Hook any

// HookTxn sees a transaction from begin to end. OnTxnStart may put a span into
// the context, which is then the context of everything within the transaction,
// the closure of InTransaction included.
type HookTxn interface {
	OnTxnStart(ctx context.Context, e TxnStart) context.Context
	OnTxnEnd(ctx context.Context, e TxnEnd)
}

// TxnStart is the begin of a transaction.
type TxnStart struct {
	TransactionalID string
	Group           string // of the first batch; empty if none is bound at Begin
}

// TxnEnd is the end of a transaction, also of one whose outcome was unknown and
// is settled later: then it is called once for each.
type TxnEnd struct {
	TxnStart
	Outcome    Outcome
	Err        error         // nil if and only if Outcome is Committed
	Records    int           // acknowledgements staged, or to follow the commit where none is staged
	Outputs    int           // records produced
	Flush      time.Duration // waiting for deliveries
	Stage      time.Duration // TxnShareAcknowledge, all leaders
	End        time.Duration // EndTxn, resolution included
	LockMargin time.Duration // left of the earliest acquisition lock when staging began, or would have; 0 without acknowledgements

	// ProducerID and ProducerEpoch are those of its batches and of what it staged, by
	// which it is found in logs; -1 if nothing was sent.
	ProducerID    int64
	ProducerEpoch int16
}

// HookStage sees each TxnShareAcknowledge request.
type HookStage interface {
	OnStage(ctx context.Context, e Stage)
}

// Stage is one TxnShareAcknowledge request and its answer.
type Stage struct {
	TransactionalID string
	Broker          int32
	Ranges, Offsets int
	Attempt         int // from 1
	Took            time.Duration
	Err             error
}

// HookHandled sees each verdict of a Processor, when it is made: whether it also
// holds is told by HookTxn.
type HookHandled interface {
	OnHandled(ctx context.Context, e Handled)
}

// Handled is what became of one record in one call of a handler, or without one.
type Handled struct {
	Group         string
	Topic         string
	Partition     int32
	Offset        int64
	Verdict       string // "accept", "reject", "release" or "fail"
	DeliveryCount int32
	Took          time.Duration // of the call; with a BatchHandler, of all its records
	Err           error         // reason or failure
}

// The hooks below see a share consumer's events. They take no context: what
// they tell of happens in the background, between the caller's calls. Those of
// members, sessions and losses come one at a time and in order for each
// consumer; those of requests come from each broker's goroutine when the answer
// is there.

// HookMember sees a member of a share group come, change and go.
type HookMember interface{ OnMember(e Member) }

// Member is one event of a member's life.
type Member struct {
	Group, MemberID string
	Event           MemberEvent
	Epoch           int32              // the member's epoch; 0 where it is in no group
	Assigned        map[string][]int32 // with MemberAssigned: all of it, partitions by topic; not to be changed
	Err             error              // with MemberFenced and MemberLeft: why; nil after Close
}

// MemberEvent is what happened to a member; its text serves as a label.
type MemberEvent string

const (
	MemberJoined   MemberEvent = "joined"   // it joined, also again
	MemberEpoch    MemberEvent = "epoch"    // its epoch rose
	MemberAssigned MemberEvent = "assigned" // its assignment changed
	MemberFenced   MemberEvent = "fenced"   // the coordinator does not know it any more; it joins again
	MemberLeft     MemberEvent = "left"     // it left: Close, or no Poll for too long
)

// HookSession sees the share session with each broker.
type HookSession interface{ OnSession(e Session) }

// Session is one event of the share session with one broker.
type Session struct {
	Group, MemberID string
	Broker          int32
	Event           SessionEvent
	Err             error // with SessionLost: why
}

// SessionEvent is what happened to a session; its text serves as a label.
type SessionEvent string

const (
	SessionOpened SessionEvent = "opened"
	SessionClosed SessionEvent = "closed" // by the member: what it had acquired there and not decided is released
	SessionLost   SessionEvent = "lost"   // what it had acquired there is not its own any more
)

// HookFetch sees each ShareFetch request when it is answered, or known not to
// be.
type HookFetch interface{ OnFetch(e Fetch) }

// Fetch is one ShareFetch request and its answer. The acknowledgements that
// rode on it are told by HookAcknowledge.
type Fetch struct {
	Group, MemberID string
	Broker          int32
	Took            time.Duration // what the broker waited for records included
	Ranges          int           // acquired
	Records         int           // offsets acquired, those that hold no record included
	Bytes           int           // of the logs as sent, which may hold others' records too
	Err             error         // of the request, or joined from its partitions
}

// HookAcknowledge sees each request that carries acknowledgements, when it is
// answered, or known not to be: ShareAcknowledge, and a ShareFetch on which they
// ride. What a transaction stages is told by HookStage.
type HookAcknowledge interface{ OnAcknowledge(e Acknowledge) }

// HookRenew sees each request that renews acquisition locks (KIP-1222).
type HookRenew interface{ OnRenew(e Acknowledge) }

// Acknowledge is one request's acknowledgements and what became of them.
type Acknowledge struct {
	Group, MemberID string
	Broker          int32
	Riding          bool // on a ShareFetch
	Attempt         int  // from 1; later ones send again, apart, what was refused together
	Took            time.Duration
	Partitions      []Acknowledged
	Err             error // of the request as a whole; its class is unknown if an answer is missing
}

// Acknowledged is one partition's part of a request.
type Acknowledged struct {
	Topic           string
	Partition       int32
	Ranges, Offsets int
	Err             error // nil: the broker took them
}

// HookLost sees records that went without a verdict.
type HookLost interface{ OnLost(e Lost) }

// Lost is a number of records that this member had acquired and does not hold
// any more, though nobody has decided them: some member will get them again, as
// far as the group's delivery limit allows.
type Lost struct {
	Group, MemberID string
	Records         int
	Unpolled        bool  // no Poll had given them out
	Released        bool  // the member gave them back itself
	Err             error // why
}

// HookLedger sees the commit ledger of a group at work (guarantee Ledger): what
// was found in it, and what that kept from being done twice. It is called from
// the goroutine that tails the ledger and from those of the members.
type HookLedger interface{ OnLedger(e LedgerEvent) }

// LedgerEvent is one event of a commit ledger. What a field means depends on
// Event; one that has no meaning there is zero.
type LedgerEvent struct {
	Group     string
	Event     LedgerKind
	Topic     string // the source topic
	Partition int32  // of it, and of the ledger
	Records   int64
	Verdict   string        // with LedgerConflict: "done", "open", "below" or "unsure"
	Took      time.Duration // of loading, waiting, checking or truncating
	Err       error
}

// LedgerKind is what happened; its text serves as a label.
type LedgerKind string

const (
	LedgerLoaded    LedgerKind = "loaded"    // all of it was read; Records are entries
	LedgerDone      LedgerKind = "done"      // Records were committed by an earlier transaction: they are accepted and not handled
	LedgerWait      LedgerKind = "wait"      // Records are in a transaction that is not decided: they wait for it, under their locks
	LedgerBelow     LedgerKind = "below"     // Records lie below the start of the share partition: they were done before, and are dropped
	LedgerConflict  LedgerKind = "conflict"  // a commit was refused because of Records with Verdict; they are looked at again, under their locks
	LedgerGap       LedgerKind = "gap"       // the tail lost continuity: what lay between is not known
	LedgerTruncated LedgerKind = "truncated" // Records offsets of the partition were deleted
	LedgerEnded     LedgerKind = "ended"     // it cannot be used any more; Err says why
)

// HookMisuse sees what could not be returned as an error: a batch dropped with
// verdicts that no transaction took, a verdict that came too late, a handle
// that was never ended.
type HookMisuse interface{ OnMisuse(e Misuse) }

// Misuse says what was wrong and where: topic, partition, offset or id.
type Misuse struct{ What, Where string }

// implementsHook tells whether h implements any Hook* interface.
func implementsHook(h Hook) bool {
	switch h.(type) {
	case HookTxn, HookStage, HookHandled, HookMisuse,
		HookMember, HookSession, HookFetch, HookAcknowledge, HookRenew, HookLost, HookLedger:
		return true
	}
	return false
}
