package share

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"unicode/utf16"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Stage answers TxnShareAcknowledge, in the draft's order of checks: feature
// level, form, topics, member, registration with the transaction, and then each
// partition, by itself or together with the others as the profile has it. Its
// own check of batch order is stricter than the draft's, which takes
// overlapping ranges.
func (e *Engine) Stage(ctx context.Context, c Conn, req *wire.Request) *wire.Response {
	resp := req.ResponseKind().(*wire.Response)
	fail := func(code int16) *wire.Response { resp.ErrorCode = code; return resp }
	switch {
	case !e.stages():
		return fail(codeUnsupportedVersion)
	case req.TransactionalID == nil || *req.TransactionalID == "" || req.GroupID == "" || !checkMember(req.MemberID):
		return fail(codeInvalidRequest)
	}
	var statePartitions []int32
	for _, t := range req.Topics {
		rt := wire.ResponseTopic{TopicID: t.TopicID}
		for _, p := range t.Partitions {
			at := e.place(c.Node, topicPart{t.TopicID, p.Partition})
			out := wire.ResponsePartition{Partition: p.Partition, ErrorCode: at.code}
			if e.sem.namesLeader && at.leader >= 0 {
				out.CurrentLeader = &wire.CurrentLeader{LeaderID: at.leader, LeaderEpoch: at.epoch}
			}
			rt.Partitions = append(rt.Partitions, out)
			if at.code == codeNone || at.code == codeNotLeaderOrFollower {
				statePartitions = e.addStatePartition(statePartitions, req.GroupID, at.topicPart)
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
	switch {
	case req.ProducerEpoch < e.decided[req.ProducerID]:
		// The transaction ended after it was registered: no marker would come.
		code = codeInvalidProducerEpoch
	case !e.staging: // turned off meanwhile, when nothing was staged
		code = codeUnsupportedVersion
	}
	if code != codeNone {
		resp.Topics = nil
		return fail(code)
	}
	e.stageAll(req, resp)
	return resp
}

// stages tells whether staging works at all.
func (e *Engine) stages() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.staging
}

// stageAll stages on the partitions that nothing is said against yet. Where a
// call is all or nothing and one partition fails, what the others staged is
// undone before the answer (KIP text, case 11). The text does not say what those
// answer. Not success, for they hold nothing; and not a code of their own, for
// nothing is wrong with them: OPERATION_NOT_ATTEMPTED is what Kafka answers
// elsewhere (AddPartitionsToTxn) for the innocent part of such a call.
// e.mu is held.
func (e *Engine) stageAll(req *wire.Request, resp *wire.Response) {
	type done struct {
		part *partition
		was  []entry
		out  *wire.ResponsePartition
	}
	var staged []done
	failed := false
	for i, t := range req.Topics {
		for j, p := range t.Partitions {
			out := &resp.Topics[i].Partitions[j]
			if out.ErrorCode == codeNone {
				sp := e.partition(partKey{req.GroupID, t.TopicID, p.Partition})
				var was []entry
				if was, out.ErrorCode = sp.stageChecked(req, p.Batches); out.ErrorCode == codeNone {
					staged = append(staged, done{sp, was, out})
				}
			}
			failed = failed || out.ErrorCode != codeNone
		}
	}
	if !failed || !e.sem.wholeCall {
		return
	}
	for _, d := range slices.Backward(staged) {
		d.part.unstage(d.was)
		d.out.ErrorCode = codeOperationNotAttempted
	}
}

// stageChecked is stage with the checks before it; p is nil where no share
// partition is loaded here.
func (p *partition) stageChecked(req *wire.Request, batches []acks.AcknowledgementBatch) (was []entry, code int16) {
	if p == nil {
		return nil, codeNotLeaderOrFollower
	}
	if code := checkForm(batches); code != codeNone {
		return nil, code
	}
	for i, b := range batches { // stricter than Kafka's: no offset may be staged twice, not even at a seam
		if b.FirstOffset < 0 || i > 0 && b.FirstOffset == batches[i-1].LastOffset {
			return nil, codeInvalidRequest
		}
	}
	return p.stage(req.MemberID, req.ProducerID, req.ProducerEpoch, batches)
}

// addStatePartition names the state partition of a share partition; where there
// is one for a whole group it is named once.
func (e *Engine) addStatePartition(all []int32, group string, tp topicPart) []int32 {
	if !e.sem.perGroup {
		return append(all, e.statePartition(fmt.Sprintf("%s:%s:%d", group, base64.RawURLEncoding.EncodeToString(tp.topic[:]), tp.part)))
	}
	if len(all) > 0 {
		return all
	}
	return append(all, e.statePartition(group))
}

// statePartition is where the state under a key would be kept: Kafka's hash of
// "group:topicId:partition", or of the group.
func (e *Engine) statePartition(key string) int32 {
	h := int32(0)
	for _, u := range utf16.Encode([]rune(key)) { // Java's String.hashCode
		h = 31*h + int32(u)
	}
	return (h & 0x7fffffff) % e.cfg.StatePartitions
}
