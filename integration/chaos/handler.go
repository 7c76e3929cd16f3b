package chaos

import (
	"context"
	"encoding/hex"
	"errors"
	"strconv"

	"github.com/sharetxn/sharetxn/integration/chaos/task"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	errPoison = errors.New("nobody can handle this")
	errUnwell = errors.New("the handler feels unwell")
)

// handler does the task, and comes to harm now and then.
func (j job) handler(h *harmer) processor.Handler {
	return func(_ context.Context, in *processor.Record) ([]*kgo.Record, error) {
		switch task.KindOf(in.Value) {
		case task.Kill:
			h.log.line(wordKill, "poison")
			die()
		case task.Fail:
			return nil, errPoison
		case task.Reject:
			return nil, processor.Reject(errPoison)
		case task.Plain:
		}
		if err := h.handled(); err != nil {
			return nil, err
		}
		tag := j.tag(in)
		outputs := make([]*kgo.Record, task.Outputs(in.Value))
		for i := range outputs {
			tag.Index = i + 1
			// The keys spread a record's outputs over the partitions.
			outputs[i] = &kgo.Record{Topic: j.Output, Key: strconv.AppendInt(nil, in.Offset+int64(i), 10), Value: tag.Encode()}
		}
		return outputs, nil
	}
}

func (j job) tag(in *processor.Record) task.Tag {
	at := task.At{Topic: in.Topic, Partition: in.Partition, Offset: in.Offset}
	return task.Tag{Round: j.Round, At: at, Digest: task.Digest(in.Value)}
}

func (j job) deadLetter(in *processor.Record, reason error) *kgo.Record {
	r := &kgo.Record{Key: strconv.AppendInt(nil, in.Offset, 10), Value: j.tag(in).Encode()}
	if reason != nil {
		r.Headers = []kgo.RecordHeader{{Key: "reason", Value: []byte(reason.Error())}}
	}
	return r
}

// deliveries notes what brokers say that they deliver again, before the library
// has it.
func (j job) deliveries(log *journal, again func()) func(key, version int16, answer []byte) {
	return func(key, version int16, answer []byte) {
		if key != kmsg.ShareFetch.Int16() || len(answer) < 1 || answer[0] != 0 { // no tags in the header
			return
		}
		resp := kmsg.NewPtrShareFetchResponse()
		resp.SetVersion(version)
		if err := resp.ReadFrom(answer[1:]); err != nil {
			log.line("unreadable", err)
			return
		}
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				for _, a := range p.AcquiredRecords {
					if a.DeliveryCount > 1 {
						log.line(wordDeliver, j.Round, j.Topics[hex.EncodeToString(t.TopicID[:])], p.Partition, a.FirstOffset, a.LastOffset, a.DeliveryCount)
						again()
					}
				}
			}
		}
	}
}
