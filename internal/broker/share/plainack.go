package share

import (
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ackAsk is one partition's acknowledgements in a request.
type ackAsk struct {
	tp      topicPart
	batches []acks.AcknowledgementBatch
}

// ackResult is the answer to an ackAsk.
type ackResult struct {
	placed
	code int16
}

func fromWire(first, last int64, types []int8) acks.AcknowledgementBatch {
	b := acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: make([]acks.Type, len(types))}
	for i, t := range types {
		b.Types[i] = acks.Type(t)
	}
	return b
}

// acknowledge answers ShareAcknowledge (KIP-932).
func (e *Engine) acknowledge(c Conn, req *kmsg.ShareAcknowledgeRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	fail := func(code int16) kmsg.Response { resp.ErrorCode = code; return resp }
	switch {
	case req.GroupID == nil || *req.GroupID == "" || req.MemberID == nil || !checkMember(*req.MemberID):
		return fail(codeInvalidRequest)
	case req.ShareSessionEpoch == 0: // only a fetch opens a session
		return fail(codeInvalidShareSessionEpoch)
	}
	key := sessionKey{*req.GroupID, *req.MemberID, c.Node}
	e.mu.Lock()
	_, code := e.enter(key, req.ShareSessionEpoch)
	e.mu.Unlock()
	if code != codeNone {
		return fail(code)
	}
	var asks []ackAsk
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			a := ackAsk{tp: topicPart{t.TopicID, p.Partition}}
			for _, b := range p.AcknowledgementBatches {
				a.batches = append(a.batches, fromWire(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
			asks = append(asks, a)
		}
	}
	results := e.applyAcks(c, key, asks, req.IsRenewAck)
	if req.ShareSessionEpoch == finalEpoch {
		e.endSession(key)
	}
	resp.AcquisitionLockTimeoutMillis = e.lockMillis(key.group)
	for _, t := range req.Topics {
		rt := kmsg.NewShareAcknowledgeResponseTopic()
		rt.TopicID = t.TopicID
		for _, p := range t.Partitions {
			r := results[0]
			results = results[1:]
			if len(p.AcknowledgementBatches) == 0 && r.code == codeNone {
				continue // nothing was asked: Kafka does not name it
			}
			out := kmsg.NewShareAcknowledgeResponseTopicPartition()
			out.Partition, out.ErrorCode = r.part, r.code
			rt.Partitions = append(rt.Partitions, out)
		}
		if len(rt.Partitions) > 0 {
			resp.Topics = append(resp.Topics, rt)
		}
	}
	return resp
}

// applyAcks applies acknowledgements partition by partition, in order: each
// partition is all or nothing and none depends on another. There is one result
// for each ask.
func (e *Engine) applyAcks(c Conn, key sessionKey, asks []ackAsk, renew bool) []ackResult {
	out := make([]ackResult, 0, len(asks))
	for _, a := range asks {
		r := ackResult{placed: e.place(c.Node, a.tp)}
		switch r.code = r.placed.code; r.code {
		case codeNotLeaderOrFollower:
			// A broker that does not lead has no such share partition loaded; of
			// leaders only fetches are told (measured).
			r.code, r.leader, r.epoch = codeUnknownTopicOrPartition, -1, -1
			fallthrough
		case codeNone:
			if code := checkBatches(a.batches, renew); code != codeNone {
				r.code = code
			}
		}
		if r.code == codeNone && len(a.batches) > 0 {
			r.code = e.applyTo(key, a)
		}
		out = append(out, r)
	}
	return out
}

func (e *Engine) applyTo(key sessionKey, a ackAsk) int16 {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partition(partKey{key.group, a.tp.topic, a.tp.part})
	if p == nil {
		return codeUnknownTopicOrPartition
	}
	cfg := e.group(key.group).config
	rule := ackRule{renew: cfg.renew, deadline: time.Now().Add(cfg.lock)}
	before, could := p.next()
	code := p.acknowledge(key.member, a.batches, rule)
	if code != codeNone {
		return code
	}
	e.arm(rule.deadline) // a renewed lock may be the first to end, where locks were made shorter
	if after, can := p.next(); can && (after != before || !could) {
		e.broadcast()
	}
	return codeNone
}

// lockMillis is what answers say of the acquisition lock.
func (e *Engine) lockMillis(group string) int32 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int32(e.group(group).config.lock.Milliseconds())
}
