package share

import (
	"context"
	"encoding/base64"
	"fmt"
	"unicode/utf16"

	"github.com/sharetxn/sharetxn/internal/wire"
)

// Stage answers TxnShareAcknowledge, in the draft's order of checks: feature
// level, form, topics, member, registration with the transaction, and then each
// partition by itself. Its own check of batch order is stricter than the
// draft's, which takes overlapping ranges.
func (e *Engine) Stage(ctx context.Context, c Conn, req *wire.Request) *wire.Response {
	resp := req.ResponseKind().(*wire.Response)
	fail := func(code int16) *wire.Response { resp.ErrorCode = code; return resp }
	switch {
	case !e.cfg.Staging:
		return fail(codeUnsupportedVersion)
	case req.TransactionalID == nil || *req.TransactionalID == "" || req.GroupID == "" || !checkMember(req.MemberID):
		return fail(codeInvalidRequest)
	}
	var statePartitions []int32
	places := make(map[topicPart]placed)
	for _, t := range req.Topics {
		rt := wire.ResponseTopic{TopicID: t.TopicID}
		for _, p := range t.Partitions {
			at := e.place(c.Node, topicPart{t.TopicID, p.Partition})
			places[at.topicPart] = at
			rt.Partitions = append(rt.Partitions, wire.ResponsePartition{Partition: p.Partition, ErrorCode: at.code})
			if at.code == codeNone || at.code == codeNotLeaderOrFollower {
				statePartitions = append(statePartitions, e.statePartition(req.GroupID, at.topicPart))
			}
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if len(statePartitions) == 0 {
		return resp
	}
	e.mu.Lock()
	code := e.checkStager(req.GroupID, req.MemberID, req.MemberEpoch)
	e.mu.Unlock()
	if code == codeNone {
		code = e.cfg.Txns.AddShareState(ctx, *req.TransactionalID, req.ProducerID, req.ProducerEpoch, statePartitions)
	}
	if code != codeNone {
		resp.Topics = nil
		return fail(code)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if req.ProducerEpoch < e.decided[req.ProducerID] {
		// The transaction ended after it was registered: no marker would come.
		resp.Topics = nil
		return fail(codeInvalidProducerEpoch)
	}
	for i, t := range req.Topics {
		for j, p := range t.Partitions {
			out := &resp.Topics[i].Partitions[j]
			if out.ErrorCode != codeNone {
				continue
			}
			sp := e.partition(partKey{req.GroupID, t.TopicID, p.Partition})
			switch {
			case sp == nil:
				out.ErrorCode = codeNotLeaderOrFollower
			case checkBatches(p.Batches, false) != codeNone:
				out.ErrorCode = codeInvalidRequest
			default:
				out.ErrorCode = sp.stage(req.MemberID, req.ProducerID, req.ProducerEpoch, p.Batches)
			}
		}
	}
	return resp
}

// statePartition is where the state of a share partition would be kept:
// Kafka's hash of "group:topicId:partition".
func (e *Engine) statePartition(group string, tp topicPart) int32 {
	key := fmt.Sprintf("%s:%s:%d", group, base64.RawURLEncoding.EncodeToString(tp.topic[:]), tp.part)
	h := int32(0)
	for _, u := range utf16.Encode([]rune(key)) { // Java's String.hashCode
		h = 31*h + int32(u)
	}
	return (h & 0x7fffffff) % e.cfg.StatePartitions
}
