package broker

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// backend is txn.Backend over kfake and the share engine.
type backend struct{ c *Cluster }

var _ txn.Backend = backend{}

func (b backend) Durable() error { return b.c.durable() }

func (b backend) Exists(p txn.Partition) bool {
	return b.c.kf.PartitionInfo(p.Topic, p.Partition) != nil
}

func (b backend) Coordinator(txnID string) int32 { return b.c.kf.CoordinatorFor(txnID) }

// NewProducerID has kfake make a producer id for a name that was never used:
// kfake then takes produces of that id at whatever epoch, for any id's clients.
func (b backend) NewProducerID(ctx context.Context, txnID string) (int64, error) {
	_, id, err := b.freshID(ctx, txnID)
	return id, err
}

// freshID makes a transactional id in kfake, at epoch 0.
func (b backend) freshID(ctx context.Context, base string) (name string, id int64, err error) {
	life := 0
	if b.c.data != nil {
		life = b.c.data.life // those of earlier lives are kfake's still
	}
	name = fmt.Sprintf("%s~%d.%d", base, life, b.c.fresh.Add(1))
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &name, math.MaxInt32
	req.ProducerID, req.ProducerEpoch = -1, -1
	kresp, err := b.c.broker(b.Coordinator(name)).Do(ctx, req)
	if err != nil {
		return "", 0, err
	}
	resp := kresp.(*kmsg.InitProducerIDResponse)
	return name, resp.ProducerID, kerr.ErrorForCode(resp.ErrorCode)
}

// markerRetry is the pause after a leader did not take a marker.
const markerRetry = 5 * time.Millisecond

func (b backend) WriteMarker(ctx context.Context, p txn.Partition, producerID int64, epoch int16, commit bool) error {
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	m := kmsg.NewWriteTxnMarkersRequestMarker()
	m.ProducerID, m.ProducerEpoch, m.Committed = producerID, epoch, commit
	t := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	t.Topic, t.Partitions = p.Topic, []int32{p.Partition}
	m.Topics = append(m.Topics, t)
	req.Markers = append(req.Markers, m)
	log := markedLog{b.c.TopicID(p.Topic), p.Partition, producerID}
	if !b.c.marked.newer(log, epoch) {
		// From Kafka 4.2 on a leader takes a marker only above the newest epoch it
		// knows of the producer (KIP-1228); kfake would end the next transaction.
		return nil
	}
	for {
		leader := b.c.kf.LeaderFor(p.Topic, p.Partition)
		if leader < 0 {
			return nil // the topic was deleted, and its records with it
		}
		code, err := b.marker(ctx, leader, req)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && code == 0:
			b.c.marked.note(log, epoch)
			b.c.engine.Appended()
			return nil
		}
		b.c.cfg.Logger.Warn("marker not written, again", "topic", p.Topic, "partition", p.Partition, "code", code, "err", err)
		select {
		case <-time.After(markerRetry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// LostMarker notes that a log keeps a transaction open that has ended.
func (b backend) LostMarker(p txn.Partition, of txn.Key) {
	b.c.marked.lose(markedLog{b.c.TopicID(p.Topic), p.Partition, of.ProducerID}, of.ProducerEpoch)
}

// marked are the newest epochs of the markers in the logs, and the transactions
// whose marker was lost.
type marked struct {
	mu     sync.Mutex
	epochs map[markedLog]int16
	lost   map[markedLog]int16 // epochs of transactions
}

type markedLog struct {
	topic      [16]byte
	partition  int32
	producerID int64
}

func (m *marked) newer(log markedLog, epoch int16) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, ok := m.epochs[log]
	return !ok || epoch > newest
}

// behind tells whether the log has a marker of the producer from after the epoch.
func (m *marked) behind(log markedLog, epoch int16) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	newest, ok := m.epochs[log]
	return ok && epoch < newest
}

func (m *marked) note(log markedLog, epoch int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epochs[log] = max(epoch, m.epochs[log])
	delete(m.lost, log) // a marker ends whatever its producer id has open in the log
}

func (m *marked) lose(log markedLog, epoch int16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, before := m.lost[log]; !before {
		m.lost[log] = epoch
	}
}

// producers are those that the log knows of one partition, by id: whether a
// transaction of theirs stayed open, and the newest epoch.
func (m *marked) producers(topic [16]byte, partition int32) map[int64]markedProducer {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[int64]markedProducer)
	for log, epoch := range m.epochs {
		if log.topic == topic && log.partition == partition {
			out[log.producerID] = markedProducer{epoch: epoch}
		}
	}
	for log, epoch := range m.lost {
		if log.topic == topic && log.partition == partition {
			out[log.producerID] = markedProducer{epoch: epoch, open: true}
		}
	}
	return out
}

type markedProducer struct {
	epoch int16
	open  bool
}

func (b backend) marker(ctx context.Context, leader int32, req *kmsg.WriteTxnMarkersRequest) (int16, error) {
	kresp, err := b.c.broker(leader).Do(ctx, req)
	if err != nil {
		return 0, err
	}
	for _, m := range kresp.(*kmsg.WriteTxnMarkersResponse).Markers {
		for _, t := range m.Topics {
			for _, p := range t.Partitions {
				return p.ErrorCode, nil
			}
		}
	}
	return 0, fmt.Errorf("marker not in the answer")
}

// Staged names the share partitions. Those of a topic that is gone have no
// name, and no leader that a marker could go to: ShareOutcome ends them.
func (b backend) Staged(producerID int64, markerEpoch int16) (out []txn.Partition) {
	for _, at := range b.c.engine.StagedBy(producerID, markerEpoch) {
		if name := b.c.TopicName(at.Topic); name != "" {
			out = append(out, txn.Partition{Topic: name, Partition: at.Partition})
		}
	}
	return out
}

func (b backend) Resolve(p txn.Partition, producerID int64, markerEpoch int16, commit bool) {
	b.c.engine.OutcomeAt(share.Place{Topic: b.c.TopicID(p.Topic), Partition: p.Partition}, producerID, markerEpoch, commit)
}

func (b backend) ShareOutcome(producerID int64, markerEpoch int16, commit bool) {
	b.c.engine.Outcome(producerID, markerEpoch, commit)
}

// Cut asks about the leader of the partition's log also for what is staged of
// it. KIP-1289 sends those markers to the leader of a state partition, from where
// they come to that leader; no state partition has a leader of its own here.
func (b backend) Cut(txnID string, p txn.Partition) <-chan struct{} {
	return b.c.links.between(func() (int32, int32) { return b.Coordinator(txnID), b.c.kf.LeaderFor(p.Topic, p.Partition) })
}
