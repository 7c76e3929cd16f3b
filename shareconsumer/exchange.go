package shareconsumer

import (
	"context"
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requestSlack is how long beyond its own wait a request may take before the
// connection counts as broken.
const requestSlack = 10 * time.Second

const (
	// maxHalves bounds the requests that one exchange adds to find what is not
	// ours any more. Beyond it, ranges are reported as they were refused:
	// together.
	maxHalves = 256
	// maxRetries bounds how often an answer that asks for patience is followed.
	maxRetries = 3
)

// acknowledge sends pieces by ShareAcknowledge.
func (s *session) acknowledge(ctx context.Context, pieces []*piece, renew bool) {
	all, err := merge(pieces)
	if err != nil {
		s.failAll(pieces, err)
		return
	}
	x := s.exchange(renew)
	if all.Len() > 0 {
		codes, err := s.send(ctx, ackRequest{batches: all.Map(), renew: renew, attempt: 1})
		if err != nil {
			s.failAll(pieces, err)
			return
		}
		x.judge(ctx, &all, codes)
	}
	for _, p := range pieces {
		p.answered(x.failures)
	}
}

func (s *session) failAll(pieces []*piece, err error) {
	for _, p := range pieces {
		p.fail(err)
	}
}

// exchange follows up one request's answers. A partition takes all or nothing;
// where one answers INVALID_RECORD_STATE its acknowledgements are halved and
// sent again, so that what is not ours any more fails alone.
type exchange struct {
	s        *session
	renew    bool
	attempts int // requests so far
	halves   int // that may still be sent
	failures map[partKey][]failure
	// anew is what the same answer acquired for this member. An acknowledgement
	// names no delivery: sent again, an old one would hit the new.
	anew map[partKey][]span
}

func (s *session) exchange(renew bool) *exchange {
	return &exchange{s: s, renew: renew, attempts: 1, halves: maxHalves, failures: make(map[partKey][]failure)}
}

func (x *exchange) judge(ctx context.Context, all *acks.Set, codes map[partKey]int16) {
	for tp, bs := range all.Partitions() {
		code, answered := codes[keyOf(tp)]
		if !answered {
			code = kerr.InvalidRecordState.Code // as Java reads a partition that is missing
		}
		runs := runsOf(bs)
		if code != 0 {
			var again []acks.Run
			if runs, again = apart(runs, x.anew[keyOf(tp)]); len(again) > 0 {
				x.fail(tp, again, &sharetxn.Error{Op: opOf(x.renew), Class: sharetxn.ClassAbortable, Group: x.s.c.group, Topic: tp.Topic, Partition: tp.Partition, Err: fmt.Errorf("%w: %w", sharetxn.ErrStale, errAgain)})
			}
			if len(runs) == 0 {
				continue
			}
		}
		x.one(ctx, tp, runs, code, 0)
	}
}

// apart parts runs into what lies outside of spans and what lies inside; both
// ascend and are disjoint.
func apart(runs []acks.Run, spans []span) (outside, inside []acks.Run) {
	for _, r := range runs {
		at := r.First
		for _, s := range spans {
			first, last := max(s.first, at), min(s.last, r.Last)
			if first > last {
				continue
			}
			if first > at {
				outside = append(outside, acks.Run{First: at, Last: first - 1, Type: r.Type})
			}
			inside = append(inside, acks.Run{First: first, Last: last, Type: r.Type})
			at = last + 1
		}
		if at <= r.Last {
			outside = append(outside, acks.Run{First: at, Last: r.Last, Type: r.Type})
		}
	}
	return outside, inside
}

// one deals with one partition's answer to runs.
func (x *exchange) one(ctx context.Context, tp acks.TopicIDPartition, runs []acks.Run, code int16, tries int) {
	switch {
	case code == 0:
		return
	case code == kerr.InvalidRecordState.Code && x.halves >= 2:
		if a, b, ok := bisect(runs); ok {
			x.halves -= 2
			x.again(ctx, tp, a, 0)
			x.again(ctx, tp, b, 0)
			return
		}
	case transient(code) && !x.renew && tries < maxRetries: // renewals come again by themselves
		select {
		case <-time.After(backoff(tries + 1)):
			x.again(ctx, tp, runs, tries+1)
			return
		case <-ctx.Done():
		}
	}
	err := brokerError(opOf(x.renew), x.s.c.group, ackClass(code), code)
	err.Topic, err.Partition = tp.Topic, tp.Partition
	x.fail(tp, runs, err)
	if leaderGone(code) {
		x.s.moved(keyOf(tp), code, noLeader)
	}
}

func (x *exchange) again(ctx context.Context, tp acks.TopicIDPartition, runs []acks.Run, tries int) {
	x.attempts++
	codes, err := x.s.send(ctx, ackRequest{batches: map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: batchesOf(runs)}, renew: x.renew, attempt: x.attempts})
	if err != nil {
		x.fail(tp, runs, err)
		return
	}
	code, answered := codes[keyOf(tp)]
	if !answered {
		code = kerr.InvalidRecordState.Code
	}
	x.one(ctx, tp, runs, code, tries)
}

