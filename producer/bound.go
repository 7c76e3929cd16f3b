package producer

import (
	"context"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/txnmanager"
)

// bound is a handle that the transaction holds.
type bound struct {
	handle bind.Handle
	member groupmeta.ShareGroupMetadata // who staged for it; zero until then
}

// bind is called within a call that the end waits for.
func (t *Txn) bind(h bind.Handle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bound = append(t.bound, &bound{handle: h})
}

// held gives what is bound; after close and expel nothing is added.
func (t *Txn) held() []*bound {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bound
}

// collect takes the verdicts, when the outputs are delivered: until then the
// batches are renewed.
func (t *Txn) collect(ctx context.Context) ([]txnmanager.Acknowledged, error) {
	t.p.core.Step("produced")
	var all []txnmanager.Acknowledged
	for _, b := range t.held() {
		f, err := b.handle.Freeze(ctx)
		if err != nil {
			return nil, err
		}
		b.member = f.Member
		if f.Records > 0 {
			all = append(all, txnmanager.Acknowledged{Member: f.Member, LockUntil: f.LockUntil, Batches: f.Batches, Plain: t.p.plain})
		}
	}
	t.p.core.Step("frozen")
	return all, nil
}

// lateVerdicts is asked right before EndTxn(commit).
func (t *Txn) lateVerdicts() error {
	for _, b := range t.held() {
		if err := b.handle.Check(); err != nil {
			return err
		}
	}
	return nil
}

// settled tells the bound batches how the transaction ended, and whoever waits. A
// commit of which the batches are to be acknowledged plainly is told them only when
// it has landed: an acknowledgement is final, and until then another transaction of
// the id could undo what the outputs' partitions have not heard of. Meanwhile their
// locks are kept, lest others get the records for nothing.
func (t *Txn) settled(e txnmanager.Ended) {
	t.p.core.Step("ended")
	if t.p.plain && e.Outcome == sharetxn.Committed {
		for _, b := range t.held() {
			b.handle.Keep()
		}
	} else {
		t.settleBound(bind.Settlement{Outcome: uint8(e.Outcome), Plain: t.p.plain}, e)
	}
	if e.Outcome == sharetxn.Committed && e.Sent {
		t.p.alternate(t.lane)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.outcome = e.Outcome
	if !t.told {
		t.told = true
		close(t.done)
	}
}

// landed is told when nothing can undo the commit any more.
func (t *Txn) landed() {
	if t.p.plain {
		t.settleBound(bind.Settlement{Outcome: uint8(sharetxn.Committed), Plain: true}, txnmanager.Ended{})
	}
}

func (t *Txn) settleBound(s bind.Settlement, e txnmanager.Ended) {
	defer t.p.core.Step("settled")
	for _, b := range t.held() {
		if e.Freed != nil {
			s.Freed = func(tp acks.TopicIDPartition) bool { return e.Freed(b.member.GroupID(), b.member.MemberID(), tp) }
		}
		s.Outcast = e.Outcast.MemberID() != "" && e.Outcast == b.member
		b.handle.Settle(s)
	}
}
