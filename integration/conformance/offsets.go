package conformance

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Codes of admin requests.
const (
	codeInvalidConfig = 40
)

// described is one partition of a DescribeShareGroupOffsets answer.
type described struct {
	Code  int16
	Start int64
	Lag   int64
}

// offsets describes the share partition now.
func (h *held) offsets(ctx context.Context) described {
	h.Helper()
	return h.Described(ctx, h.group, h.topic, 0)
}

// Described describes one share partition of a group that exists.
func (x *X) Described(ctx context.Context, group string, t Topic, partition int32) described {
	x.Helper()
	rt := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
	rt.Topic, rt.Partitions = t.Name, []int32{partition}
	rg := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	rg.GroupID, rg.Topics = group, []kmsg.DescribeShareGroupOffsetsRequestGroupTopic{rt}
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	req.Groups = append(req.Groups, rg)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	if code := resp.Groups[0].ErrorCode; code != 0 {
		x.Fatalf("describe offsets of %s: code %d", group, code)
	}
	p := resp.Groups[0].Topics[0].Partitions[0]
	return described{p.ErrorCode, p.StartOffset, p.Lag}
}
