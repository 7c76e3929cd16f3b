package txnmanager

import (
	"context"
	"errors"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// FenceOthers does for other transactional ids what Init does for the manager's
// own: it takes each of ids from whoever has it and aborts what that left open.
// Ids that no coordinator knows stay unknown, and ids that access control keeps
// from us are passed over: an earlier life of the same service cannot have used
// them either. Errors as for Init, with the id they are about.
func (m *TransactionManager) FenceOthers(ctx context.Context, ids []string) error {
	bounded, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	if err := m.takeTurn(bounded); err != nil {
		return m.failure("Init", sharetxn.ClassAbortable, err)
	}
	defer m.endTurn()
	known, err := m.known(bounded, ids)
	if err != nil {
		return m.failure("DescribeTransactions", sharetxn.ClassOf(err), err)
	}
	for _, id := range known {
		c := &coordinator{client: m.client, id: id, node: -1}
		_, err := m.take(bounded, c, unknownIdentity, nil)
		switch {
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			continue
		case err != nil:
			return err
		}
		m.log.Info("transactional id of an earlier life fenced", "transactional_id", id)
	}
	return nil
}

// known gives those of ids that have a state at their coordinators, in order.
func (m *TransactionManager) known(ctx context.Context, ids []string) (known []string, err error) {
	if len(ids) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	found := make(map[string]bool)
	for _, shard := range m.client.RequestSharded(ctx, req) {
		switch {
		case errors.Is(shard.Err, kerr.TransactionalIDAuthorizationFailed):
			continue
		case shard.Err != nil:
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
			switch err := kerr.ErrorForCode(t.ErrorCode); {
			case err == nil:
				found[t.TransactionalID] = true
			case errors.Is(err, kerr.TransactionalIDNotFound), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			default:
				return nil, err
			}
		}
	}
	for _, id := range ids {
		if found[id] {
			known = append(known, id)
		}
	}
	return known, nil
}
