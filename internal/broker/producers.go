package broker

import (
	"maps"
	"slices"

	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	codeUnknownTopicOrPartition = 3
	codeNotLeader               = 6
)

// describeProducers answers DescribeProducers with the transactional producers
// that have written to the partition: with a start those that have a transaction
// open in its log, under way or for want of a marker that was lost; without one,
// and with the epoch of the last marker, the others. Idempotent producers are not
// named. Where several are open the start of each is given as the oldest's, the
// last stable offset. Leader and followers answer, as on Kafka: kafka-transactions
// find-hanging asks one broker about all logs that it has.
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
		replicas := 0
		if info := c.kf.TopicInfo(t.Topic); info != nil {
			replicas = info.NumReplicas
		}
		for _, p := range t.Partitions {
			sp := kmsg.NewDescribeProducersResponseTopicPartition()
			sp.Partition = p
			switch info := c.kf.PartitionInfo(t.Topic, p); {
			case info == nil:
				sp.ErrorCode = codeUnknownTopicOrPartition
			case !hasLog(node, info.Leader, int32(replicas), int32(len(c.nodes()))):
				sp.ErrorCode = codeNotLeader
			default:
				known := c.marked.producers(c.TopicID(t.Topic), p)
				began := make(map[int64]int64)
				for _, v := range open[txn.Partition{Topic: t.Topic, Partition: p}] {
					known[v.Writer.ProducerID] = markedProducer{epoch: v.Writer.ProducerEpoch, open: true}
					began[v.Writer.ProducerID] = v.Began.UnixMilli()
				}
				for _, id := range slices.Sorted(maps.Keys(known)) {
					ap := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
					ap.ProducerID, ap.ProducerEpoch = id, int32(known[id].epoch)
					ap.LastSequence, ap.LastTimestamp, ap.CurrentTxnStartOffset = -1, -1, -1
					if at, underWay := began[id]; underWay {
						ap.LastTimestamp = at
					}
					if known[id].open {
						ap.CurrentTxnStartOffset = info.LastStableOffset
					}
					sp.ActiveProducers = append(sp.ActiveProducers, ap)
				}
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

// hasLog tells whether a node is the leader of a partition or a follower: kfake
// says in metadata that those are the nodes behind the leader, in a ring.
func hasLog(node, leader, replicas, brokers int32) bool {
	return (node-leader+brokers)%brokers < max(1, replicas)
}
