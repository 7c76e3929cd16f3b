package shareconsumer

import (
	"context"
	"slices"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// order is what a fetch asks for.
type order struct {
	records, bytes int
	wait           time.Duration
	want           map[partKey]acks.TopicIDPartition
}

// order fixes what the next fetch asks for, and reserves the memory; c.mu is
// held.
func (s *session) order() order {
	c := s.c
	asking := 0 // brokers that the memory is shared by
	for _, x := range c.sessions {
		if len(x.want) > 0 {
			asking++
		}
	}
	riders := slices.ContainsFunc(s.queue, func(p *piece) bool { return s.mayRide(p, s.want) })
	o := order{
		records: s.granted.records, bytes: max(1, min(c.room(), c.cfg.maxBytes/max(1, asking))), want: s.want,
		wait: parking{
			demand: c.polling > 0, riders: riders, out: s.out > 0 && c.cfg.mode != Transactional, dry: s.dry,
			longest: longest(c.cfg.maxWait, c.lock, c.cfg.closeTimeout),
		}.wait(),
	}
	if s.granted.scarce {
		o.wait = min(o.wait, turnWait)
	}
	s.asked = o.records
	c.reserved += o.bytes
	return o
}

// room is how many bytes may still be fetched in advance; where a poll waits a
// broker is asked in any case, and it may answer with one batch of its log, of
// whatever size. c.mu is held.
func (c *Consumer) room() int { return c.cfg.maxBytes - c.bytes - c.reserved }

// supply is what fetches are sized by; c.mu is held.
func (s *session) supply() supply {
	c := s.c
	return supply{mode: c.cfg.mode, acquire: c.cfg.acquire, pace: c.pace, lock: c.lock, poll: c.cfg.maxPollRecords, partitions: len(s.want), asked: s.asked}
}

// mayRide tells whether a piece goes with a fetch.
func (s *session) mayRide(p *piece, want map[partKey]acks.TopicIDPartition) bool {
	return !p.job.renew && !p.job.urgent && s.rides(p, want)
}

// unreserve gives back what an order reserved.
func (s *session) unreserve(o order) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reserved -= o.bytes
}

// fetch is one ShareFetch, with the acknowledgements that may ride on it.
func (s *session) fetch(ctx context.Context, o order) {
	defer s.unreserve(o)
	c := s.c
	var riders load
	if s.epoch == 0 {
		if err := s.reopen(ctx); err != nil {
			s.unreachable(ctx, err)
			return
		}
	} else {
		riders = s.takeQueue(func(p *piece) bool { return s.mayRide(p, o.want) })
	}
	req, added, dropped := s.fetchRequest(o, riders.parts)
	sent := time.Now()
	rctx, cancel := context.WithTimeout(ctx, o.wait+requestSlack)
	kresp, err := c.client.Broker(int(s.node)).Request(rctx, req)
	cancel()
	if err != nil {
		e := &sharetxn.Error{Op: "ShareFetch", Class: sharetxn.ClassUnknown, Group: c.group, Err: err}
		s.tellFetch(nil, sent, e)
		s.tellAcks(ackRequest{parts: riders.parts, riding: true, attempt: 1, sent: sent}, nil, e)
		riders.fail(e)
		s.unreachable(ctx, err)
		return
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if resp.ErrorCode != 0 {
		e := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, resp.ErrorCode)
		s.tellFetch(nil, sent, e)
		s.tellAcks(ackRequest{parts: riders.parts, riding: true, attempt: 1, sent: sent}, nil, e)
		riders.fail(e)
		s.refused(e)
		return
	}
	if s.epoch == 0 {
		c.tellSession(s.node, sharetxn.SessionOpened, nil)
	}
	s.advance()
	for k, tp := range added {
		s.inside[k] = tp
	}
	for _, k := range dropped {
		delete(s.inside, k)
	}
	s.tellFetch(resp, sent, nil) // before the records can be polled
	s.received(ctx, resp, sent, &riders)
}

// reopen makes way for a new session.
func (s *session) reopen(ctx context.Context) error {
	rctx, cancel := context.WithTimeout(ctx, requestSlack)
	defer cancel()
	if err := s.end(rctx); err != nil {
		return err
	}
	if err := s.learn(rctx); err != nil {
		return err
	}
	s.opened = true
	return nil
}

// unreachable deals with a fetch that had no answer.
func (s *session) unreachable(ctx context.Context, err error) {
	if ctx.Err() == nil {
		s.c.core.Logger().Warn("sharetxn: share fetch failed", "group", s.c.group, "broker", s.node, "err", err)
	}
	s.lost(err)
}

// refused deals with an answer that is an error as a whole.
func (s *session) refused(e *sharetxn.Error) {
	c := s.c
	switch {
	case sessionGone(e.Code):
		s.lost(e)
	case e.Code == kerr.GroupAuthorizationFailed.Code:
		s.advance()
		e.Class = sharetxn.ClassFatal
		c.setFatal(e)
	default:
		s.advance()
		s.failed(e)
	}
}

