package shareconsumer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
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
	// maxHalves bounds the requests that a piece adds to find what is not ours
	// any more. Beyond it, ranges are reported as they were refused: together.
	maxHalves = 256
	// maxRequests bounds them for all pieces of a request: meanwhile nothing else
	// is sent to the broker, no renewal either.
	maxRequests = 1000
	// maxRetries bounds how often an answer that asks for patience is followed.
	maxRetries = 3
)

// acknowledge sends a load by ShareAcknowledge.
func (s *session) acknowledge(ctx context.Context, l load, renew bool) {
	if len(l.parts) > 0 {
		codes, err := s.send(ctx, ackRequest{parts: l.parts, renew: renew, attempt: 1})
		if err != nil {
			l.fail(err)
			return
		}
		x := exchange{s: s, renew: renew, attempts: 1}
		x.judge(ctx, &l, codes)
	}
	l.answered()
}

func (l *load) fail(err error) {
	for _, p := range l.pieces {
		p.fail(err)
	}
}

func (l *load) answered() {
	for _, p := range l.pieces {
		p.answered()
	}
}

// exchange follows up one request's answers. A partition takes all or nothing:
// where one refuses, what is said of it is sent again piece by piece and then in
// halves, so that what is not ours any more fails alone.
type exchange struct {
	s        *session
	renew    bool
	attempts int // requests so far
	waits    int // that a code which asks for patience has cost
	// anew is what the same answer acquired for this member. An acknowledgement
	// names no delivery: sent again, an old one would hit the new.
	anew map[partKey][]span
}

func (x *exchange) judge(ctx context.Context, l *load, codes map[partKey]int16) {
	for _, pt := range l.parts {
		k := keyOf(pt.tp)
		code := codeFor(codes, k)
		if code == 0 {
			continue
		}
		var rest []stake
		whole := true // nothing was taken out of what was refused
		for _, p := range l.pieces {
			mine := p.part(k)
			if mine == nil {
				continue
			}
			outside, inside := apart(mine.runs, x.anew[k])
			if len(inside) > 0 {
				whole = false
				x.fail(p, part{pt.tp, inside}, &sharetxn.Error{Class: sharetxn.ClassAbortable, Err: fmt.Errorf("%w: %w", sharetxn.ErrStale, errAgain)})
			}
			if len(outside) > 0 {
				rest = append(rest, stake{p, part{pt.tp, outside}})
			}
		}
		if whole || !divisible(code) {
			x.refused(ctx, rest, code)
		} else {
			x.resend(ctx, rest)
		}
	}
}

// stake is what a piece has in a part that was refused.
type stake struct {
	p *piece
	part
}

// refused deals with a part that was refused to several pieces together: whose
// fault it is, is not said, so halves of them are sent again.
func (x *exchange) refused(ctx context.Context, ss []stake, code int16) {
	if len(ss) > 1 && divisible(code) && x.attempts < maxRequests {
		x.resend(ctx, ss[:len(ss)/2])
		x.resend(ctx, ss[len(ss)/2:])
		return
	}
	for _, s := range ss {
		x.one(ctx, s.p, s.part, code, 0)
	}
}

// resend sends what was refused in company, without it.
func (x *exchange) resend(ctx context.Context, ss []stake) {
	switch len(ss) {
	case 0:
		return
	case 1:
		x.again(ctx, ss[0].p, ss[0].part, 0)
		return
	}
	together := part{tp: ss[0].tp}
	for _, s := range ss {
		together.runs = append(together.runs, s.runs...)
	}
	slices.SortFunc(together.runs, byOffset)
	x.attempts++
	codes, err := x.s.send(ctx, ackRequest{parts: []part{together}, renew: x.renew, attempt: x.attempts})
	if err != nil {
		for _, s := range ss {
			x.fail(s.p, s.part, err)
		}
		return
	}
	if code := codeFor(codes, keyOf(together.tp)); code != 0 {
		x.refused(ctx, ss, code)
	}
}

// noteCode takes in what an answer says of a partition; of one that is there
// twice the refusal counts.
func noteCode(codes map[partKey]int16, k partKey, code int16) {
	if codes[k] == 0 {
		codes[k] = code
	}
}

// unanswered stands for the code of a partition that the answer does not name.
// Java takes it for INVALID_RECORD_STATE; but the broker may have done what it was
// asked for.
const unanswered = math.MinInt16

var errUntold = errors.New("the answer does not name the partition")

// codeFor is a partition's code.
func codeFor(codes map[partKey]int16, k partKey) int16 {
	code, answered := codes[k]
	if !answered {
		return unanswered
	}
	return code
}

// ackError is a code as an error.
func ackError(op, group string, code int16) *sharetxn.Error {
	if code == unanswered {
		return &sharetxn.Error{Op: op, Class: sharetxn.ClassUnknown, Group: group, Err: errUntold}
	}
	return brokerError(op, group, ackClass(code), code)
}

