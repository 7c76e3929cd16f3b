package broker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// keptTxnOffsets are the offsets that kfake accepted in a transaction, as they
// are kept: kfake forgets them with the process.
type keptTxnOffsets struct {
	Key     txn.Key
	Offsets []keptOffset
}

type keptOffset struct {
	Group, Topic string
	Partition    int32
	Offset       int64
	LeaderEpoch  int32
	Metadata     *string `json:",omitempty"`
}

func (k keptTxnOffsets) key() string {
	return fmt.Sprintf("%s%d/%d", keptOffsets, k.Key.ProducerID, k.Key.ProducerEpoch)
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
	return resp, b.keepOffsets(key, req, resp)
}

// keepOffsets adds what kfake accepted to what is kept of the transaction.
func (b backend) keepOffsets(key txn.Key, req *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) error {
	if b.c.data == nil {
		return nil
	}
	refused := make(map[txn.Partition]bool)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			refused[txn.Partition{Topic: b.c.producedTo(t.Topic, t.TopicID), Partition: p.Partition}] = p.ErrorCode != 0
		}
	}
	all := keptTxnOffsets{Key: key}
	if raw, ok := b.c.data.journal.Get(all.key()); ok {
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
	}
	for _, t := range req.Topics {
		name := b.c.producedTo(t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			if !refused[txn.Partition{Topic: name, Partition: p.Partition}] {
				all.Offsets = append(all.Offsets, keptOffset{req.Group, name, p.Partition, p.Offset, p.LeaderEpoch, p.Metadata})
			}
		}
	}
	return b.c.data.put(all.key(), all)
}

// restage has kfake take the offsets of a transaction again, in their order. Who
// sent them was checked then; the member is gone from kfake since.
func (b backend) restage(all keptTxnOffsets) error {
	k, err := b.c.offsets.get(b.c.die, b, all.Key)
	if err != nil {
		return err
	}
	for _, o := range all.Offsets {
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = implicitTxn, k.name, k.id, 0
		req.Group, req.Generation = o.Group, -1
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = o.Topic
		p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = o.Partition, o.Offset, o.LeaderEpoch, o.Metadata
		t.Partitions = append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
		kresp, err := b.c.broker(b.Coordinator(o.Group)).Do(b.c.die, req)
		if err != nil {
			return err
		}
		for _, t := range kresp.(*kmsg.TxnOffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				// A topic that was deleted meanwhile has no offsets to commit.
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
					return err
				}
			}
		}
	}
	return nil
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
	if b.c.data != nil {
		b.c.data.journal.Delete(keptTxnOffsets{Key: key}.key())
	}
	code := kresp.(*kmsg.EndTxnResponse).ErrorCode
	if kerr.ErrorForCode(code) == kerr.InvalidTxnState {
		return nil // kfake refused all of them
	}
	return kerr.ErrorForCode(code)
}
