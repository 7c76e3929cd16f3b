package broker

import (
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A group id means one group of one type. kfake, which has the other types, does
// not know of the share groups here.
const (
	keyOffsetCommit      = 8
	keyJoinGroup         = 11
	keyConsumerHeartbeat = 68
)

const (
	codeInconsistentProtocol = 23
	codeGroupIDNotFound      = 69
)

// foreignGroup answers requests of other group types which name a share group
// that this node coordinates, as Kafka does (measured); all others are kfake's.
func (c *Cluster) foreignGroup(conn *front.Conn, m kmsg.Request) (kmsg.Response, error) {
	ours := func(group string) bool {
		_, ok := c.engine.Groups()[group]
		return ok && c.kf.CoordinatorFor(group) == conn.Node
	}
	switch m := m.(type) {
	case *kmsg.JoinGroupRequest:
		if ours(m.Group) {
			resp := m.ResponseKind().(*kmsg.JoinGroupResponse)
			resp.ErrorCode, resp.Generation, resp.MemberID = codeInconsistentProtocol, -1, m.MemberID
			return resp, nil
		}
	case *kmsg.ConsumerGroupHeartbeatRequest:
		if ours(m.Group) {
			resp := m.ResponseKind().(*kmsg.ConsumerGroupHeartbeatResponse)
			resp.ErrorCode = codeGroupIDNotFound
			return resp, nil
		}
	case *kmsg.OffsetCommitRequest:
		if ours(m.Group) {
			resp := m.ResponseKind().(*kmsg.OffsetCommitResponse)
			for _, t := range m.Topics {
				rt := kmsg.NewOffsetCommitResponseTopic()
				rt.Topic, rt.TopicID = t.Topic, t.TopicID
				for _, p := range t.Partitions {
					rp := kmsg.NewOffsetCommitResponseTopicPartition()
					rp.Partition, rp.ErrorCode = p.Partition, codeGroupIDNotFound
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return resp, nil
		}
	}
	return nil, errKfake
}
