package byhand

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Producer is a transactional producer that decides nothing by itself: its id,
// epoch and sequences may be set by hand before a request. Not safe for
// concurrent use.
type Producer struct {
	TxnID   string
	Timeout time.Duration
	ID      int64 // -1: none yet
	Epoch   int16
	Seq     map[Partition]int32 // of the next record

	client *kgo.Client
}

// NewProducer makes one that sends over client and knows no id yet.
func NewProducer(client *kgo.Client, txnID string) *Producer {
	return &Producer{TxnID: txnID, Timeout: time.Minute, ID: -1, Epoch: -1, Seq: make(map[Partition]int32), client: client}
}

// Init asks for an identity, claiming the present one, which is none at first,
// and takes over what is given.
func (p *Producer) Init(ctx context.Context) (code int16, err error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.TxnID, int32(p.Timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = p.ID, p.Epoch
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return 0, err
	}
	if resp.ErrorCode == 0 {
		p.moved(resp.ProducerID, resp.ProducerEpoch)
	}
	return resp.ErrorCode, nil
}

// End ends the transaction with the present identity and takes over the one
// that is given (EndTxn v5).
func (p *Producer) End(ctx context.Context, commit bool) (code int16, err error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.TxnID, p.ID, p.Epoch, commit
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return 0, err
	}
	if resp.Version < 5 {
		return 0, fmt.Errorf("EndTxn of version %d, want 5", resp.Version)
	}
	if resp.ErrorCode == 0 {
		p.moved(resp.ProducerID, resp.ProducerEpoch)
	}
	return resp.ErrorCode, nil
}

// moved takes over an identity; sequences begin again with it.
func (p *Producer) moved(id int64, epoch int16) {
	p.ID, p.Epoch = id, epoch
	clear(p.Seq)
}

// Produce writes one batch with these values to a partition of a topic, whose
// leader is named. A good answer moves the sequence on.
func (p *Producer) Produce(ctx context.Context, leader int32, topic string, to Partition, values ...string) (code int16, err error) {
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = to.Index, p.batch(to, values)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.TopicID = topic, to.Topic
	rt.Partitions = append(rt.Partitions, rp)
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &p.TxnID, -1, 10000
	req.Topics = append(req.Topics, rt)
	kresp, err := p.client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return 0, err
	}
	code = kresp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		p.Seq[to] += int32(len(values))
	}
	return code, nil
}

const transactionalBatch = 0x10 // attribute bit

func (p *Producer) batch(to Partition, values []string) []byte {
	var records []byte
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // without the length's own byte, as it is 0 here
		records = r.AppendTo(records)
	}
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: transactionalBatch, LastOffsetDelta: int32(len(values) - 1),
		FirstTimestamp: now, MaxTimestamp: now, ProducerID: p.ID, ProducerEpoch: p.Epoch, FirstSequence: p.Seq[to],
		NumRecords: int32(len(values)), Records: records,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// Log is a partition as one Fetch shows it.
type Log struct {
	Code             int16
	Values           []string // delivered under the isolation level
	HighWatermark    int64
	LastStable       int64
	AbortedProducers []int64
	Markers          []Marker // whatever the isolation level
}

// Marker is a transaction marker in a log.
type Marker struct {
	ProducerID int64
	Epoch      int16
	Commit     bool
}

// ReadLog reads a partition from its start, as far as one Fetch goes.
func ReadLog(ctx context.Context, client *kgo.Client, leader int32, topic string, of Partition, committed bool) (Log, error) {
	fp := kmsg.NewFetchRequestTopicPartition()
	fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = of.Index, 0, 10<<20
	ft := kmsg.NewFetchRequestTopic()
	ft.Topic, ft.TopicID, ft.Partitions = topic, of.Topic, append(ft.Partitions, fp)
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.SessionEpoch, req.Topics = 10<<20, -1, append(req.Topics, ft)
	level := kgo.ReadUncommitted()
	if committed {
		req.IsolationLevel, level = 1, kgo.ReadCommitted()
	}
	kresp, err := client.Broker(int(leader)).Request(ctx, req)
	if err != nil {
		return Log{}, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if resp.ErrorCode != 0 || len(resp.Topics) == 0 {
		return Log{Code: resp.ErrorCode}, nil
	}
	got := &resp.Topics[0].Partitions[0]
	out := Log{Code: got.ErrorCode, HighWatermark: got.HighWatermark, LastStable: got.LastStableOffset}
	for _, a := range got.AbortedTransactions {
		out.AbortedProducers = append(out.AbortedProducers, a.ProducerID)
	}
	opts := kgo.ProcessFetchPartitionOpts{KeepControlRecords: true, IsolationLevel: level, Topic: topic, Partition: of.Index}
	records, _ := kgo.ProcessFetchPartition(opts, got, kgo.DefaultDecompressor(), nil)
	for _, r := range records.Records {
		if !r.Attrs.IsControl() {
			out.Values = append(out.Values, string(r.Value))
			continue
		}
		var key kmsg.ControlRecordKey
		if err := key.ReadFrom(r.Key); err != nil {
			return out, err
		}
		out.Markers = append(out.Markers, Marker{r.ProducerID, r.ProducerEpoch, key.Type == kmsg.ControlRecordKeyTypeCommit})
	}
	return out, records.Err
}
