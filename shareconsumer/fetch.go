package shareconsumer

import (
	"context"
	"maps"
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
	want := s.fetchable()
	riders := slices.ContainsFunc(s.queue, func(p *piece) bool { return s.mayRide(p, want) })
	o := order{
		records: s.granted.records, bytes: max(1, min(c.room(), c.cfg.maxBytes/max(1, asking))), want: want,
		wait: parking{
			// A poll that was given what waits has not woken yet.
			demand: c.polling > 0 && !s.stocked(), riders: riders, out: s.out > 0 && c.cfg.mode != Transactional, dry: s.dry,
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

// fetchable is what of the wanted partitions the next fetch is to ask for; c.mu
// is held.
func (s *session) fetchable() map[partKey]acks.TopicIDPartition {
	if s.sieve.idle() {
		return s.want
	}
	topics := s.sieve.next(topicsOf(s.want), time.Now())
	return maps.Collect(func(yield func(partKey, acks.TopicIDPartition) bool) {
		for k, tp := range s.want {
			if _, in := slices.BinarySearchFunc(topics, k.topic, compareIDs); in && !yield(k, tp) {
				return
			}
		}
	})
}

// room is how many bytes may still be fetched in advance; where a poll waits a
// broker is asked in any case, and it may answer with one batch of its log, of
// whatever size. c.mu is held.
func (c *Consumer) room() int { return c.cfg.maxBytes - c.bytes - c.reserved }

// supply is what fetches are sized by; c.mu is held.
func (s *session) supply() supply {
	c := s.c
	return supply{mode: c.cfg.mode, acquire: c.cfg.acquire, pace: c.pace, lock: c.lock, poll: c.cfg.maxPollRecords, partitions: len(s.want), asked: s.asked, redelivered: s.redelivered}
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
		acked := brokerError("ShareFetch", c.group, ackClass(resp.ErrorCode), resp.ErrorCode)
		s.tellAcks(ackRequest{parts: riders.parts, riding: true, attempt: 1, sent: sent}, nil, acked)
		riders.fail(acked)
		for _, tp := range slices.Concat(added, dropped) {
			s.inside[keyOf(tp)] = entrant{tp, true} // the session may have been changed before the request failed
		}
		s.refused(e, o.want)
		return
	}
	if s.epoch == 0 {
		c.tellSession(s.node, sharetxn.SessionOpened, nil)
	}
	s.advance()
	s.sieve.passed()
	for _, tp := range added {
		s.inside[keyOf(tp)] = entrant{tp: tp}
	}
	for _, tp := range dropped {
		delete(s.inside, keyOf(tp))
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

// refused deals with an answer to a fetch from partitions that is an error as a
// whole.
func (s *session) refused(e *sharetxn.Error, from map[partKey]acks.TopicIDPartition) {
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
		if e.Code == kerr.UnknownServerError.Code {
			now := time.Now()
			s.sieve.failed(topicsOf(from), now)
			c.mu.Lock()
			s.stray = now.Add(c.lock)
			c.mu.Unlock()
		}
		c.core.Logger().Warn("sharetxn: share fetch refused", "group", c.group, "broker", s.node, "err", e)
		s.failed(maxBackoff)
	}
}

// failed pauses fetching from the broker for a moment, at most for a time.
func (s *session) failed(most time.Duration) {
	s.failures++
	s.c.mu.Lock()
	s.pause = time.Now().Add(min(backoff(s.failures), most))
	s.c.mu.Unlock()
	signal(s.c.refresh)
}

// fetchRequest lists what is new to the session, forgets what is not wanted,
// and carries acknowledgements.
func (s *session) fetchRequest(o order, riders []part) (req *kmsg.ShareFetchRequest, added, dropped []acks.TopicIDPartition) {
	c := s.c
	req = kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &c.group, &c.id, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(o.wait.Milliseconds()), 1, int32(o.bytes)
	req.MaxRecords, req.BatchSize, req.ShareAcquireMode = int32(o.records), int32(o.records), int8(c.cfg.acquire)
	listed := make(map[partKey][]acks.AcknowledgementBatch)
	for k, tp := range o.want {
		if !s.in(k) {
			added = append(added, tp)
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
	for k, e := range s.inside {
		if _, ok := o.want[k]; !ok {
			dropped = append(dropped, e.tp)
			f := kmsg.NewShareFetchRequestForgottenTopicsData()
			f.TopicID, f.Partitions = k.topic, []int32{k.part}
			req.ForgottenTopicsData = append(req.ForgottenTopicsData, f)
		}
	}
	return req, added, dropped
}

// received takes an answer apart: results of acknowledgements, errors of
// partitions, what was acquired; its records are decoded elsewhere.
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
	redelivered := false
	var parcels []*parcel
	codes := make(map[partKey]int16)
	anew := make(map[partKey][]span)
	failed := int16(0)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			k := partKey{t.TopicID, p.Partition}
			noteCode(codes, k, p.AcknowledgeErrorCode)
			e, asked := s.inside[k]
			if !asked { // nobody could say what its records are of
				c.core.Logger().Warn("sharetxn: a partition was answered that was not asked for", "group", c.group, "broker", s.node, "partition", k.part)
				continue
			}
			spans := sanitise(p.AcquiredRecords)
			anew[k] = union(slices.Concat(anew[k], spans))
			s.displaced(k, spans)
			switch {
			case p.ErrorCode == 0:
				if got := s.acquired(e.tp, p.Records, spans, sent, lock); got != nil {
					parcels = append(parcels, got)
				}
				redelivered = redelivered || slices.ContainsFunc(spans, func(x span) bool { return x.count > 1 })
			case leaderGone(p.ErrorCode):
				s.moved(k, p.ErrorCode, leader{p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch})
				failed = p.ErrorCode
			case p.ErrorCode == kerr.TopicAuthorizationFailed.Code:
				s.surface(k, p.ErrorCode)
				failed = p.ErrorCode
			default: // not initialised yet, the share coordinator loads, storage hiccups: again
				failed = p.ErrorCode
			}
		}
	}
	c.mu.Lock()
	s.redelivered = redelivered
	if s.dry++; len(parcels) > 0 {
		s.dry = 0
	}
	c.mu.Unlock()
	s.deliver(parcels)
	s.tellAcks(ackRequest{parts: riders.parts, riding: true, attempt: 1, sent: sent}, codes, nil)
	x := exchange{s: s, attempts: 1, anew: anew}
	x.judge(ctx, riders, codes)
	riders.answered()
	if failed == 0 || len(parcels) > 0 { // what the others gave is to be followed up at once
		s.failures = 0
		return
	}
	c.core.Logger().Debug("sharetxn: nothing fetched", "group", c.group, "broker", s.node, "err", kerr.ErrorForCode(failed))
	s.failed(c.cfg.maxWait) // as long as the others might have parked the fetch
}

func (s *session) surface(k partKey, code int16) {
	c := s.c
	c.mu.Lock()
	defer c.mu.Unlock()
	e := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, code)
	e.Topic, e.Partition = c.topics[k.topic], k.part
	c.tell(e)
}
