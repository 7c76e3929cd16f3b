package share

import (
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// semantics are the rows of design section 5, as far as the leader of a share
// partition has to do with them. What is not here is the same in both profiles;
// so is the marker: see Engine.Outcome.
type semantics struct {
	abortFrees  bool  // an abort makes records available; else they are their owner's again, under the lock that ran on
	lockRuns    bool  // the lock runs on while a record is staged, and its end undoes the staging
	volatile    bool  // what is staged lives in memory only: a new leader knows nothing of it
	wholeCall   bool  // a call is all or nothing over all its partitions; else over each by itself
	gaps        bool  // GAP may be staged
	badType     int16 // the answer to a type that may not be staged
	perGroup    bool  // a group has one state partition; else each share partition its own
	namesLeader bool  // NOT_LEADER_OR_FOLLOWER says who leads
}

func semanticsOf(p wire.Profile) semantics {
	if p == wire.KIP93 {
		return semantics{
			abortFrees: p.AbortFrees(), lockRuns: true, volatile: true, wholeCall: true,
			badType: codeInvalidRecordState, perGroup: true, namesLeader: true,
		}
	}
	return semantics{abortFrees: p.AbortFrees(), gaps: true, badType: codeInvalidRequest}
}

// target is the state that a staged type becomes on commit; types that may not
// be staged have none. The draft's newest branch also stages gaps.
func (s semantics) target(t acks.Type) (State, bool) {
	switch {
	case t == acks.Accept:
		return Acknowledged, true
	case t == acks.Reject, t == acks.Gap && s.gaps:
		return Archived, true
	}
	return Available, false
}
