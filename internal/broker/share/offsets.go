package share

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeOffsets answers DescribeShareGroupOffsets; no topics means all that
// the group has. Start offset and lag are -1 where nothing was fetched yet.
func (e *Engine) describeOffsets(ctx context.Context, c Conn, req *kmsg.DescribeShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	for _, g := range req.Groups {
		out := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		out.GroupID = g.GroupID
		switch {
		case e.cfg.Log.GroupCoordinator(g.GroupID) != c.Node:
			out.ErrorCode = codeNotCoordinator
		case !e.knows(g.GroupID):
			out.ErrorCode = codeGroupIDNotFound
		default:
			for _, t := range e.topicsOf(g) {
				out.Topics = append(out.Topics, e.describeTopic(ctx, g.GroupID, t.Topic, t.Partitions))
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func (e *Engine) knows(group string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[group]
	return g != nil && g.epoch > 0
}

func (e *Engine) topicsOf(g kmsg.DescribeShareGroupOffsetsRequestGroup) []kmsg.DescribeShareGroupOffsetsRequestGroupTopic {
	if g.Topics != nil {
		return g.Topics
	}
	var ids []topicPart
	e.mu.Lock()
	for k := range e.parts {
		if k.group == g.GroupID {
			ids = append(ids, topicPart{k.topic, k.part})
		}
	}
	e.mu.Unlock()
	byName := make(map[string][]int32)
	for _, tp := range ids {
		if t, ok := e.cfg.Log.Topic(tp.topic); ok {
			byName[t.Name] = append(byName[t.Name], tp.part)
		}
	}
	var out []kmsg.DescribeShareGroupOffsetsRequestGroupTopic
	for name, parts := range byName {
		slices.Sort(parts)
		out = append(out, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: name, Partitions: parts})
	}
	return out
}

func (e *Engine) describeTopic(ctx context.Context, group, name string, parts []int32) kmsg.DescribeShareGroupOffsetsResponseGroupTopic {
	out := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
	out.Topic = name
	t, ok := e.cfg.Log.TopicByName(name)
	out.TopicID = t.ID
	for _, part := range parts {
		p := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
		p.Partition, p.StartOffset, p.Lag = part, -1, -1
		if !ok || part < 0 || part >= t.Partitions {
			p.ErrorCode = codeUnknownTopicOrPartition
			out.Partitions = append(out.Partitions, p)
			continue
		}
		_, p.LeaderEpoch = e.cfg.Log.Leader(name, part)
		bounds, err := e.cfg.Log.Bounds(ctx, name, part)
		e.mu.Lock()
		sp := e.parts[partKey{group, t.ID, part}]
		switch {
		case err != nil:
			p.ErrorCode = codeUnknownServerError
		case sp != nil:
			p.StartOffset = sp.start
			p.Lag = max(0, bounds.End-sp.start-sp.deliveryComplete())
		}
		e.mu.Unlock()
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// alterOffsets answers AlterShareGroupOffsets: the group must be empty. A
// partition with staged records is refused, since a commit would then find
// nothing to acknowledge; the KIPs leave this open.
func (e *Engine) alterOffsets(c Conn, req *kmsg.AlterShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	if code := e.emptyGroup(c, req.GroupID); code != codeNone {
		resp.ErrorCode = code
		return resp
	}
	for _, rt := range req.Topics {
		out := kmsg.NewAlterShareGroupOffsetsResponseTopic()
		out.Topic = rt.Topic
		t, ok := e.cfg.Log.TopicByName(rt.Topic)
		out.TopicID = t.ID
		for _, rp := range rt.Partitions {
			p := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
			p.Partition = rp.Partition
			switch {
			case !ok || rp.Partition < 0 || rp.Partition >= t.Partitions:
				p.ErrorCode = codeUnknownTopicOrPartition
			case rp.StartOffset < 0:
				p.ErrorCode = codeInvalidRequest
			default:
				e.mu.Lock()
				e.parts[partKey{req.GroupID, t.ID, rp.Partition}] = newPartition(rp.StartOffset)
				e.mu.Unlock()
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// deleteOffsets answers DeleteShareGroupOffsets, with alterOffsets' rules.
func (e *Engine) deleteOffsets(c Conn, req *kmsg.DeleteShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	if code := e.emptyGroup(c, req.GroupID); code != codeNone {
		resp.ErrorCode = code
		return resp
	}
	for _, rt := range req.Topics {
		out := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		out.Topic = rt.Topic
		t, ok := e.cfg.Log.TopicByName(rt.Topic)
		out.TopicID = t.ID
		if !ok {
			out.ErrorCode = codeUnknownTopicOrPartition
		}
		e.mu.Lock()
		for k := range e.parts {
			if ok && k.group == req.GroupID && k.topic == t.ID {
				delete(e.parts, k)
			}
		}
		e.mu.Unlock()
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (e *Engine) emptyGroup(c Conn, name string) int16 {
	if e.cfg.Log.GroupCoordinator(name) != c.Node {
		return codeNotCoordinator
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[name]
	switch {
	case g == nil || g.epoch == 0:
		return codeGroupIDNotFound
	case len(g.members) > 0 || e.pending(name):
		return codeNonEmptyGroup
	}
	return codeNone
}
