package byhand

import (
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Session is the share session of a member with one broker. Its fields may be
// set by hand before a request.
type Session struct {
	Node  int32
	Epoch int32 // of the next request; the answer to it that brokers count moves it on
	m     *Member
}

// Session gives the member's session with a broker.
func (m *Member) Session(node int32) *Session {
	s := m.sessions[node]
	if s == nil {
		s = &Session{Node: node, m: m}
		m.sessions[node] = s
	}
	return s
}

// Ack is one batch of acknowledgements: one type for all, or one for each
// offset. Types as in KIP-932: 0 gap, 1 accept, 2 release, 3 reject, 4 renew.
type Ack struct {
	First, Last int64
	Types       []int8
}

// Fetch is a ShareFetch. The zero value of a limit is sent as it is, but for
// those of NewFetch.
type Fetch struct {
	Partitions              []Partition // added to the session, or listed for their acknowledgements
	Forget                  []Partition
	Acks                    map[Partition][]Ack
	MaxWait                 int32 // milliseconds
	MinBytes, MaxBytes      int32
	MaxRecords, BatchSize   int32
	RecordLimit, IsRenewAck bool
}

// NewFetch fetches from partitions with generous limits and a short wait.
func NewFetch(partitions ...Partition) Fetch {
	return Fetch{Partitions: partitions, MaxWait: 200, MinBytes: 1, MaxBytes: 50 << 20, MaxRecords: 500, BatchSize: 500}
}

// Fetched is an answer taken apart. Code is that of the whole answer.
type Fetched struct {
	Code       int16
	LockMillis int32
	Parts      map[Partition]FetchedPart
	Raw        *kmsg.ShareFetchResponse
}

// FetchedPart is what an answer tells of one partition.
type FetchedPart struct {
	Code, AckCode int16
	Leader        kmsg.ShareFetchResponseTopicPartitionCurrentLeader
	Acquired      []Acquired
	Records       []*kgo.Record // all that were sent, acquired or not
	Undecodable   error
}

// Acquired is a range of offsets that the member holds now.
type Acquired struct {
	First, Last int64
	Count       int16 // deliveries, this one included
}

// Fetch sends one request at the session's epoch.
func (s *Session) Fetch(ctx context.Context, f Fetch) (Fetched, error) {
	req := kmsg.NewPtrShareFetchRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &s.m.Group, &s.m.ID, s.Epoch
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = f.MaxWait, f.MinBytes, f.MaxBytes
	req.MaxRecords, req.BatchSize, req.IsRenewAck = f.MaxRecords, f.BatchSize, f.IsRenewAck
	if f.RecordLimit {
		req.ShareAcquireMode = 1
	}
	listed := slices.Clone(f.Partitions)
	for p := range f.Acks {
		if !slices.Contains(listed, p) {
			listed = append(listed, p)
		}
	}
	for _, p := range listed {
		i := slices.IndexFunc(req.Topics, func(t kmsg.ShareFetchRequestTopic) bool { return t.TopicID == p.Topic })
		if i < 0 {
			i = len(req.Topics)
			t := kmsg.NewShareFetchRequestTopic()
			t.TopicID = p.Topic
			req.Topics = append(req.Topics, t)
		}
		part := kmsg.NewShareFetchRequestTopicPartition()
		part.Partition = p.Index
		for _, a := range f.Acks[p] {
			w := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
			w.FirstOffset, w.LastOffset, w.AcknowledgeTypes = a.First, a.Last, a.Types
			part.AcknowledgementBatches = append(part.AcknowledgementBatches, w)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
	}
	for _, p := range f.Forget {
		w := kmsg.NewShareFetchRequestForgottenTopicsData()
		w.TopicID, w.Partitions = p.Topic, []int32{p.Index}
		req.ForgottenTopicsData = append(req.ForgottenTopicsData, w)
	}
	kresp, err := s.m.client.Broker(int(s.Node)).Request(ctx, req)
	if err != nil {
		return Fetched{}, fmt.Errorf("ShareFetch at broker %d: %w", s.Node, err)
	}
	resp := kresp.(*kmsg.ShareFetchResponse)
	s.moved(resp.ErrorCode)
	return takeApart(resp), nil
}

// Acknowledged is an answer taken apart.
type Acknowledged struct {
	Code       int16
	LockMillis int32
	Parts      map[Partition]int16
	Raw        *kmsg.ShareAcknowledgeResponse
}

// Acknowledge sends one ShareAcknowledge at the session's epoch. IsRenewAck is
// set if renew is.
func (s *Session) Acknowledge(ctx context.Context, acks map[Partition][]Ack, renew bool) (Acknowledged, error) {
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch, req.IsRenewAck = &s.m.Group, &s.m.ID, s.Epoch, renew
	for p, as := range acks {
		i := slices.IndexFunc(req.Topics, func(t kmsg.ShareAcknowledgeRequestTopic) bool { return t.TopicID == p.Topic })
		if i < 0 {
			i = len(req.Topics)
			t := kmsg.NewShareAcknowledgeRequestTopic()
			t.TopicID = p.Topic
			req.Topics = append(req.Topics, t)
		}
		part := kmsg.NewShareAcknowledgeRequestTopicPartition()
		part.Partition = p.Index
		for _, a := range as {
			w := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
			w.FirstOffset, w.LastOffset, w.AcknowledgeTypes = a.First, a.Last, a.Types
			part.AcknowledgementBatches = append(part.AcknowledgementBatches, w)
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, part)
	}
	kresp, err := s.m.client.Broker(int(s.Node)).Request(ctx, req)
	if err != nil {
		return Acknowledged{}, fmt.Errorf("ShareAcknowledge at broker %d: %w", s.Node, err)
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	s.moved(resp.ErrorCode)
	out := Acknowledged{Code: resp.ErrorCode, LockMillis: resp.AcquisitionLockTimeoutMillis, Parts: make(map[Partition]int16), Raw: resp}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			out.Parts[Partition{t.TopicID, p.Partition}] = p.ErrorCode
		}
	}
	return out, nil
}

// CloseSession sends the final epoch, with acknowledgements or none; the next
// request opens a new session.
func (s *Session) CloseSession(ctx context.Context, acks map[Partition][]Ack) (Acknowledged, error) {
	s.Epoch = -1
	out, err := s.Acknowledge(ctx, acks, false)
	s.Epoch = 0
	return out, err
}

// moved follows the broker's count: a good answer is counted. After another the
// caller says what is next.
func (s *Session) moved(code int16) {
	if code == 0 && s.Epoch >= 0 {
		s.Epoch++
	}
}

func takeApart(resp *kmsg.ShareFetchResponse) Fetched {
	out := Fetched{Code: resp.ErrorCode, LockMillis: resp.AcquisitionLockTimeoutMillis, Parts: make(map[Partition]FetchedPart), Raw: resp}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			part := FetchedPart{Code: p.ErrorCode, AckCode: p.AcknowledgeErrorCode, Leader: p.CurrentLeader}
			for _, a := range p.AcquiredRecords {
				part.Acquired = append(part.Acquired, Acquired{a.FirstOffset, a.LastOffset, a.DeliveryCount})
			}
			part.Records, part.Undecodable = decode(p.Partition, p.Records)
			out.Parts[Partition{t.TopicID, p.Partition}] = part
		}
	}
	return out
}

func decode(partition int32, raw []byte) ([]*kgo.Record, error) {
	if len(raw) == 0 {
		return nil, nil
	}
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition, p.RecordBatches = partition, raw
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = -1, -1, -1
	fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Partition: partition, KeepControlRecords: true}, &p, kgo.DefaultDecompressor(), nil)
	return fp.Records, fp.Err
}

// Member is whose session it is.
func (s *Session) Member() *Member { return s.m }
