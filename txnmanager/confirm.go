package txnmanager

import (
	"context"
	"fmt"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
)

// A broker answers success for what lies below the start of a share partition
// and stages nothing: it takes that for a late repeat of what is done. But a
// member that lost its records without knowing it, by a session that broke
// behind its back or a leader that moved away and back, stages just there once
// another member is through with them, and would publish their outputs a second
// time. The success alone is therefore no proof.
//
// What is staged keeps the start of its share partition where it is, so the
// lowest offset that was staged tells for all of them. The proof that it is
// staged is the refusal of a verdict that contradicts it: INVALID_RECORD_STATE
// for what is staged, success for what lies below the start.

// confirm proves that everything the leaders have said to be staged is so.
func (t *Transaction) confirm(ctx context.Context, staged []*stageRequest) error {
	for _, r := range staged {
		for _, c := range r.contradictions() {
			if err := t.prove(ctx, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// contradictions are the requests that the leader must refuse. Where a call is
// all or nothing one refusal hides the others, so each partition has a request
// of its own.
func (r *stageRequest) contradictions() []*stageRequest {
	var parts []part
	for _, p := range r.parts {
		parts = append(parts, p.contradiction())
	}
	if !r.profile.AllOrNothing() {
		return []*stageRequest{{node: r.node, member: r.member, parts: parts, contradicts: true}}
	}
	var out []*stageRequest
	for _, p := range parts {
		out = append(out, &stageRequest{node: r.node, member: r.member, parts: []part{p}, contradicts: true})
	}
	return out
}

// contradiction is the other verdict on the lowest offset.
func (p part) contradiction() part {
	lowest := p.batches[0]
	verdict := acks.Accept
	if lowest.Types[0] == acks.Accept {
		verdict = acks.Reject
	}
	return part{p.tp, []acks.AcknowledgementBatch{{FirstOffset: lowest.FirstOffset, LastOffset: lowest.FirstOffset, Types: []acks.Type{verdict}}}}
}

// prove sends a contradiction until every partition of it is answered.
func (t *Transaction) prove(ctx context.Context, c *stageRequest) error {
	var pause backoff
	for attempt := 1; ; attempt++ {
		resp, err := t.ask(ctx, c, attempt)
		if fatal := t.notProven(ctx, c, err); fatal != nil {
			return fatal
		}
		if err == nil {
			var again bool
			if again, err = t.contradicted(c, resp); !again {
				return err
			}
		}
		if pause.wait(ctx) != nil {
			return t.staging(ctx, err)
		}
	}
}

// contradicted reads the answer to a contradiction: nil if every partition
// refuses it.
func (t *Transaction) contradicted(c *stageRequest, resp *wire.Response) (again bool, _ error) {
	m := t.m
	switch classify(rpcStage, resp.ErrorCode) {
	case vOK:
	case vAgain:
		return true, m.refused(rpcStage, resp.ErrorCode)
	default:
		if noMember(resp.ErrorCode) { // since it staged
			t.outcast = c.member
		}
		return false, m.callRefused(c, resp.ErrorCode)
	}
	answers, err := c.answers(resp)
	if err != nil {
		return false, m.failure(stageOp, sharetxn.ClassAbortable, err)
	}
	for _, p := range c.parts {
		switch code := answers[keyOf(p.tp)]; {
		case code == kerr.InvalidRecordState.Code:
		case code == 0:
			t.freed.add(c.member, p.tp)
			e := m.failure(stageOp, sharetxn.ClassAbortable, fmt.Errorf("%w: offset %d lies below the group's start, so another member has settled it", sharetxn.ErrStale, p.batches[0].FirstOffset))
			e.Group, e.Topic, e.Partition = c.member.GroupID(), topicName(p.tp), p.tp.Partition
			return false, e
		default:
			err = m.partitionRefused(code, c.member.GroupID(), p.tp)
			if classify(rpcStagePartition, code) != vAgain {
				return false, err
			}
			again = true
		}
	}
	return again, err
}
