package processor

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Headers of a dead letter: where the record came from and why it is there.
const (
	HeaderTopic     = "sharetxn.topic"
	HeaderPartition = "sharetxn.partition"
	HeaderOffset    = "sharetxn.offset"
	HeaderDelivery  = "sharetxn.delivery" // delivery count
	HeaderReason    = "sharetxn.reason"   // at most 1000 bytes
)

// maxReason keeps a long error text from making the copy too large to produce.
const maxReason = 1000

// letter makes the dead letter of a record; none with Discard.
func (d DeadLetter) letter(in *Record, reason error) []*kgo.Record {
	if d.Discard {
		return nil
	}
	out := d.build(in, reason)
	if out == nil || topic.Reserved(out.Topic) {
		out = standard(in, reason)
	}
	if out.Topic == "" {
		out.Topic = d.Topic
	}
	return []*kgo.Record{out}
}

// build calls the user's Build; a panic must not keep a record from its way.
func (d DeadLetter) build(in *Record, reason error) (out *kgo.Record) {
	if d.Build == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			out = nil
		}
	}()
	return d.Build(in, reason)
}

func standard(in *Record, reason error) *kgo.Record {
	text := fmt.Sprint(reason)
	return &kgo.Record{
		Key: in.Key, Value: in.Value,
		Headers: append(slices.Clone(in.Headers),
			kgo.RecordHeader{Key: HeaderTopic, Value: []byte(in.Topic)},
			kgo.RecordHeader{Key: HeaderPartition, Value: strconv.AppendInt(nil, int64(in.Partition), 10)},
			kgo.RecordHeader{Key: HeaderOffset, Value: strconv.AppendInt(nil, in.Offset, 10)},
			kgo.RecordHeader{Key: HeaderDelivery, Value: strconv.AppendInt(nil, int64(in.DeliveryCount), 10)},
			kgo.RecordHeader{Key: HeaderReason, Value: []byte(text[:min(len(text), maxReason)])}),
	}
}
