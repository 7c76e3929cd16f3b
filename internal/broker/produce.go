package broker

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// where a record batch has its producer id and epoch
const (
	batchProducerID    = 43
	batchProducerEpoch = 51
	batchMin           = 61
)

// produce registers the partitions of a transactional produce with the
// coordinator, as a partition leader does (KIP-890), and forwards.
func (c *Cluster) produce(ctx context.Context, conn *front.Conn, q frame.Request, reply func(kmsg.Response) ([]byte, error)) ([]byte, error) {
	m, err := q.Message(wire.None)
	if err != nil {
		return nil, err
	}
	req := m.(*kmsg.ProduceRequest)
	if req.TransactionID != nil {
		done, code := c.register(ctx, conn.Node, req)
		defer done()
		switch {
		case code != 0 && req.Acks == 0:
			return nil, fmt.Errorf("produce refused with code %d", code) // no answer could tell
		case code != 0:
			return reply(refuseProduce(req, code))
		}
	}
	out, err := conn.Forward(q.Raw, req.Acks != 0)
	c.engine.Appended()
	return out, err
}

// register names the partitions that this node leads: kfake refuses the others.
// done is never nil.
func (c *Cluster) register(ctx context.Context, node int32, req *kmsg.ProduceRequest) (done func(), code int16) {
	var parts []txn.Partition
	id, epoch := int64(-1), int16(-1)
	for _, t := range req.Topics {
		name := t.Topic
		if req.Version >= 13 {
			info := c.kf.TopicIDInfo(t.TopicID)
			if info == nil {
				continue // kfake says what is wrong with it
			}
			name = info.Topic
		}
		for _, p := range t.Partitions {
			if len(p.Records) < batchMin || c.kf.LeaderFor(name, p.Partition) != node {
				continue
			}
			id = int64(binary.BigEndian.Uint64(p.Records[batchProducerID:]))
			epoch = int16(binary.BigEndian.Uint16(p.Records[batchProducerEpoch:]))
			parts = append(parts, txn.Partition{Topic: name, Partition: p.Partition})
		}
	}
	nothing := func() {}
	if len(parts) == 0 {
		return nothing, 0
	}
	if done, code = c.txns.Produce(ctx, *req.TransactionID, id, epoch, parts); code != 0 {
		done = nothing
	}
	return done, code
}

func refuseProduce(req *kmsg.ProduceRequest, code int16) *kmsg.ProduceResponse {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range req.Topics {
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.ErrorCode, sp.BaseOffset = p.Partition, code, -1
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}
