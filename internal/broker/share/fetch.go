package share

import (
	"context"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// share acquire modes (KIP-1206)
const recordLimit = 1

// bytesPerRecord bounds what is read for one acquisition: reading megabytes to
// hand out a few records would cost more than reading again.
const bytesPerRecord = 1 << 10

// ackResult is a partition's answer to acknowledgements in a request.
type ackResult struct {
	tp   topicPart
	code int16
}

// fetch answers ShareFetch (KIP-932; the order of checks is Kafka's).
func (e *Engine) fetch(ctx context.Context, c Conn, req *kmsg.ShareFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareFetchResponse)
	fail := func(code int16) kmsg.Response { resp.ErrorCode = code; return resp }
	if req.GroupID == nil || *req.GroupID == "" || req.MemberID == nil || !checkMember(*req.MemberID) {
		return fail(codeInvalidRequest)
	}
	if req.IsRenewAck && (req.MaxWaitMillis != 0 || req.MinBytes != 0 || req.MaxBytes != 0 || req.MaxRecords != 0) {
		return fail(codeInvalidRequest)
	}
	key := sessionKey{*req.GroupID, *req.MemberID, c.Node}
	var listed []topicPart
	batches := make(map[topicPart][]acks.AcknowledgementBatch)
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := topicPart{t.TopicID, p.Partition}
			listed = append(listed, tp)
			for _, b := range p.AcknowledgementBatches {
				batches[tp] = append(batches[tp], fromWire(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
		}
	}
	if req.ShareSessionEpoch == 0 && len(batches) > 0 {
		return fail(codeInvalidRequest)
	}
	wait := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer wait.Stop()

	s, code := e.session(key, c, req, listed)
	if code == codeShareSessionLimitReached {
		select {
		case <-wait.C:
		case <-ctx.Done():
		}
	}
	if code != codeNone {
		return fail(code)
	}
	acked := e.applyAcks(c, key, batches, req.IsRenewAck)
	e.mu.Lock()
	resp.AcquisitionLockTimeoutMillis = int32(e.group(key.group).config.lock.Milliseconds())
	e.mu.Unlock()

	if req.ShareSessionEpoch == finalEpoch {
		leads := e.leads(c.Node)
		e.mu.Lock()
		e.closeSession(key, leads)
		e.mu.Unlock()
		e.fill(resp, nil, acked)
		return resp
	}
	for {
		e.mu.Lock()
		wake, closed := e.wake, e.closed
		e.mu.Unlock()
		got := e.collect(ctx, c, key, s, req)
		if len(got) > 0 || closed || req.MaxWaitMillis == 0 {
			e.fill(resp, got, acked)
			return resp
		}
		select {
		case <-wake:
			continue
		case <-wait.C:
		case <-ctx.Done():
		}
		e.fill(resp, nil, acked)
		return resp
	}
}

// session opens or enters the request's session and applies what it adds and
// forgets.
func (e *Engine) session(key sessionKey, c Conn, req *kmsg.ShareFetchRequest, listed []topicPart) (*session, int16) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var s *session
	var code int16
	if req.ShareSessionEpoch == 0 {
		s, code = e.open(key, c.ID)
	} else {
		s, code = e.enter(key, req.ShareSessionEpoch)
	}
	if code != codeNone {
		return nil, code
	}
	for _, tp := range listed {
		s.add(tp)
	}
	for _, t := range req.ForgottenTopicsData {
		for _, p := range t.Partitions {
			s.forget(topicPart{t.TopicID, p})
		}
	}
	return s, codeNone
}

// served is one partition's share of an answer.
type served struct {
	placed
	got acquired
}

// collect acquires from the session's partitions in turn until the request's
// limits are reached; partitions that cannot be served are told.
func (e *Engine) collect(ctx context.Context, c Conn, key sessionKey, s *session, req *kmsg.ShareFetchRequest) []served {
	e.mu.Lock()
	parts := make([]topicPart, 0, len(s.parts))
	for i := range s.parts {
		parts = append(parts, s.parts[(s.turn+i)%len(s.parts)])
	}
	s.turn++
	e.mu.Unlock()

	var out []served
	records, bytes := int64(req.MaxRecords), int64(req.MaxBytes)
	if req.Version < 1 {
		records = 1 << 30
	}
	for _, tp := range parts {
		p := e.place(c.Node, tp)
		if p.code != codeNone {
			out = append(out, served{placed: p})
			continue
		}
		if records <= 0 || bytes <= 0 {
			continue
		}
		got, code := e.acquireFrom(ctx, key, p, records, bytes, req)
		if code != codeNone {
			p.code = code
			out = append(out, served{placed: p})
			continue
		}
		if len(got.ranges) == 0 {
			continue
		}
		for _, r := range got.ranges {
			records -= r.last - r.first + 1
		}
		bytes -= int64(len(got.records))
		out = append(out, served{p, got})
	}
	return out
}

// acquireTries bounds how often a read is repeated because another member was
// faster; the fetch then simply finds nothing this time.
const acquireTries = 3

