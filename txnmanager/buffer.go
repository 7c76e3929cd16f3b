package txnmanager

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
)

// buffer are the acknowledgements of a transaction before they are staged,
// merged per member into the fewest ranges. The zero buffer is ready.
type buffer struct {
	members   []*buffered
	lockUntil time.Time // earliest; zero if there are none
	plain     int       // offsets that are not to be staged
}

// buffered is one member's part.
type buffered struct {
	member groupmeta.ShareGroupMetadata // as it was last given: the epoch may have moved
	set    acks.Set
}

// transactional makes a Set of batches that may be staged.
func transactional(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch) (*acks.Set, error) {
	set := &acks.Set{}
	for tp, bs := range batches {
		if err := acks.ValidateTransactional(tp, bs); err != nil {
			return nil, err
		}
		if err := set.AddBatches(tp, bs); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// add is all or nothing.
func (b *buffer) add(a Acknowledged, set *acks.Set) error {
	switch {
	case set.Len() == 0:
		return nil
	case a.Plain:
		b.plain += set.Len()
		b.until(a.LockUntil)
		return nil
	}
	member := a.Member
	part := b.of(member)
	if err := part.set.Merge(set); err != nil {
		return err
	}
	if member.MemberEpoch() > part.member.MemberEpoch() {
		part.member = member
	}
	b.until(a.LockUntil)
	return nil
}

func (b *buffer) until(lock time.Time) {
	if b.lockUntil.IsZero() || lock.Before(b.lockUntil) {
		b.lockUntil = lock
	}
}

func (b *buffer) of(member groupmeta.ShareGroupMetadata) *buffered {
	for _, p := range b.members {
		if p.member.GroupID() == member.GroupID() && p.member.MemberID() == member.MemberID() {
			return p
		}
	}
	p := &buffered{member: member}
	b.members = append(b.members, p)
	return p
}

// empty tells whether there is nothing to stage.
func (b *buffer) empty() bool { return len(b.members) == 0 }

// offsets is how many there are, those included that are not staged.
func (b *buffer) offsets() (n int) {
	n = b.plain
	for _, p := range b.members {
		n += p.set.Len()
	}
	return n
}
