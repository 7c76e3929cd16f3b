package contender

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// floor is what no share consumer can be faster than with requests of that
// size: it sends one ShareFetch after another, accepts with each what the one
// before acquired, and throws the bytes away. It joins no group, since brokers
// serve a member that never sent a heartbeat, and it knows one leader.
func floor(ctx context.Context, j Job, w *watch) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(j.Seeds, ",")...))
	if err != nil {
		return err
	}
	defer cl.Close()
	s, err := openSession(ctx, cl, j)
	if err != nil {
		return err
	}
	if err := s.join(ctx, cl, j.Topic); err != nil {
		return err
	}
	for w.report.Records < j.Records {
		n, err := s.fetch(ctx)
		if err != nil {
			return err
		}
		w.polled(n, 0)
	}
	if err := s.finish(ctx); err != nil {
		return err
	}
	w.acknowledged()
	_, err = s.heartbeat(ctx, cl, -1, nil)
	return err
}

// bareSession is a share session with the topic's only leader.
type bareSession struct {
	leader        *kgo.Broker
	group, member string
	topic         [16]byte
	fetchRecords  int32
	epoch         int32
	acquired      []kmsg.ShareFetchRequestTopicPartition // to accept; at first all partitions
}

func openSession(ctx context.Context, cl *kgo.Client, j Job) (*bareSession, error) {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &j.Topic
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	t := resp.Topics[0]
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		return nil, err
	}
	s := &bareSession{group: j.Group, member: "AAAAAAAAAAAAAAAAAAAAAQ", topic: t.TopicID, fetchRecords: 500}
	if j.Fetch > 0 {
		s.fetchRecords = int32(j.Fetch)
	}
	leader := t.Partitions[0].Leader
	for _, p := range t.Partitions {
		if p.Leader != leader {
			return nil, fmt.Errorf("topic %s has more than one leader", j.Topic)
		}
		w := kmsg.NewShareFetchRequestTopicPartition()
		w.Partition = p.Partition
		s.acquired = append(s.acquired, w)
	}
	s.leader = cl.Broker(int(leader))
	return s, nil
}

// join becomes a member and waits until it has partitions: only then are they
// the group's. The first group of a broker waits for its coordinator too.
func (s *bareSession) join(ctx context.Context, cl *kgo.Client, topic string) error {
	pause := time.NewTicker(100 * time.Millisecond)
	defer pause.Stop()
	for epoch := int32(0); ; {
		resp, err := s.heartbeat(ctx, cl, epoch, []string{topic})
		switch {
		case kerr.IsRetriable(err):
		case err != nil:
			return err
		case resp.Assignment != nil && len(resp.Assignment.TopicPartitions) > 0:
			return nil
		default:
			epoch = resp.MemberEpoch
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (s *bareSession) heartbeat(ctx context.Context, cl *kgo.Client, epoch int32, topics []string) (*kmsg.ShareGroupHeartbeatResponse, error) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch, req.SubscribedTopicNames = s.group, s.member, epoch, topics
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, err
	}
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// fetch accepts what is acquired and acquires more; it gives the count of that.
func (s *bareSession) fetch(ctx context.Context) (records int, err error) {
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.group, &s.member, s.epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 500, 1, 50<<20
	req.MaxRecords, req.BatchSize = s.fetchRecords, s.fetchRecords
	topic := kmsg.NewShareFetchRequestTopic()
	topic.TopicID, topic.Partitions = s.topic, s.acquired
	req.Topics = append(req.Topics, topic)
	kresp, err := s.leader.Request(ctx, req)
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return 0, err
	}
	s.epoch++
	s.acquired = nil
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			for _, code := range []int16{p.ErrorCode, p.AcknowledgeErrorCode} {
				if err := kerr.ErrorForCode(code); err != nil {
					return 0, fmt.Errorf("partition %d: %w", p.Partition, err)
				}
			}
			if len(p.AcquiredRecords) == 0 {
				continue
			}
			accept := kmsg.NewShareFetchRequestTopicPartition()
			accept.Partition = p.Partition
			for _, a := range p.AcquiredRecords {
				b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
				b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.FirstOffset, a.LastOffset, []int8{1}
				accept.AcknowledgementBatches = append(accept.AcknowledgementBatches, b)
				records += int(a.LastOffset - a.FirstOffset + 1)
			}
			s.acquired = append(s.acquired, accept)
		}
	}
	return records, nil
}

// finish accepts what is acquired still, and then ends the session.
func (s *bareSession) finish(ctx context.Context) error {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.group, &s.member, s.epoch
	topic := kmsg.NewShareAcknowledgeRequestTopic()
	topic.TopicID = s.topic
	for _, p := range s.acquired {
		a := kmsg.NewShareAcknowledgeRequestTopicPartition()
		a.Partition = p.Partition
		for _, b := range p.AcknowledgementBatches {
			r := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			r.FirstOffset, r.LastOffset, r.AcknowledgeTypes = b.FirstOffset, b.LastOffset, b.AcknowledgeTypes
			a.AcknowledgementBatches = append(a.AcknowledgementBatches, r)
		}
		topic.Partitions = append(topic.Partitions, a)
	}
	req.Topics = append(req.Topics, topic)
	if err := s.acknowledge(ctx, req); err != nil {
		return err
	}
	last := kmsg.NewPtrShareAcknowledgeRequest()
	last.GroupID, last.MemberID, last.ShareSessionEpoch = &s.group, &s.member, -1
	return s.acknowledge(ctx, last)
}

func (s *bareSession) acknowledge(ctx context.Context, req *kmsg.ShareAcknowledgeRequest) error {
	kresp, err := s.leader.Request(ctx, req)
	if err != nil {
		return err
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("partition %d: %w", p.Partition, err)
			}
		}
	}
	return nil
}
