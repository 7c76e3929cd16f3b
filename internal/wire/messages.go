package wire

import "github.com/sharetxn/sharetxn/acks"

// Request is TxnShareAcknowledgeRequest v0 (reference: KIP-1289, draft schema).
// It implements kmsg.Request.
type Request struct {
	Profile Profile // decides key and the encoding of types
	Version int16

	TransactionalID *string
	GroupID         string
	ProducerID      int64
	ProducerEpoch   int16
	MemberID        string
	MemberEpoch     int32
	Topics          []RequestTopic
}

// RequestTopic is one topic of a Request.
type RequestTopic struct {
	TopicID    [16]byte
	Partitions []RequestPartition
}

// RequestPartition is one partition's acknowledgements, ascending and disjoint.
type RequestPartition struct {
	Partition int32
	Batches   []acks.AcknowledgementBatch
}

// Response is TxnShareAcknowledgeResponse v0. It implements kmsg.Response and
// kmsg.ThrottleResponse.
type Response struct {
	Profile Profile
	Version int16

	ThrottleMillis int32
	ErrorCode      int16
	Topics         []ResponseTopic
}

// ResponseTopic is one topic of a Response.
type ResponseTopic struct {
	TopicID    [16]byte
	Partitions []ResponsePartition
}

// ResponsePartition is one partition's result.
type ResponsePartition struct {
	Partition     int32
	ErrorCode     int16
	ErrorMessage  *string
	CurrentLeader *CurrentLeader // KIP93 only, tagged field 0; nil if absent
}

// CurrentLeader is where the partition's leader is, with NOT_LEADER_OR_FOLLOWER.
type CurrentLeader struct {
	LeaderID    int32
	LeaderEpoch int32
}

// NewHandshake is the request that proves a profile: no topics, no
// transactional id (design 4.5).
func NewHandshake(p Profile) *Request { return &Request{Profile: p, ProducerID: -1, ProducerEpoch: -1} }