// divisible codes are of single offsets, and take their neighbours along.
func divisible(code int16) bool {
	return code == kerr.InvalidRecordState.Code || code == kerr.InvalidRequest.Code
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

// one deals with a refused part, and tells whether all of it was taken in the
// end.
func (x *exchange) one(ctx context.Context, p *piece, pt part, code int16, tries int) bool {
	switch {
	case code == 0:
		return true
	case divisible(code) && (!x.renew || code == kerr.InvalidRecordState.Code) && p.halves < maxHalves && x.attempts < maxRequests:
		if a, b, ok := bisect(pt.runs); ok {
			left, right := part{pt.tp, a}, part{pt.tp, b}
			if !x.again(ctx, p, left, 0) {
				x.again(ctx, p, right, 0)
				return false
			}
			if _, _, more := bisect(b); more { // it is in the other half then
				return x.one(ctx, p, right, code, 0)
			}
			return x.again(ctx, p, right, 0)
		}
	case transient(code) && !x.renew && tries < maxRetries: // renewals come again by themselves
		if x.patient(ctx, tries) {
			return x.again(ctx, p, pt, tries+1)
		}
	}
	x.fail(p, pt, ackError("", "", code))
	if leaderGone(code) {
		x.s.moved(keyOf(pt.tp), code, noLeader)
	}
	return false
}

// patient waits before a try, unless another piece had to wait before the same
// try of its own; false if ctx ends.
func (x *exchange) patient(ctx context.Context, tries int) bool {
	if tries < x.waits {
		return ctx.Err() == nil
	}
	x.waits = tries + 1
	select {
	case <-time.After(backoff(tries + 1)):
		return true
	case <-ctx.Done():
		return false
	}
}

func (x *exchange) again(ctx context.Context, p *piece, pt part, tries int) bool {
	p.halves++
	x.attempts++
	codes, err := x.s.send(ctx, ackRequest{parts: []part{pt}, renew: x.renew, attempt: x.attempts})
	if err != nil {
		x.fail(p, pt, err)
		return false
	}
	return x.one(ctx, p, pt, codeFor(codes, keyOf(pt.tp)), tries)
}

// fail notes why a part was not taken; answered tells it, once for what failed
// for one reason.
func (x *exchange) fail(p *piece, pt part, err error) {
	if n := len(p.failures); n > 0 {
		if f := &p.failures[n-1]; f.tp.Same(pt.tp) && codeOf(f.err) != 0 && codeOf(f.err) == codeOf(err) {
			f.runs = slices.Concat(f.runs, pt.runs)
			return
		}
	}
	p.failures = append(p.failures, failure{pt, err})
}

// transient codes say that nothing was done and that it may work in a moment.
func transient(code int16) bool {
	switch code {
	case kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code, kerr.NotCoordinator.Code:
		return true
	}
	return false
}

// ackClass: a broker that failed in the middle does not tell what it did, nor does
// one with a code that is not known here.
func ackClass(code int16) sharetxn.Class {
	if errors.Is(kerr.ErrorForCode(code), kerr.UnknownServerError) || code == kerr.RequestTimedOut.Code {
		return sharetxn.ClassUnknown
	}
	return sharetxn.ClassAbortable
}

// bisect halves acknowledgements that failed together; ok is false for a
// single offset.
func bisect(runs []acks.Run) (a, b []acks.Run, ok bool) {
	if len(runs) > 1 {
		return runs[:len(runs)/2], runs[len(runs)/2:], true
	}
	r := runs[0]
	if r.First == r.Last {
		return nil, nil, false
	}
	mid := r.First + (r.Last-r.First)/2
	return []acks.Run{{First: r.First, Last: mid, Type: r.Type}}, []acks.Run{{First: mid + 1, Last: r.Last, Type: r.Type}}, true
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
	req.Topics = ackTopics(q.parts)
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
		e := brokerError(opOf(q.renew), c.group, ackClass(resp.ErrorCode), resp.ErrorCode)
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
	codes := codesOf(resp)
	s.tellAcks(q, codes, nil)
	if q.renew {
		lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
		s.renewed(q.parts, codes, q.sent, lock)
	}
	return codes, nil
}

func codesOf(resp *kmsg.ShareAcknowledgeResponse) map[partKey]int16 {
	codes := make(map[partKey]int16)
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			noteCode(codes, partKey{t.TopicID, p.Partition}, p.ErrorCode)
		}
	}
	return codes
}

func ackTopics(parts []part) []kmsg.ShareAcknowledgeRequestTopic {
	var out []kmsg.ShareAcknowledgeRequestTopic
	for _, pt := range parts {
		i := slices.IndexFunc(out, func(t kmsg.ShareAcknowledgeRequestTopic) bool { return t.TopicID == pt.tp.TopicID })
		if i < 0 {
			i = len(out)
			t := kmsg.NewShareAcknowledgeRequestTopic()
			t.TopicID = pt.tp.TopicID
			out = append(out, t)
		}
		p := kmsg.NewShareAcknowledgeRequestTopicPartition()
		p.Partition = pt.tp.Partition
		for _, b := range batchesOf(pt) {
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
	s.failQueue(func(p *piece) bool { return p.job.renew }, closedError("Renew", s.c.group))
	for l := s.takeQueue(all); len(l.pieces) > 0; l = s.takeQueue(all) {
		s.acknowledge(ctx, l, false)
	}
	if err := s.end(ctx); err != nil {
		s.c.core.Logger().Warn("sharetxn: share session not closed; its locks end by themselves", "group", s.c.group, "broker", s.node, "err", err)
	}
}
