package broker

import (
	"context"
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stagedOffsets are the group offsets of open transactions. kfake checks
// members and applies offsets only within a transaction of its own, so each of
// ours that has offsets gets one there, which holds nothing else.
type stagedOffsets struct {
	mu sync.Mutex
	m  map[txn.Key]kfakeTxn
}

type kfakeTxn struct {
	name string
	id   int64
}

// get gives the transaction in kfake, beginning it if need be. Requests of one
// transaction come one after the other; where two do meet, the first made wins.
func (s *stagedOffsets) get(ctx context.Context, b backend, key txn.Key) (kfakeTxn, error) {
	s.mu.Lock()
	k, ok := s.m[key]
	s.mu.Unlock()
	if ok {
		return k, nil
	}
	name, id, err := b.freshID(ctx, "offsets")
	if err != nil {
		return kfakeTxn{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.m[key]; ok {
		return k, nil
	}
	s.m[key] = kfakeTxn{name, id}
	return s.m[key], nil
}

func (s *stagedOffsets) take(key txn.Key) (kfakeTxn, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, ok := s.m[key]
	delete(s.m, key)
	return k, ok
}

// implicitTxn is the first TxnOffsetCommit that begins a transaction itself.
const implicitTxn = 5

func (b backend) StageOffsets(ctx context.Context, node int32, key txn.Key, req *kmsg.TxnOffsetCommitRequest) (*kmsg.TxnOffsetCommitResponse, error) {
	k, err := b.c.offsets.get(ctx, b, key)
	if err != nil {
		return nil, err
	}
	inner := *req
	inner.Version = max(req.Version, implicitTxn)
	inner.TransactionalID, inner.ProducerID, inner.ProducerEpoch = k.name, k.id, 0
	kresp, err := b.c.broker(node).Do(ctx, &inner)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.TxnOffsetCommitResponse)
	resp.Version = req.Version
	return resp, nil
}

func (b backend) EndOffsets(ctx context.Context, key txn.Key, commit bool) error {
	k, ok := b.c.offsets.take(key)
	if !ok {
		return nil // nothing was accepted
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.Commit = 4, k.name, k.id, commit
	kresp, err := b.c.broker(b.Coordinator(k.name)).Do(ctx, req)
	if err != nil {
		return err
	}
	code := kresp.(*kmsg.EndTxnResponse).ErrorCode
	if kerr.ErrorForCode(code) == kerr.InvalidTxnState {
		return nil // kfake refused all of them
	}
	return kerr.ErrorForCode(code)
}
