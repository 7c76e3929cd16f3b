package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logs is share.Log over kfake.
type logs struct{ c *Cluster }

var _ share.Log = logs{}

func (l logs) topic(name string, id [16]byte) (share.Topic, bool) {
	n := int32(len(l.c.kf.PartitionInfos(name)))
	return share.Topic{ID: id, Name: name, Partitions: n}, n > 0
}

func (l logs) Topic(id [16]byte) (share.Topic, bool) {
	t := l.c.kf.TopicIDInfo(id)
	if t == nil {
		return share.Topic{}, false
	}
	return l.topic(t.Topic, id)
}

func (l logs) TopicByName(name string) (share.Topic, bool) {
	t := l.c.kf.TopicInfo(name)
	if t == nil {
		return share.Topic{}, false
	}
	return l.topic(name, t.TopicID)
}

func (l logs) Leader(topic string, partition int32) (node, epoch int32) {
	p := l.c.kf.PartitionInfo(topic, partition)
	if p == nil {
		return -1, -1
	}
	return p.Leader, p.Epoch
}

func (l logs) Node(node int32) (string, int32, *string, bool) {
	host, port, ok := l.c.hostPort(node)
	return host, port, nil, ok
}

func (l logs) GroupCoordinator(group string) int32 { return l.c.kf.CoordinatorFor(group) }

// GroupTaken asks kfake, which has no share groups here.
func (l logs) GroupTaken(group string) bool { return l.c.kf.GroupInfo(group) != nil }

var errNoPartition = errors.New("no such partition")

func (l logs) Bounds(_ context.Context, topic string, partition int32) (share.Bounds, error) {
	p := l.c.kf.PartitionInfo(topic, partition)
	if p == nil {
		return share.Bounds{}, errNoPartition
	}
	return share.Bounds{Start: p.LogStartOffset, LastStable: p.LastStableOffset, End: p.HighWatermark}, nil
}

// fetchVersion is the newest Fetch that names topics by name.
const fetchVersion = 12

func (l logs) Read(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32, committed bool) (share.Chunk, error) {
	bounds, err := l.Bounds(ctx, topic, partition)
	if err != nil {
		return share.Chunk{}, err
	}
	chunk := share.Chunk{Bounds: bounds}
	if offset >= bounds.End {
		return chunk, nil
	}
	offset = max(offset, bounds.Start)
	p, err := l.fetch(ctx, topic, partition, offset, maxBytes, 0)
	if err != nil {
		return share.Chunk{}, err
	}
	chunk.Records = p.RecordBatches
	if committed {
		chunk.Aborted, err = l.aborted(ctx, topic, partition, offset, maxBytes)
	}
	return chunk, err
}

// aborted asks which aborted transactions a piece of log touches: only a
// read_committed fetch tells.
func (l logs) aborted(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32) ([]share.AbortedTxn, error) {
	p, err := l.fetch(ctx, topic, partition, offset, maxBytes, 1)
	if err != nil {
		return nil, err
	}
	var out []share.AbortedTxn
	for _, a := range p.AbortedTransactions {
		out = append(out, share.AbortedTxn{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
	}
	return out, nil
}

// askLeader asks kfake's leader of a partition, again where it moved between
// the look and the question; code is the answer's of the partition.
func (l logs) askLeader(ctx context.Context, topic string, partition int32, req kmsg.Request, code func(kmsg.Response) (int16, error)) (kmsg.Response, error) {
	for {
		leader, _ := l.Leader(topic, partition)
		if leader < 0 {
			return nil, errNoPartition
		}
		resp, err := l.c.broker(leader).Do(ctx, req)
		if err != nil {
			return nil, err
		}
		switch c, err := code(resp); {
		case err != nil:
			return nil, err
		case c == codeNotLeader:
			continue
		default:
			return resp, kerr.ErrorForCode(c)
		}
	}
}

// fetch limits the partition and not the answer: kfake tells no aborted
// transactions where the limit of the whole answer cut it.
func (l logs) fetch(ctx context.Context, topic string, partition int32, offset int64, maxBytes int32, isolation int8) (*kmsg.FetchResponseTopicPartition, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.MaxBytes, req.SessionEpoch, req.IsolationLevel = fetchVersion, math.MaxInt32, -1, isolation
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes = partition, offset, maxBytes
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := l.askLeader(ctx, topic, partition, req, func(r kmsg.Response) (int16, error) {
		resp := r.(*kmsg.FetchResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, fmt.Errorf("fetch answered %d topics, code %d", len(resp.Topics), resp.ErrorCode)
		}
		return resp.Topics[0].Partitions[0].ErrorCode, nil
	})
	if err != nil {
		return nil, err
	}
	return &kresp.(*kmsg.FetchResponse).Topics[0].Partitions[0], nil
}

func (l logs) OffsetForTime(ctx context.Context, topic string, partition int32, at time.Time) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 4, -1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = partition, at.UnixMilli(), -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := l.askLeader(ctx, topic, partition, req, func(r kmsg.Response) (int16, error) {
		resp := r.(*kmsg.ListOffsetsResponse)
		if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
			return 0, fmt.Errorf("list offsets answered %d topics", len(resp.Topics))
		}
		return resp.Topics[0].Partitions[0].ErrorCode, nil
	})
	if err != nil {
		return 0, err
	}
	if found := kresp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset; found >= 0 {
		return found, nil
	}
	bounds, err := l.Bounds(ctx, topic, partition) // nothing is that young
	return bounds.End, err
}
