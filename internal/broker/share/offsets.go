package share

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// describeOffsets answers DescribeShareGroupOffsets; no topics means all that
// the group has. Start offset and lag are -1 where nothing was acknowledged or
// given back yet, since they come from what was persisted; so it is of topics
// and groups that do not exist, which Kafka does not look for (measured).
func (e *Engine) describeOffsets(ctx context.Context, c Conn, req *kmsg.DescribeShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	for _, g := range req.Groups {
		out := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		out.GroupID = g.GroupID
		if e.cfg.Log.GroupCoordinator(g.GroupID) != c.Node {
			out.ErrorCode = codeNotCoordinator
		} else {
			for _, t := range e.topicsOf(g) {
				out.Topics = append(out.Topics, e.describeTopic(ctx, g.GroupID, t.Topic, t.Partitions))
			}
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func (e *Engine) topicsOf(g kmsg.DescribeShareGroupOffsetsRequestGroup) []kmsg.DescribeShareGroupOffsetsRequestGroupTopic {
	if g.Topics != nil {
		return g.Topics
	}
	ids := make(map[topicPart]bool)
	e.mu.Lock()
	for k := range e.parts {
		if k.group == g.GroupID {
			ids[topicPart{k.topic, k.part}] = true
		}
	}
	for topic, n := range e.group(g.GroupID).begun {
		for part := range n {
			ids[topicPart{topic, part}] = true
		}
	}
	e.mu.Unlock()
	byName := make(map[string][]int32)
	for tp := range ids {
		if t, ok := e.cfg.Log.Topic(tp.topic); ok {
			byName[t.Name] = append(byName[t.Name], tp.part)
		}
	}
	var out []kmsg.DescribeShareGroupOffsetsRequestGroupTopic
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		slices.Sort(byName[name])
		out = append(out, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: name, Partitions: byName[name]})
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
			if ok {
				p.ErrorCode = codeUnknownTopicOrPartition
			}
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
		case sp != nil && sp.written:
			p.StartOffset = sp.told
			p.Lag = bounds.End - sp.start - sp.deliveryComplete()
		}
		e.mu.Unlock()
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

// alterOffsets answers AlterShareGroupOffsets: the group must be empty, and one
// that does not exist is made. -1 leaves the start to the reset policy. A group
// with staged records is refused, since their transaction would then decide
// nothing; the KIPs leave this open.
func (e *Engine) alterOffsets(c Conn, req *kmsg.AlterShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	if code := e.emptyGroup(c, req.GroupID); code != codeNone && code != codeGroupIDNotFound {
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
			case rp.StartOffset < -1:
				p.ErrorCode = codeInvalidRequest
			default:
				e.setStart(partKey{req.GroupID, t.ID, rp.Partition}, rp.StartOffset)
			}
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

func (e *Engine) setStart(k partKey, start int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g := e.group(k.group); g.epoch == 0 {
		g.epoch, g.target = 1, 1
	}
	if start < 0 {
		e.unset(k)
	} else {
		p := e.newPartition(k, start)
		p.write()
		e.parts[k] = p
		p.tell(Event{Kind: EventReset, To: Available}, entry{first: start, last: start})
	}
	e.broadcast()
}

// deleteOffsets answers DeleteShareGroupOffsets: the group must exist, be empty
// and have nothing staged.
func (e *Engine) deleteOffsets(c Conn, req *kmsg.DeleteShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	if code := e.emptyGroup(c, req.GroupID); code != codeNone {
		resp.ErrorCode = code
		return resp
	}
	for _, rt := range req.Topics {
		out := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		out.Topic = rt.Topic
		if t, ok := e.cfg.Log.TopicByName(rt.Topic); ok && e.forgetTopic(req.GroupID, t.ID) {
			out.TopicID = t.ID
		} else {
			out.ErrorCode = codeUnknownTopicOrPartition
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// forgetTopic tells whether the group had offsets of the topic.
func (e *Engine) forgetTopic(group string, topic [16]byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	had := len(e.parts)
	e.forget(func(k partKey) bool { return k.group == group && k.topic == topic })
	g := e.group(group)
	_, begun := g.begun[topic]
	delete(g.begun, topic)
	return begun || len(e.parts) < had
}

func (e *Engine) emptyGroup(c Conn, name string) int16 {
	if e.cfg.Log.GroupCoordinator(name) != c.Node {
		return codeNotCoordinator
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := e.groups[name]
	switch {
	case g != nil && (len(g.members) > 0 || e.pending(name)):
		return codeNonEmptyGroup
	case g == nil || g.epoch == 0:
		return codeGroupIDNotFound
	}
	return codeNone
}
