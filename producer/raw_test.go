package producer

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// raw is a share group member made of single requests, for what no consumer of
// ours does.
type raw struct {
	w     *world
	cl    *kgo.Client
	group string
	id    string
	epoch int32

	session map[int32]int32 // by node: epoch of the next request
}

func joinRaw(ctx context.Context, t testing.TB, w *world, group string) *raw {
	t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	m := &raw{w: w, cl: cl, group: group, id: "raw-member", session: make(map[int32]int32)}
	testkit.Eventually(ctx, t, "the member is assigned", func() bool {
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.GroupID, req.MemberID, req.MemberEpoch = group, m.id, m.epoch
		if m.epoch == 0 {
			req.SubscribedTopicNames = []string{"in"}
		}
		resp, err := req.RequestWith(ctx, cl)
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("heartbeat: %v, code %d", err, resp.ErrorCode)
		}
		m.epoch = resp.MemberEpoch
		return resp.Assignment != nil && len(resp.Assignment.TopicPartitions) > 0
	})
	return m
}

func (m *raw) meta(t testing.TB) groupmeta.ShareGroupMetadata {
	t.Helper()
	meta, err := groupmeta.New(m.group, m.id, m.epoch)
	if err != nil {
		t.Fatal(err)
	}
	return meta
}

// batch is acknowledgements of one offset of topic "in".
func (m *raw) batch(partition int32, offset int64, typ acks.Type) map[acks.TopicIDPartition][]acks.AcknowledgementBatch {
	tp := acks.TopicIDPartition{TopicID: m.w.TopicID("in"), Topic: "in", Partition: partition}
	return map[acks.TopicIDPartition][]acks.AcknowledgementBatch{tp: {{FirstOffset: offset, LastOffset: offset, Types: []acks.Type{typ}}}}
}

func (m *raw) next(node int32) int32 {
	e := m.session[node]
	m.session[node]++
	return e
}

// fetch acquires what there is of a partition.
func (m *raw) fetch(ctx context.Context, t testing.TB, partition int32) {
	t.Helper()
	node := m.w.Leader("in", partition)
	testkit.Eventually(ctx, t, "records are acquired", func() bool {
		req := kmsg.NewPtrShareFetchRequest()
		req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.next(node)
		req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.MaxRecords, req.BatchSize = 100, 1, 1<<20, 100, 100
		rt := kmsg.NewShareFetchRequestTopic()
		rt.TopicID = m.w.TopicID("in")
		rp := kmsg.NewShareFetchRequestTopicPartition()
		rp.Partition, rp.PartitionMaxBytes = partition, 1<<20
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		kresp, err := m.cl.Broker(int(node)).Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		resp := kresp.(*kmsg.ShareFetchResponse)
		if resp.ErrorCode != 0 {
			t.Fatalf("fetch: code %d", resp.ErrorCode)
		}
		for _, rt := range resp.Topics {
			for _, rp := range rt.Partitions {
				if len(rp.AcquiredRecords) > 0 {
					return true
				}
			}
		}
		return false
	})
}

// acknowledge gives the partition's code of a plain acknowledgement.
func (m *raw) acknowledge(ctx context.Context, t testing.TB, partition int32, offset int64, typ acks.Type) int16 {
	t.Helper()
	node := m.w.Leader("in", partition)
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &m.group, &m.id, m.next(node)
	rt := kmsg.NewShareAcknowledgeRequestTopic()
	rt.TopicID = m.w.TopicID("in")
	rp := kmsg.NewShareAcknowledgeRequestTopicPartition()
	rp.Partition = partition
	rb := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
	rb.FirstOffset, rb.LastOffset, rb.AcknowledgeTypes = offset, offset, []int8{int8(typ)}
	rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, rb)
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	kresp, err := m.cl.Broker(int(node)).Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	resp := kresp.(*kmsg.ShareAcknowledgeResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		t.Fatalf("acknowledge: %+v", resp)
	}
	return resp.Topics[0].Partitions[0].ErrorCode
}

// countCode counts the partitions that a staging answer gives a code.
func countCode(code int16, n *atomic.Int64) func(kmsg.Response) {
	return func(kresp kmsg.Response) {
		for _, rt := range kresp.(*wire.Response).Topics {
			for _, rp := range rt.Partitions {
				if rp.ErrorCode == code {
					n.Add(1)
				}
			}
		}
	}
}

// remaining are the batches that still hold records.
func remaining(bs []*shareconsumer.Batch) (rest []*shareconsumer.Batch) {
	for _, b := range bs {
		if len(b.Records()) > 0 {
			rest = append(rest, b)
		}
	}
	return rest
}

func count(bs []*shareconsumer.Batch) (n int) {
	for _, b := range bs {
		n += len(b.Records())
	}
	return n
}

// again gives the n records of bs once more, after an abort. Of those that had
// been staged, or may have been, Draft95 leaves none with us and the broker
// delivers them anew: kept is the rest. KIP93 leaves all with us, at their first
// delivery.
func (w *world) again(ctx context.Context, t testing.TB, c *shareconsumer.Consumer, bs []*shareconsumer.Batch, n, kept int) []*shareconsumer.Batch {
	t.Helper()
	if w.profile == wire.KIP93 {
		kept = n
	}
	rest := remaining(bs)
	if got := count(rest); got != kept {
		t.Fatalf("%d records are still held after the abort, want %d", got, kept)
	}
	for _, b := range rest {
		for _, r := range b.Records() {
			if _, decided := r.Verdict(); decided || r.DeliveryCount() != 1 {
				t.Errorf("record %s, still held: decided %v, delivery %d", r.Value, decided, r.DeliveryCount())
			}
		}
	}
	for _, b := range gather(ctx, t, c, n-kept) {
		for _, r := range b.Records() {
			if r.DeliveryCount() != 2 {
				t.Errorf("record %s, delivered again: delivery %d", r.Value, r.DeliveryCount())
			}
		}
		rest = append(rest, b)
	}
	return rest
}

// initAgain asks for a producer epoch at the present one, as a client that lost
// track does, and tells whether the coordinator's epoch moved.
func (w *world) initAgain(ctx context.Context, t testing.TB, id string) bool {
	t.Helper()
	cl, err := w.cl.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	before := w.txn(id)
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, 15_000
	req.ProducerID, req.ProducerEpoch = before.ProducerID, before.ProducerEpoch
	testkit.Eventually(ctx, t, "InitProducerId is answered", func() bool {
		resp, err := req.RequestWith(ctx, cl)
		if err != nil || resp.ErrorCode != 0 && resp.ErrorCode != kerr.ConcurrentTransactions.Code {
			t.Fatalf("InitProducerId: %v, code %d", err, resp.ErrorCode)
		}
		return resp.ErrorCode == 0
	})
	return w.txn(id).ProducerEpoch > before.ProducerEpoch
}
