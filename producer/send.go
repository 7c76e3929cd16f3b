package producer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/txnmanager"
)

// SendOpt is an option of SendShareAcknowledgementsToTransaction.
type SendOpt interface{ applySend(*sendConfig) }

type sendConfig struct{ lockUntil time.Time }

type sendFunc func(*sendConfig)

func (f sendFunc) applySend(c *sendConfig) { f(c) }

// LockUntil is when the earliest acquisition lock among the records ends. It is
// needed for a member of another process and not looked at for one of this
// process, whose consumer knows.
func LockUntil(deadline time.Time) SendOpt {
	return sendFunc(func(c *sendConfig) { c.lockUntil = deadline })
}

const sendOp = "SendShareAcknowledgementsToTransaction"

// SendShareAcknowledgementsToTransaction is the KIP's form. Records of a
// consumer of the same Cluster are checked against what it holds (ErrStale for
// what it does not, or what is in a transaction already) and are bound like a
// batch at Begin. For a member of another process LockUntil is required. It
// buffers: the brokers see it at Commit. All or nothing. Errors, of class usage,
// ErrStale or *UnsupportedError, make the transaction abort-only, except
// ErrTxnEnded: who passes over one must not commit outputs without their
// acknowledgements.
func (t *Txn) SendShareAcknowledgementsToTransaction(ctx context.Context,
	batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch,
	member groupmeta.ShareGroupMetadata, opts ...SendOpt,
) error {
	ctx, leave, err := t.enter(ctx, sendOp)
	if err != nil {
		return err
	}
	defer leave()
	if err := t.send(ctx, batches, member, opts); err != nil {
		return t.tx.FailWith(err)
	}
	return nil
}

func (t *Txn) send(ctx context.Context, batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch, member groupmeta.ShareGroupMetadata, opts []SendOpt) error {
	if err := t.checkSend(batches, member); err != nil {
		return err
	}
	if err := t.tx.Err(); err != nil {
		return err
	}
	if len(batches) == 0 {
		return nil
	}
	if err := t.lane.m.ProveStaging(ctx); err != nil {
		return err
	}
	if owner, ok := t.p.core.Owner(member.GroupID(), member.MemberID()); ok {
		h, err := owner.Claim(batches)
		if err != nil {
			return err
		}
		t.bind(h)
		return nil
	}
	var cfg sendConfig
	for _, o := range opts {
		o.applySend(&cfg)
	}
	if cfg.lockUntil.IsZero() {
		return usage(sendOp, t.lane.id, "LockUntil: needed for a member that is no consumer of this cluster handle: %v", member)
	}
	return t.tx.Stage(txnmanager.Acknowledged{Member: member, LockUntil: cfg.lockUntil, Batches: batches})
}

func (t *Txn) checkSend(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch, member groupmeta.ShareGroupMetadata) error {
	if t.p.plain {
		return usage(sendOp, t.lane.id, "the producer stages nothing (AckAfterCommit); give the batch to Begin")
	}
	if member.IsZero() {
		return usage(sendOp, t.lane.id, "member: no member; the consumer has not joined its group")
	}
	for tp, bs := range batches {
		if err := acks.ValidateTransactional(tp, bs); err != nil {
			return &sharetxn.Error{Op: sendOp, Class: sharetxn.ClassUsage, TransactionalID: t.lane.id, Group: member.GroupID(), Err: err}
		}
	}
	return nil
}
