package shareconsumer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestSlack is how long beyond its own wait a request may take before the
// connection counts as broken.
const requestSlack = 10 * time.Second

// acknowledge sends pieces by ShareAcknowledge. A partition takes all or
// nothing; where one answers INVALID_RECORD_STATE its acknowledgements are
// halved and sent again, so that what is not ours any more fails alone.
func (s *session) acknowledge(ctx context.Context, pieces []*piece, renew bool) {
	if len(pieces) == 0 {
		return
	}
	all, err := merge(pieces)
	if err != nil {
		s.failAll(pieces, err)
		return
	}
	failures := make(map[partKey][]failure)
	if err := s.exchange(ctx, all.Map(), renew, failures); err != nil {
		s.failAll(pieces, err)
		return
	}
	for _, p := range pieces {
		p.answered(failures)
	}
}

func (s *session) failAll(pieces []*piece, err error) {
	for _, p := range pieces {
		p.fail(err)
	}
}

// exchange sends one request and whatever halves of it are needed. It notes
// failures by range; its error is one that the whole session met.
func (s *session) exchange(ctx context.Context, batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch, renew bool, failures map[partKey][]failure) error {
	codes, err := s.send(ctx, batches, renew)
	if err != nil {
		return err
	}
	for tp, bs := range batches {
		code, answered := codes[keyOf(tp)]
		if !answered {
			code = kerr.InvalidRecordState.Code // as Java reads a partition that is missing
		}
		if err := s.judge(ctx, tp, runsOf(bs), code, renew, failures); err != nil {
			return err
		}
	}
	return nil
}

// judge deals with one partition's answer to runs.
func (s *session) judge(ctx context.Context, tp acks.TopicIDPartition, runs []acks.Run, code int16, renew bool, failures map[partKey][]failure) error {
	k := keyOf(tp)
	if code == 0 {
		return nil
	}
	if code == kerr.InvalidRecordState.Code {
		if a, b, ok := bisect(runs); ok {
			for _, half := range [][]acks.Run{a, b} {
				codes, err := s.send(ctx, map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: batchesOf(half)}, renew)
				if err != nil {
					return err
				}
				if err := s.judge(ctx, tp, half, codes[k], renew, failures); err != nil {
					return err
				}
			}
			return nil
		}
	}
	err := brokerError(opOf(renew), s.c.group, sharetxn.ClassAbortable, code)
	err.Topic, err.Partition = tp.Topic, tp.Partition
	for _, r := range runs {
		failures[k] = append(failures[k], failure{r, err})
	}
	if leaderGone(code) {
		s.moved(k, code, leader{-1, -1})
	}
	return nil
}

func opOf(renew bool) string {
	if renew {
		return "Renew"
	}
	return "ShareAcknowledge"
}

func batchesOf(runs []acks.Run) []acks.AcknowledgementBatch {
	out := make([]acks.AcknowledgementBatch, len(runs))
	for i, r := range runs {
		out[i] = acks.AcknowledgementBatch{FirstOffset: r.First, LastOffset: r.Last, Types: []acks.Type{r.Type}}
	}
	return out
}

// send is one ShareAcknowledge; the session's epoch moves with it. Errors: the
// session is gone (abortable: the records come back), or the answer is
// missing (unknown: the broker may have taken them).
func (s *session) send(ctx context.Context, batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch, renew bool) (map[partKey]int16, error) {
	c := s.c
	s.startOver(ctx)
	if s.epoch == 0 {
		return nil, &sharetxn.Error{Op: opOf(renew), Class: sharetxn.ClassAbortable, Group: c.group, Err: sharetxn.ErrStale}
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch, req.IsRenewAck = &c.group, &c.id, s.epoch, renew
	req.Topics = ackTopics(batches)
	sent := time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestSlack)
	defer cancel()
	kresp, err := c.client.Broker(int(s.node)).Request(ctx, req)
	if err != nil {
		s.lost(err)
		return nil, &sharetxn.Error{Op: opOf(renew), Class: sharetxn.ClassUnknown, Group: c.group, Err: err}
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if resp.ErrorCode != 0 {
		e := brokerError(opOf(renew), c.group, sharetxn.ClassAbortable, resp.ErrorCode)
		if sessionGone(resp.ErrorCode) {
			s.lost(e)
		} else {
			s.advance()
		}
		return nil, e
	}
	s.advance()
	s.failures = 0
	codes := make(map[partKey]int16)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			codes[partKey{t.TopicID, p.Partition}] = p.ErrorCode
		}
	}
	if renew {
		lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
		s.renewed(batches, codes, sent, lock)
	}
	return codes, nil
}

func ackTopics(batches map[acks.TopicIDPartition][]acks.AcknowledgementBatch) []kmsg.ShareAcknowledgeRequestTopic {
	at := make(map[[16]byte]int)
	var out []kmsg.ShareAcknowledgeRequestTopic
	for tp, bs := range batches {
		i, ok := at[tp.TopicID]
		if !ok {
			i = len(out)
			at[tp.TopicID] = i
			t := kmsg.NewShareAcknowledgeRequestTopic()
			t.TopicID = tp.TopicID
			out = append(out, t)
		}
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.Partition = tp.Partition
		for _, b := range bs {
			w := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			w.FirstOffset, w.LastOffset, w.AcknowledgeTypes = b.FirstOffset, b.LastOffset, wireTypes(b.Types)
			p.AcknowledgementBatches = append(p.AcknowledgementBatches, w)
		}
		out[i].Partitions = append(out[i].Partitions, p)
	}
	return out
}

func wireTypes(ts []acks.Type) []int8 {
	out := make([]int8, len(ts))
	for i, t := range ts {
		out[i] = int8(t)
	}
	return out
}

// close ends the session: what is queued goes with it, everything else that
// this member acquired on the broker is released by it. Staged records are
// not (KIP-1289).
func (s *session) close(ctx context.Context) {
	pieces := s.takeQueue(func(p *piece) bool { return !p.job.renew })
	s.abandon(errAbandoned)
	if s.epoch == 0 {
		s.failAll(pieces, closedError("ShareAcknowledge", s.c.group))
		return
	}
	all, err := merge(pieces)
	if err != nil {
		s.failAll(pieces, err)
		all, pieces = acks.Set{}, nil
	}
	c := s.c
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &c.group, &c.id, finalEpoch
	req.Topics = ackTopics(all.Map())
	kresp, err := c.client.Broker(int(s.node)).Request(ctx, req)
	if err != nil {
		s.failAll(pieces, &sharetxn.Error{Op: "ShareAcknowledge", Class: sharetxn.ClassUnknown, Group: c.group, Err: err})
		return
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if resp.ErrorCode != 0 {
		s.failAll(pieces, brokerError("ShareAcknowledge", c.group, sharetxn.ClassAbortable, resp.ErrorCode))
		return
	}
	failures := make(map[partKey][]failure)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 {
				e := brokerError("ShareAcknowledge", c.group, sharetxn.ClassAbortable, p.ErrorCode)
				failures[partKey{t.TopicID, p.Partition}] = []failure{{acks.Run{First: 0, Last: 1<<63 - 2}, e}}
			}
		}
	}
	for _, p := range pieces {
		p.answered(failures)
	}
}

const finalEpoch = -1
