package share

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// share acquire modes (KIP-1206)
const recordLimit = 1

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
	listed, asks := readFetch(req)
	if req.ShareSessionEpoch == 0 && len(asks) > 0 {
		return fail(codeInvalidRequest)
	}
	wait := time.NewTimer(time.Duration(req.MaxWaitMillis) * time.Millisecond)
	defer wait.Stop()

	key := sessionKey{*req.GroupID, *req.MemberID, c.Node}
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
	acked := e.applyAcks(c, key, asks, req.IsRenewAck)
	var got []served
	if req.ShareSessionEpoch == finalEpoch {
		e.endSession(key)
	} else {
		got = e.await(ctx, c, key, s, req, wait.C)
		if e.overtaken(s, req.ShareSessionEpoch) {
			return fail(codeInvalidShareSessionEpoch)
		}
	}
	if e.cfg.Before44 && e.namesNothing(s) {
		return fail(codeUnknownServerError)
	}
	if req.ShareSessionEpoch == 0 { // a full answer names every partition, an incremental one what is new
		for _, tp := range listed {
			got = append(got, served{placed: placed{topicPart: tp, leader: -1, epoch: -1}})
		}
	}
	e.fill(resp, key.group, got, acked)
	return resp
}

// namesNothing tells whether a topic of the session is not there. Before Kafka 4.4
// that fails the whole answer when all is done: the session has moved on, and what
// was acquired stays so (measured).
func (e *Engine) namesNothing(s *session) bool {
	return slices.ContainsFunc(e.turn(s), func(tp topicPart) bool {
		_, known := e.cfg.Log.Topic(tp.topic)
		return !known
	})
}

// readFetch gives what a request lists and the acknowledgements it carries.
func readFetch(req *kmsg.ShareFetchRequest) (listed []topicPart, asks []ackAsk) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			tp := topicPart{t.TopicID, p.Partition}
			listed = append(listed, tp)
			if len(p.AcknowledgementBatches) == 0 {
				continue
			}
			a := ackAsk{tp: tp}
			for _, b := range p.AcknowledgementBatches {
				a.batches = append(a.batches, fromWire(b.FirstOffset, b.LastOffset, b.AcknowledgeTypes))
			}
			asks = append(asks, a)
		}
	}
	return listed, asks
}

// session opens or enters the request's session and applies what it adds and
// forgets.
func (e *Engine) session(key sessionKey, c Conn, req *kmsg.ShareFetchRequest, listed []topicPart) (*session, int16) {
	known := make(map[topicPart]bool)
	for _, tp := range listed {
		_, known[tp] = e.cfg.Log.Topic(tp.topic)
	}
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
		s.add(tp, known[tp])
	}
	for _, t := range req.ForgottenTopicsData {
		for _, p := range t.Partitions {
			s.forget(topicPart{t.TopicID, p})
		}
	}
	return s, codeNone
}

// await looks for records until there are some, MinBytes of them if it can, or
// there is something to be told, or the request's time is over.
func (e *Engine) await(ctx context.Context, c Conn, key sessionKey, s *session, req *kmsg.ShareFetchRequest, over <-chan time.Time) []served {
	last := req.MaxWaitMillis <= 0
	for {
		e.mu.Lock()
		wake, closed := e.wake, e.closed
		e.mu.Unlock()
		if last || req.MinBytes <= 1 || e.enough(ctx, c, key, s, req.MinBytes) {
			if got := e.collect(ctx, c, key, s, req); len(got) > 0 {
				return got
			}
		}
		if last || closed {
			return nil
		}
		select {
		case <-wake:
		case <-over:
			last = true
		case <-ctx.Done():
			return nil
		}
	}
}

// overtaken tells whether another request of the session was counted since the
// one of that epoch: Kafka then keeps the answer to itself, and what the member has
// acquired stays acquired (measured). It does not look when a session is opened.
func (e *Engine) overtaken(s *session, epoch int32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return epoch != 0 && s.epoch != nextEpoch(epoch)
}

