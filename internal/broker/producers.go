package broker

import (
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	codeUnknownTopicOrPartition = 3
	codeNotLeader               = 6
)

// describeProducers answers DescribeProducers with the transactional producers
// that have a transaction open on the partition: kfake, which sees no ends,
// would name them for ever. Idle and idempotent producers are not named. Where
// several are open the start of each is given as the oldest's, the last stable
// offset.
func (c *Cluster) describeProducers(node int32, req *kmsg.DescribeProducersRequest) *kmsg.DescribeProducersResponse {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	open := make(map[txn.Partition][]txn.View)
	for _, v := range c.txns.Transactions() {
		for _, p := range v.Partitions {
			open[p] = append(open[p], v)
		}
	}
	for _, t := range req.Topics {
		st := kmsg.NewDescribeProducersResponseTopic()
		st.Topic = t.Topic
		for _, p := range t.Partitions {
			sp := kmsg.NewDescribeProducersResponseTopicPartition()
			sp.Partition = p
			switch info := c.kf.PartitionInfo(t.Topic, p); {
			case info == nil:
				sp.ErrorCode = codeUnknownTopicOrPartition
			case info.Leader != node:
				sp.ErrorCode = codeNotLeader
			default:
				for _, v := range open[txn.Partition{Topic: t.Topic, Partition: p}] {
					ap := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					ap.ProducerID, ap.ProducerEpoch = v.Writer.ProducerID, int32(v.Writer.ProducerEpoch)
					ap.LastSequence, ap.LastTimestamp = -1, v.Began.UnixMilli()
					ap.CurrentTxnStartOffset = info.LastStableOffset
					sp.ActiveProducers = append(sp.ActiveProducers, ap)
				}
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}
