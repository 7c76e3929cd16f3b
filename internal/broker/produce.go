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

// where a record batch has what is read here
const (
	batchAttributes    = 21
	batchLastDelta     = 23
	batchProducerID    = 43
	batchProducerEpoch = 51
	batchMin           = 61
)

// batchTo is one partition's batch in a produce request.
type batchTo struct {
	to     txn.Partition
	writer txn.Key
	last   int64  // offset of its last record, from its first
	raw    []byte // as it came
}

// produce registers the partitions of a transactional produce with the
// coordinator, as a partition leader does (KIP-890), and forwards.
func (c *Cluster) produce(ctx context.Context, conn *front.Conn, q frame.Request, reply func(kmsg.Response) ([]byte, error)) ([]byte, error) {
	m, err := q.Message(wire.None)
	if err != nil {
		return nil, err
	}
	req := m.(*kmsg.ProduceRequest)
	var writes []batchTo
	if req.TransactionID != nil {
		writes = c.writes(conn.Node, req)
		done, code := c.register(ctx, *req.TransactionID, writes)
		defer done()
		switch {
		case code != 0 && req.Acks == 0:
			return nil, fmt.Errorf("produce refused with code %d", code) // no answer could tell
		case code != 0:
			return reply(refuseProduce(req, code))
		}
	}
	if err := c.durable(); err != nil { // a log must not have what the coordinator forgets
		return nil, err
	}
	out, err := conn.Forward(q.Raw, req.Acks != 0)
	if c.history != nil && err == nil && len(writes) > 0 {
		err = c.produced(req, writes, out)
	}
	c.engine.Appended()
	return out, err
}

// writes are the batches of a request that go to partitions which this node
// leads: kfake refuses the others.
func (c *Cluster) writes(node int32, req *kmsg.ProduceRequest) (out []batchTo) {
	for _, t := range req.Topics {
		name := c.producedTo(t.Topic, t.TopicID)
		for _, p := range t.Partitions {
			if len(p.Records) < batchMin || c.kf.LeaderFor(name, p.Partition) != node {
				continue
			}
			out = append(out, batchTo{
				to: txn.Partition{Topic: name, Partition: p.Partition},
				writer: txn.Key{
					ProducerID:    int64(binary.BigEndian.Uint64(p.Records[batchProducerID:])),
					ProducerEpoch: int16(binary.BigEndian.Uint16(p.Records[batchProducerEpoch:])),
				},
				last: int64(int32(binary.BigEndian.Uint32(p.Records[batchLastDelta:]))),
				raw:  p.Records,
			})
		}
	}
	return out
}

// producedTo is the topic's name: newer versions send the id. A topic that does
// not exist has none, and kfake says so.
func (c *Cluster) producedTo(name string, id [16]byte) string {
	if name != "" {
		return name
	}
	return c.TopicName(id)
}

// register makes the batches part of the producer's transaction. done is never
// nil. A leader refuses what its own log knows to be old before it asks the
// coordinator.
func (c *Cluster) register(ctx context.Context, txnID string, writes []batchTo) (done func(), code int16) {
	nothing := func() {}
	if len(writes) == 0 {
		return nothing, 0
	}
	parts := make([]txn.Partition, len(writes))
	for i, w := range writes {
		if c.marked.behind(markedLog{c.TopicID(w.to.Topic), w.to.Partition, w.writer.ProducerID}, w.writer.ProducerEpoch) {
			return nothing, codeInvalidProducerEpoch
		}
		parts[i] = w.to
	}
	writer := writes[len(writes)-1].writer
	if done, code = c.txns.Produce(ctx, txnID, writer.ProducerID, writer.ProducerEpoch, parts); code != 0 {
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