// failed pauses fetching from the broker for a moment.
func (s *session) failed(err error) {
	s.failures++
	s.c.core.Logger().Warn("sharetxn: share fetch refused", "group", s.c.group, "broker", s.node, "err", err)
	s.c.mu.Lock()
	s.pause = time.Now().Add(backoff(s.failures))
	s.c.mu.Unlock()
	signal(s.c.refresh)
}

// fetchRequest lists what is new to the session, forgets what is not wanted,
// and carries acknowledgements.
func (s *session) fetchRequest(o order, riders []part) (req *kmsg.ShareFetchRequest, added map[partKey]acks.TopicIDPartition, dropped []partKey) {
	c := s.c
	req = kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &c.group, &c.id, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(o.wait.Milliseconds()), 1, int32(o.bytes)
	req.MaxRecords, req.BatchSize, req.ShareAcquireMode = int32(o.records), int32(o.records), int8(c.cfg.acquire)
	added = make(map[partKey]acks.TopicIDPartition)
	listed := make(map[partKey][]acks.AcknowledgementBatch)
	for k, tp := range o.want {
		if _, ok := s.inside[k]; !ok {
			added[k] = tp
			listed[k] = nil
		}
	}
	for _, pt := range riders {
		listed[keyOf(pt.tp)] = batchesOf(pt)
	}
	at := make(map[[16]byte]int)
	for k, bs := range listed {
		i, ok := at[k.topic]
		if !ok {
			i = len(req.Topics)
			at[k.topic] = i
			t := kmsg.NewShareFetchRequestTopic()
			t.TopicID = k.topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewShareFetchRequestTopicPartition()
		p.Partition = k.part
		for _, b := range bs {
			w := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
			w.FirstOffset, w.LastOffset, w.AcknowledgeTypes = b.FirstOffset, b.LastOffset, wireTypes(b.Types)
			p.AcknowledgementBatches = append(p.AcknowledgementBatches, w)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, p)
	}
	for k := range s.inside {
		if _, ok := o.want[k]; !ok {
			dropped = append(dropped, k)
			f := kmsg.NewShareFetchRequestForgottenTopicsData()
			f.TopicID, f.Partitions = k.topic, []int32{k.part}
			req.ForgottenTopicsData = append(req.ForgottenTopicsData, f)
		}
	}
	return req, added, dropped
}

// received takes an answer apart: results of acknowledgements, errors of
// partitions, records.
func (s *session) received(ctx context.Context, resp *kmsg.ShareFetchResponse, sent time.Time, riders *load) {
	c := s.c
	lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
	c.mu.Lock()
	if lock > 0 {
		c.lock = lock
	} else {
		lock = c.lock // version 0 did not tell
	}
	c.mu.Unlock()
	records, redelivered := 0, false
	codes := make(map[partKey]int16)
	anew := make(map[partKey][]span)
	failed := error(nil)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			k := partKey{t.TopicID, p.Partition}
			noteCode(codes, k, p.AcknowledgeErrorCode)
			tp, asked := s.inside[k]
			if !asked { // nobody could say what its records are of
				c.core.Logger().Warn("sharetxn: a partition was answered that was not asked for", "group", c.group, "broker", s.node, "partition", k.part)
				continue
			}
			spans := sanitise(p.AcquiredRecords)
			anew[k] = union(slices.Concat(anew[k], spans))
			s.displaced(k, spans)
			switch {
			case p.ErrorCode == 0:
				records += s.acquired(tp, p, spans, sent, lock)
				redelivered = redelivered || slices.ContainsFunc(spans, func(x span) bool { return x.count > 1 })
			case leaderGone(p.ErrorCode):
				s.moved(k, p.ErrorCode, leader{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch})
				failed = kerr.ErrorForCode(p.ErrorCode)
			case p.ErrorCode == kerr.TopicAuthorizationFailed.Code:
				s.surface(k, p.ErrorCode)
				failed = kerr.ErrorForCode(p.ErrorCode)
			default: // the share coordinator loads, storage hiccups: again
				failed = kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	c.mu.Lock()
	s.redelivered = redelivered
	if s.dry++; records > 0 {
		s.dry = 0
	}
	c.mu.Unlock()
	s.tellAcks(ackRequest{parts: riders.parts, riding: true, attempt: 1, sent: sent}, codes, nil)
	x := exchange{s: s, attempts: 1, anew: anew}
	x.judge(ctx, riders, codes)
	riders.answered()
	if failed != nil {
		s.failed(failed)
		return
	}
	s.failures = 0
}

func (s *session) surface(k partKey, code int16) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, code)
	e.Topic, e.Partition = c.topics[k.topic], k.part
	c.tell(e)
}