// turn gives the session's partitions, another one first each time.
func (e *Engine) turn(s *session) []topicPart {
	e.mu.Lock()
	defer e.mu.Unlock()
	parts := make([]topicPart, 0, len(s.parts))
	for i := range s.parts {
		parts = append(parts, s.parts[(s.turn+i)%len(s.parts)])
	}
	s.turn++
	return parts
}

// enough tells whether the session's partitions have minBytes to read now, or
// something else to tell.
func (e *Engine) enough(ctx context.Context, c Conn, key sessionKey, s *session, minBytes int32) bool {
	found := int32(0)
	for _, tp := range e.turn(s) {
		p := e.placeIn(s, c.Node, tp)
		k := partKey{key.group, tp.topic, tp.part}
		if p.code != codeNone || e.load(ctx, k, p.name) != codeNone {
			return true
		}
		from, committed, ok := e.next(k)
		if !ok {
			continue
		}
		chunk, err := e.read(ctx, p, from, minBytes-found, committed)
		if err != nil {
			return true
		}
		if found += int32(min(len(chunk.Records), int(minBytes))); found >= minBytes {
			return true
		}
	}
	return false
}

// next is where the share partition wants to be read from, if at all.
func (e *Engine) next(k partKey) (from int64, committed, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	p := e.partition(k)
	if p == nil {
		return 0, false, false
	}
	from, ok = p.next()
	return from, e.group(k.group).config.readCommitted, ok
}

// read reads the log as the group's isolation wants it.
func (e *Engine) read(ctx context.Context, p placed, from int64, maxBytes int32, committed bool) (Chunk, error) {
	chunk, err := e.cfg.Log.Read(ctx, p.name, p.part, from, maxBytes, committed)
	if err == nil && committed {
		chunk.Records = below(chunk.Records, chunk.Bounds.LastStable)
	}
	return chunk, err
}

// served is one partition's share of an answer.
type served struct {
	placed
	got acquired
}