func (e *Engine) acquireFrom(ctx context.Context, key sessionKey, p placed, records, bytes int64, req *kmsg.ShareFetchRequest) (acquired, int16) {
	k := partKey{key.group, p.topic, p.part}
	if code := e.load(ctx, k, p.name); code != codeNone {
		return acquired{}, code
	}
	for range acquireTries {
		e.mu.Lock()
		sp := e.partition(k)
		if sp == nil {
			e.mu.Unlock()
			return acquired{}, codeUnknownTopicOrPartition
		}
		from, ok := sp.next()
		committed := e.group(k.group).config.readCommitted
		e.mu.Unlock()
		if !ok {
			return acquired{}, codeNone
		}
		chunk, err := e.cfg.Log.Read(ctx, p.name, p.part, from, int32(min(bytes, max(records, 8)*bytesPerRecord)), committed)
		if err != nil {
			if ctx.Err() != nil {
				return acquired{}, codeNone
			}
			e.cfg.Logger.Warn("share fetch: log not read", "topic", p.name, "partition", p.part, "err", err)
			return acquired{}, codeUnknownServerError
		}
		if committed {
			chunk.Records = below(chunk.Records, chunk.Bounds.LastStable)
		}
		e.mu.Lock()
		if sp = e.partition(k); sp == nil {
			e.mu.Unlock()
			return acquired{}, codeUnknownTopicOrPartition
		}
		sp.logStartMoved(chunk.Bounds.Start)
		if now, still := sp.next(); !still || now != from {
			e.mu.Unlock()
			continue
		}
		cfg := e.group(k.group).config
		deadline := time.Now().Add(cfg.lock)
		start := sp.start
		got := sp.acquire(acquireAsk{
			owner: key.member, deadline: deadline, maxRecords: records, batchSize: int64(req.BatchSize),
			exact: req.ShareAcquireMode == recordLimit, committed: committed, chunk: chunk,
		})
		if len(got.ranges) > 0 {
			e.arm(deadline)
		}
		moved := sp.start != start // aborted batches were passed: look behind them
		e.mu.Unlock()
		if len(got.ranges) > 0 || !moved {
			return got, codeNone
		}
	}
	return acquired{}, codeNone
}

// below cuts batches at or above the last stable offset off.
func below(records []byte, stable int64) []byte {
	for _, b := range parseBatches(records) {
		if b.last >= stable {
			return records[:b.from]
		}
	}
	return records
}

// load makes the share partition known at its first use, with the start that
// the group's reset policy says.
func (e *Engine) load(ctx context.Context, k partKey, topic string) int16 {
	e.mu.Lock()
	known := e.parts[k] != nil
	reset := e.group(k.group).config.reset
	e.mu.Unlock()
	if known {
		return codeNone
	}
	bounds, err := e.cfg.Log.Bounds(ctx, topic, k.part)
	start := bounds.End
	if err == nil {
		if d, ok := strings.CutPrefix(reset, resetByDuration); ok {
			back, _ := parseISODuration(d) // checked when it was set
			start, err = e.cfg.Log.OffsetForTime(ctx, topic, k.part, time.Now().Add(-back))
		} else if reset == "earliest" {
			start = bounds.Start
		}
	}
	if err != nil {
		if ctx.Err() == nil {
			e.cfg.Logger.Warn("share partition not initialised", "topic", topic, "partition", k.part, "err", err)
		}
		return codeUnknownServerError
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.parts[k] == nil {
		e.parts[k] = newPartition(start)
	}
	return codeNone
}

// fill writes what was acquired and how acknowledgements went into the answer.
func (e *Engine) fill(resp *kmsg.ShareFetchResponse, got []served, acked []ackResult) {
	type slot struct {
		served
		ackCode int16
	}
	var order []topicPart
	slots := make(map[topicPart]*slot)
	at := func(tp topicPart) *slot {
		if slots[tp] == nil {
			slots[tp] = &slot{served: served{placed: placed{topicPart: tp, leader: -1, epoch: -1}}}
			order = append(order, tp)
		}
		return slots[tp]
	}
	for _, g := range got {
		at(g.topicPart).served = g
	}
	for _, a := range acked {
		at(a.tp).ackCode = a.code
	}
	hinted := make(map[int32]bool)
	topics := make(map[[16]byte]int)
	for _, tp := range order {
		s := slots[tp]
		out := kmsg.NewShareFetchResponseTopicPartition()
		out.Partition, out.ErrorCode, out.AcknowledgeErrorCode = tp.part, s.code, s.ackCode
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = s.leader, s.epoch
		out.Records = s.got.records
		for _, r := range s.got.ranges {
			ar := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
			ar.FirstOffset, ar.LastOffset, ar.DeliveryCount = r.first, r.last, r.count
			out.AcquiredRecords = append(out.AcquiredRecords, ar)
		}
		if s.leader >= 0 && !hinted[s.leader] {
			hinted[s.leader] = true
			if ep, ok := e.endpoint(s.leader); ok {
				resp.NodeEndpoints = append(resp.NodeEndpoints, ep)
			}
		}
		i, ok := topics[tp.topic]
		if !ok {
			i = len(resp.Topics)
			topics[tp.topic] = i
			t := kmsg.NewShareFetchResponseTopic()
			t.TopicID = tp.topic
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, out)
	}
}

func fromWire(first, last int64, types []int8) acks.AcknowledgementBatch {
	b := acks.AcknowledgementBatch{FirstOffset: first, LastOffset: last, Types: make([]acks.Type, len(types))}
	for i, t := range types {
		b.Types[i] = acks.Type(t)
	}
	return b
}
