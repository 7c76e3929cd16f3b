package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/sharetxntest/check"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// produced keeps what the log took of a transactional produce, by kfake's
// answer.
func (c *Cluster) produced(req *kmsg.ProduceRequest, writes []batchTo, answer []byte) error {
	kresp, err := frame.ReadResponse(answer, req)
	if err != nil {
		return err
	}
	bases := make(map[txn.Partition]int64)
	for _, t := range kresp.(*kmsg.ProduceResponse).Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				bases[txn.Partition{Topic: c.producedTo(t.Topic, t.TopicID), Partition: p.Partition}] = p.BaseOffset
			}
		}
	}
	for _, w := range writes {
		if base, ok := bases[w.to]; ok {
			c.history.Add(history.Produced{Writer: w.writer, Partition: w.to, First: base, Last: base + w.last})
			c.entries(w)
		}
	}
	return nil
}

// entries keeps what a batch to a commit ledger says. What is no entry is for the
// ledger's readers to complain of.
func (c *Cluster) entries(w batchTo) {
	group, ledger := strings.CutPrefix(w.to.Topic, entry.TopicPrefix)
	if !ledger {
		return
	}
	raw := kmsg.NewFetchResponseTopicPartition()
	raw.RecordBatches, raw.HighWatermark, raw.LastStableOffset = w.raw, w.last+1, w.last+1
	got, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: w.to.Topic}, &raw, kgo.DefaultDecompressor(), nil)
	for _, r := range got.Records {
		p, err := entry.Parse(r.Value)
		if err != nil || p.Entry == nil {
			continue
		}
		for _, span := range p.Entry.Ranges {
			c.history.Add(history.Entry{
				Writer: w.writer, Group: group, Generation: p.Entry.Generation,
				Source: txn.Partition{Topic: c.TopicName(p.Entry.TopicID), Partition: p.Entry.Partition}, First: span.First, Last: span.Last,
			})
		}
	}
}

// Note adds what a client saw to the history, if one is kept.
func (c *Cluster) Note(e check.Event) {
	if c.history != nil {
		c.history.Add(e)
	}
}

// errNoHistory is given where Config.History is not set.
var errNoHistory = errors.New("broker: no history was kept")

// Facts gathers what a group at rest is judged by: the history, the group's
// state, and the logs of its sources, of the outputs named, and of all topics
// that transactions wrote to.
func (c *Cluster) Facts(ctx context.Context, group string, outputs ...string) (history.Facts, error) {
	if c.history == nil {
		return history.Facts{}, errNoHistory
	}
	events, times := c.history.Events()
	f := history.Facts{
		Group: group, Profile: c.cfg.Profile, Events: events, Times: times, Outputs: outputs,
		Topics: make(map[[16]byte]string), Shares: c.PartitionStates(group), Logs: make(map[txn.Partition]history.Log),
	}
	topics := make(map[string]bool)
	source := func(id [16]byte) {
		f.Topics[id] = c.TopicName(id)
		topics[f.Topics[id]] = true
	}
	for _, s := range f.Shares {
		source(s.Topic)
	}
	for _, name := range outputs {
		topics[name] = true
	}
	for _, e := range f.Events {
		switch e := e.(type) {
		case history.Produced:
			topics[e.Partition.Topic] = true
		case share.Event: // also where the group's offsets were deleted
			if _, known := f.Topics[e.Topic]; e.Group == group && !known {
				source(e.Topic)
			}
		}
	}
	for topic := range topics {
		for p := range c.Partitions(topic) {
			log, err := c.log(ctx, topic, p)
			if err != nil {
				return history.Facts{}, err
			}
			f.Logs[txn.Partition{Topic: topic, Partition: p}] = log
		}
	}
	return f, nil
}

// log reads a partition's log from start to end.
func (c *Cluster) log(ctx context.Context, topic string, partition int32) (history.Log, error) {
	bounds, err := c.Bounds(topic, partition)
	if err != nil {
		return history.Log{}, fmt.Errorf("broker: log %s-%d: %w", topic, partition, err)
	}
	out := history.Log{Bounds: bounds}
	err = c.walk(ctx, topic, partition, bounds.Start, bounds.End, false, func(at int64, piece share.Chunk) (int64, error) {
		next := at
		for raw := piece.Records; len(raw) >= batchMin; {
			size := int(binary.BigEndian.Uint32(raw[batchSize:])) + batchSize + 4
			if size < batchMin || size > len(raw) {
				break
			}
			b, err := readBatch(raw[:size])
			if err != nil {
				return next, err
			}
			if b.Last >= at && b.First < bounds.End {
				out.Batches = append(out.Batches, b)
			}
			next, raw = b.Last+1, raw[size:]
		}
		return next, nil
	})
	return out, err
}

// where a record batch has its length, and bits of its attributes
const (
	batchSize     = 8
	transactional = 0x10
	control       = 0x20
)

// readBatch reads a batch's header, and of a marker which one it is.
func readBatch(raw []byte) (history.Batch, error) {
	attributes := binary.BigEndian.Uint16(raw[batchAttributes:])
	first := int64(binary.BigEndian.Uint64(raw))
	b := history.Batch{
		First: first, Last: first + int64(int32(binary.BigEndian.Uint32(raw[batchLastDelta:]))),
		Writer: txn.Key{
			ProducerID:    int64(binary.BigEndian.Uint64(raw[batchProducerID:])),
			ProducerEpoch: int16(binary.BigEndian.Uint16(raw[batchProducerEpoch:])),
		},
		Transactional: attributes&transactional != 0, Control: attributes&control != 0,
	}
	if !b.Control {
		return b, nil
	}
	var record kmsg.Record
	var key kmsg.ControlRecordKey
	if err := record.ReadFrom(raw[batchMin:]); err != nil {
		return b, fmt.Errorf("marker at offset %d: %w", first, err)
	}
	if err := key.ReadFrom(record.Key); err != nil {
		return b, fmt.Errorf("marker at offset %d: %w", first, err)
	}
	b.Commit = key.Type == kmsg.ControlRecordKeyTypeCommit
	return b, nil
}