func (x *exchange) fail(tp acks.TopicIDPartition, runs []acks.Run, err error) {
	k := keyOf(tp)
	for _, r := range runs {
		x.failures[k] = append(x.failures[k], failure{r, err})
	}
}

// transient codes say that nothing was done and that it may work in a moment.
func transient(code int16) bool {
	switch code {
	case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
		return true
	}
	return false
}

// ackClass: a broker that failed in the middle does not tell what it did.
func ackClass(code int16) sharetxn.Class {
	if code == kerr.UnknownServerError.Code || code == kerr.RequestTimedOut.Code {
		return sharetxn.ClassUnknown
	}
	return sharetxn.ClassAbortable
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
func (s *session) send(ctx context.Context, q ackRequest) (map[partKey]int16, error) {
	c := s.c
	s.startOver(ctx)
	if s.epoch == 0 {
		return nil, &sharetxn.Error{Op: opOf(q.renew), Class: sharetxn.ClassAbortable, Group: c.group, Err: sharetxn.ErrStale}
	}
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch, req.IsRenewAck = &c.group, &c.id, s.epoch, q.renew
	req.Topics = ackTopics(q.batches)
	q.sent = time.Now()
	ctx, cancel := context.WithTimeout(ctx, requestSlack)
	defer cancel()
	kresp, err := c.client.Broker(int(s.node)).Request(ctx, req)
	if err != nil {
		s.lost(err)
		e := &sharetxn.Error{Op: opOf(q.renew), Class: sharetxn.ClassUnknown, Group: c.group, Err: err}
		s.tellAcks(q, nil, e)
		return nil, e
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if resp.ErrorCode != 0 {
		e := brokerError(opOf(q.renew), c.group, sharetxn.ClassAbortable, resp.ErrorCode)
		if sessionGone(resp.ErrorCode) {
			s.lost(e)
		} else {
			s.advance()
		}
		s.tellAcks(q, nil, e)
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
	s.tellAcks(q, codes, nil)
	if q.renew {
		lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
		s.renewed(q.batches, codes, q.sent, lock)
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

// close sends what is queued and ends the session: everything else that this
// member acquired on the broker is released by that. Staged records are not
// (KIP-1289).
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.c.cfg.closeTimeout/2)
	defer cancel()
	s.failAll(s.takeQueue(func(p *piece) bool { return p.job.renew }), closedError("Renew", s.c.group))
	if pieces := s.takeQueue(func(*piece) bool { return true }); len(pieces) > 0 {
		s.acknowledge(ctx, pieces, false)
	}
	if err := s.end(ctx); err != nil {
		s.c.core.Logger().Warn("sharetxn: share session not closed; its locks end by themselves", "group", s.c.group, "broker", s.node, "err", err)
	}
}
