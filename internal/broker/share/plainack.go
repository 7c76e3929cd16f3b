package share

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// acknowledge answers ShareAcknowledge (KIP-932).
func (e *Engine) acknowledge(_ context.Context, c Conn, req *kmsg.ShareAcknowledgeRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	fail := func(code int16) kmsg.Response { resp.ErrorCode = code; return resp }
	switch {
	case req.GroupID == nil || *req.GroupID == "" || req.MemberID == nil || !checkMember(*req.MemberID):
		return fail(codeInvalidRequest)
	case req.ShareSessionEpoch == 0:
		return fail(codeInvalidShareSessionEpoch)
	}
	key := sessionKey{*req.GroupID, *req.MemberID, c.Node}
	e.mu.Lock()
	_, code := e.enter(key, req.ShareSessionEpoch)
	resp.AcquisitionLockTimeoutMillis = int32(e.group(key.group).config.lock.Milliseconds())
	e.mu.Unlock()
	if code != codeNone {
		return fail(code)
	}
	batches := make(map[topicPart][]acks.AcknowledgementBatch)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := topicPart{t.TopicID, p.Partition}
			batches[tp] = []acks.AcknowledgementBatch{}
			for _, b := range p.AcknowledgementBatches {
				batches[tp] = append(batches[tp], fromWire(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
		}
	}
	results := e.applyAcks(c, key, batches, req.IsRenewAck)
	if req.ShareSessionEpoch == finalEpoch {
		leads := e.leads(c.Node)
		e.mu.Lock()
		e.closeSession(key, leads)
		e.mu.Unlock()
	}
	byPart := make(map[topicPart]int16, len(results))
	for _, r := range results {
		byPart[r.tp] = r.code
	}
	hinted := make(map[int32]bool)
	for _, t := range req.Topics {
		rt := kmsg.NewShareAcknowledgeResponseTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			out := kmsg.NewShareAcknowledgeResponseTopicPartition()
			out.Partition, out.ErrorCode = p.Partition, byPart[topicPart{t.TopicID, p.Partition}]
			if out.ErrorCode == codeNotLeaderOrFollower {
				at := e.place(c.Node, topicPart{t.TopicID, p.Partition})
				out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = at.leader, at.epoch
				if ep, ok := e.endpoint(at.leader); ok && !hinted[at.leader] {
					hinted[at.leader] = true
					n := kmsg.NewShareAcknowledgeResponseNodeEndpoint()
					n.NodeID, n.Host, n.Port, n.Rack = ep.NodeID, ep.Host, ep.Port, ep.Rack
					resp.NodeEndpoints = append(resp.NodeEndpoints, n)
				}
			}
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// applyAcks applies acknowledgements partition by partition: each is all or
// nothing and none depends on another.
func (e *Engine) applyAcks(c Conn, key sessionKey, batches map[topicPart][]acks.AcknowledgementBatch, renew bool) []ackResult {
	var out []ackResult
	for tp, bs := range batches {
		code := checkBatches(bs, renew)
		if at := e.place(c.Node, tp); at.code != codeNone {
			code = at.code
		}
		if code == codeNone && len(bs) > 0 {
			code = e.applyTo(key, tp, bs)
		}
		out = append(out, ackResult{tp, code})
	}
	return out
}

func (e *Engine) applyTo(key sessionKey, tp topicPart, bs []acks.AcknowledgementBatch) int16 {
	e.mu.Lock()
	defer e.mu.Unlock()
	k := partKey{key.group, tp.topic, tp.part}
	p := e.partition(k)
	if p == nil {
		return codeUnknownTopicOrPartition
	}
	cfg := e.group(key.group).config
	code := p.acknowledge(key.member, bs, ackRule{renew: cfg.renew, deadline: time.Now().Add(cfg.lock)})
	if code == codeNone {
		e.broadcast()
	}
	return code
}