// collect acquires from the session's partitions in turn until the request's
// limits are reached; partitions that cannot be served are told.
func (e *Engine) collect(ctx context.Context, c Conn, key sessionKey, s *session, req *kmsg.ShareFetchRequest) []served {
	var out []served
	records, bytes := int64(req.MaxRecords), int64(req.MaxBytes)
	for _, tp := range e.turn(s) {
		moves := e.moved()
		p := e.placeIn(s, c.Node, tp)
		if p.code != codeNone {
			out = append(out, served{placed: p})
			continue
		}
		if records <= 0 || bytes <= 0 {
			continue
		}
		got, code := e.acquireFrom(ctx, key, s, p, moves, records, bytes, req)
		if p.code = code; code == codeNone && len(got.ranges) == 0 && !got.filtered {
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

// moved counts the leader moves so far.
func (e *Engine) moved() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.moves
}

// acquireFrom reads without the lock and then takes what is still free, so a
// member that was faster costs another read and never a record twice.
func (e *Engine) acquireFrom(ctx context.Context, key sessionKey, s *session, p placed, moves int, records, bytes int64, req *kmsg.ShareFetchRequest) (acquired, int16) {
	k := partKey{key.group, p.topic, p.part}
	if code := e.load(ctx, k, p.name); code != codeNone {
		return acquired{}, code
	}
	for ctx.Err() == nil {
		e.mu.Lock()
		sp := e.partition(k)
		if sp == nil || e.sessions[key] != s {
			e.mu.Unlock()
			return acquired{}, codeNone
		}
		from, ok := sp.next()
		size := sp.readSize(records, bytes)
		committed := e.group(k.group).config.readCommitted
		e.mu.Unlock()
		if !ok {
			return acquired{}, codeNone
		}
		chunk, err := e.read(ctx, p, from, size, committed)
		if err != nil {
			if ctx.Err() != nil {
				return acquired{}, codeNone
			}
			e.cfg.Logger.Warn("share fetch: log not read", "topic", p.name, "partition", p.part, "err", err)
			return acquired{}, codeUnknownServerError
		}
		got, again := e.acquire(key, s, k, acquireAsk{
			owner: key.member, from: from, maxRecords: records, batchSize: int64(req.BatchSize),
			exact: req.ShareAcquireMode == recordLimit, committed: committed, chunk: chunk, moves: moves,
		})
		if !again {
			return got, codeNone
		}
	}
	return acquired{}, codeNone
}

// acquire takes from a piece of log what is free now. again says that nothing
// was and that another piece may have some: others were faster.
func (e *Engine) acquire(key sessionKey, s *session, k partKey, a acquireAsk) (got acquired, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	sp := e.partition(k)
	if sp == nil || e.sessions[key] != s || e.closed {
		return acquired{}, false // the session ended while we read: nobody would hold the records
	}
	if e.moves != a.moves {
		return acquired{}, false // this may be the leader no more; who waits for records is woken and looks again
	}
	sp.logStartMoved(a.chunk.Bounds.Start)
	cfg := e.group(k.group).config
	a.deadline = time.Now().Add(cfg.lock)
	if a.exact {
		a.batchSize = 0
	}
	got = sp.acquire(a)
	if len(got.ranges) > 0 || got.filtered {
		e.arm(a.deadline)
		return got, false
	}
	now, ok := sp.next()
	return acquired{}, ok && now != a.from
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
		p := e.newPartition(k, start)
		e.parts[k] = p
		p.tell(Event{Kind: EventStarted, To: Available}, entry{first: start, last: start})
	}
	return codeNone
}

// fill writes what was acquired and how acknowledgements went into the answer,
// with the lock's length as it is now and the leaders that the member should go
// to instead.
func (e *Engine) fill(resp *kmsg.ShareFetchResponse, group string, got []served, acked []ackResult) {
	resp.AcquisitionLockTimeoutMillis = e.lockMillis(group)
	slots := make(map[topicPart]*kmsg.ShareFetchResponseTopicPartition)
	var order []topicPart
	slot := func(p placed) *kmsg.ShareFetchResponseTopicPartition {
		out := slots[p.topicPart]
		if out == nil {
			part := kmsg.NewShareFetchResponseTopicPartition()
			out = &part
			out.Partition, out.Records = p.part, []byte{} // the protocol has no null here
			slots[p.topicPart] = out
			order = append(order, p.topicPart)
		}
		if p.leader >= 0 { // without a hint Kafka writes zeros
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = p.leader, p.epoch
		}
		return out
	}
	for _, g := range got {
		out := slot(g.placed)
		if g.code != codeNone {
			out.ErrorCode = g.code
		}
		if len(g.got.ranges) == 0 {
			continue
		}
		out.Records = g.got.records
		for _, r := range g.got.ranges {
			ar := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
			ar.FirstOffset, ar.LastOffset, ar.DeliveryCount = r.first, r.last, r.count
			out.AcquiredRecords = append(out.AcquiredRecords, ar)
		}
	}
	for _, a := range acked {
		slot(a.placed).AcknowledgeErrorCode = a.code
	}
	var leaders []int32
	topics := make(map[[16]byte]int)
	for _, tp := range order {
		out := slots[tp]
		leaders = append(leaders, out.CurrentLeader.LeaderID)
		i, ok := topics[tp.topic]
		if !ok {
			i = len(resp.Topics)
			topics[tp.topic] = i
			t := kmsg.NewShareFetchResponseTopic()
			t.TopicID = tp.topic
			resp.Topics = append(resp.Topics, t)
		}
		resp.Topics[i].Partitions = append(resp.Topics[i].Partitions, *out)
	}
	for _, n := range e.endpoints(leaders) {
		ep := kmsg.NewShareFetchResponseNodeEndpoint()
		ep.NodeID, ep.Host, ep.Port, ep.Rack = n.id, n.host, n.port, n.rack
		resp.NodeEndpoints = append(resp.NodeEndpoints, ep)
	}
}
