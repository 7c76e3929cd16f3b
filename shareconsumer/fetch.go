package shareconsumer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetch is one ShareFetch, with the acknowledgements that may ride on it.
func (s *session) fetch(ctx context.Context) {
	c := s.c
	c.mu.Lock()
	want := s.want
	c.mu.Unlock()
	var riders []*piece
	if s.epoch > 0 { // a session cannot be opened with acknowledgements
		riders = s.takeQueue(func(p *piece) bool { return !p.job.renew && !p.job.urgent && s.rides(p, want) })
	}
	all, err := merge(riders)
	if err != nil {
		s.failAll(riders, err)
		all, riders = acks.Set{}, nil
	}
	req, added, dropped := s.fetchRequest(want, all.Map())
	sent := time.Now()
	rctx, cancel := context.WithTimeout(ctx, c.cfg.maxWait+requestSlack)
	kresp, err := c.client.Broker(int(s.node)).Request(rctx, req)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			c.core.Logger().Warn("sharetxn: share fetch failed", "group", c.group, "broker", s.node, "err", err)
		}
		s.failAll(riders, &sharetxn.Error{Op: "ShareFetch", Class: sharetxn.ClassUnknown, Group: c.group, Err: err})
		s.lost(err)
		return
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if resp.ErrorCode != 0 {
		e := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, resp.ErrorCode)
		s.failAll(riders, e)
		s.refused(e)
		return
	}
	s.advance()
	for k, tp := range added {
		s.inside[k] = tp
	}
	for _, k := range dropped {
		delete(s.inside, k)
	}
	s.received(ctx, resp, sent, riders, &all)
}

// rides tells whether all partitions of a piece are ones that are fetched from
// anyway: one that is listed only for its acknowledgements would join the
// session.
func (s *session) rides(p *piece, want map[partKey]acks.TopicIDPartition) bool {
	for _, k := range keysOf(&p.set) {
		if _, ok := want[k]; !ok {
			return false
		}
	}
	return true
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
func (s *session) fetchRequest(want map[partKey]acks.TopicIDPartition, riders map[acks.TopicIDPartition][]acks.AcknowledgementBatch) (req *kmsg.ShareFetchRequest, added map[partKey]acks.TopicIDPartition, dropped []partKey) {
	c := s.c
	req = kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &c.group, &c.id, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(c.cfg.maxWait.Milliseconds()), 1, int32(c.cfg.maxBytes)
	req.MaxRecords, req.BatchSize = int32(c.cfg.maxPollRecords), int32(c.cfg.maxPollRecords)
	added = make(map[partKey]acks.TopicIDPartition)
	listed := make(map[partKey][]acks.AcknowledgementBatch)
	for k, tp := range want {
		if _, ok := s.inside[k]; !ok {
			added[k] = tp
			listed[k] = nil
		}
	}
	for tp, bs := range riders {
		listed[keyOf(tp)] = bs
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
		if _, ok := want[k]; !ok {
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
func (s *session) received(ctx context.Context, resp *kmsg.ShareFetchResponse, sent time.Time, riders []*piece, all *acks.Set) {
	c := s.c
	lock := time.Duration(resp.AcquisitionLockTimeoutMillis) * time.Millisecond
	c.mu.Lock()
	if lock > 0 {
		c.lock = lock
	} else {
		lock = c.lock // version 0 did not tell
	}
	c.mu.Unlock()
	codes := make(map[partKey]int16)
	failed := error(nil)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			k := partKey{t.TopicID, p.Partition}
			codes[k] = p.AcknowledgeErrorCode
			switch {
			case p.ErrorCode == 0:
				s.acquired(k, p, sent.Add(lock))
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
	if len(riders) > 0 {
		failures := make(map[partKey][]failure)
		for tp, bs := range all.Partitions() {
			code, answered := codes[keyOf(tp)]
			if !answered {
				code = kerr.InvalidRecordState.Code
			}
			if err := s.judge(ctx, tp, runsOf(bs), code, false, failures); err != nil {
				failures[keyOf(tp)] = append(failures[keyOf(tp)], failure{acks.Run{First: 0, Last: 1<<63 - 2}, err})
			}
		}
		for _, p := range riders {
			p.answered(failures)
		}
	}
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
	c.surfaced = append(c.surfaced, e)
	c.announce()
}
