package shareconsumer

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// riderWait is the longest that acknowledgements on a fetch wait for their
// results.
const riderWait = 500 * time.Millisecond

// fetch is one ShareFetch, with the acknowledgements that may ride on it.
func (s *session) fetch(ctx context.Context) {
	c := s.c
	c.mu.Lock()
	want := s.want
	wait := min(c.cfg.maxWait, c.lock/10) // deadlines are counted from now on
	ration := s.granted
	if ration.scarce {
		wait = min(wait, turnWait)
	}
	c.mu.Unlock()
	riders := s.takeQueue(func(p *piece) bool { return !p.job.renew && !p.job.urgent && s.rides(p, want) })
	if len(riders) > 0 {
		wait = min(wait, riderWait) // their results come with the answer
	}
	all, err := merge(riders)
	if err != nil {
		s.failAll(riders, err)
		all, riders = acks.Set{}, nil
	}
	if s.epoch == 0 {
		if err := s.reopen(ctx); err != nil {
			s.unreachable(ctx, err)
			return
		}
	}
	req, added, dropped := s.fetchRequest(want, all.Map(), wait)
	req.MaxRecords, req.BatchSize, req.ShareAcquireMode = int32(ration.records), int32(ration.records), int8(c.cfg.acquire)
	sent := time.Now()
	rctx, cancel := context.WithTimeout(ctx, wait+requestSlack)
	kresp, err := c.client.Broker(int(s.node)).Request(rctx, req)
	cancel()
	if err != nil {
		e := &sharetxn.Error{Op: "ShareFetch", Class: sharetxn.ClassUnknown, Group: c.group, Err: err}
		s.tellFetch(nil, sent, e)
		s.tellAcks(ackRequest{batches: all.Map(), riding: true, attempt: 1, sent: sent}, nil, e)
		s.failAll(riders, e)
		s.unreachable(ctx, err)
		return
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if resp.ErrorCode != 0 {
		e := brokerError("ShareFetch", c.group, sharetxn.ClassAbortable, resp.ErrorCode)
		s.tellFetch(nil, sent, e)
		s.tellAcks(ackRequest{batches: all.Map(), riding: true, attempt: 1, sent: sent}, nil, e)
		s.failAll(riders, e)
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
	s.received(ctx, resp, sent, riders, &all)
}

// reopen makes way for a new session.
func (s *session) reopen(ctx context.Context) error {
	rctx, cancel := context.WithTimeout(ctx, requestSlack)
	defer cancel()
	if err := s.end(rctx); err != nil {
		return err
	}
	if err := s.limits(rctx); err != nil {
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
func (s *session) fetchRequest(want map[partKey]acks.TopicIDPartition, riders map[acks.TopicIDPartition][]acks.AcknowledgementBatch, wait time.Duration) (req *kmsg.ShareFetchRequest, added map[partKey]acks.TopicIDPartition, dropped []partKey) {
	c := s.c
	req = kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &c.group, &c.id, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = int32(wait.Milliseconds()), 1, int32(c.cfg.maxBytes)
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
	anew := make(map[partKey][]span)
	failed := error(nil)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			k := partKey{t.TopicID, p.Partition}
			codes[k] = p.AcknowledgeErrorCode
			switch {
			case p.ErrorCode == 0:
				anew[k] = sanitise(p.AcquiredRecords)
				s.acquired(k, p, anew[k], sent, lock)
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
	s.tellAcks(ackRequest{batches: all.Map(), riding: true, attempt: 1, sent: sent}, codes, nil)
	x := s.exchange(false)
	x.anew = anew
	x.judge(ctx, all, codes)
	for _, p := range riders {
		p.answered(x.failures)
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
	c.tell(e)
}
