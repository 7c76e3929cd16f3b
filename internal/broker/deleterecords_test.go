package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What lies below the start of the log is deleted already; what cannot be
// deleted has no low watermark.
func TestDeleteRecordsTwice(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}})
	cl := client(t, c)
	for range 10 {
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		partition int32
		to, low   int64
		code      int16
	}{
		{0, 5, 5, 0},
		{0, 3, 5, 0},
		{0, 5, 5, 0},
		{0, 11, -1, codeOffsetOutOfRange},
		{0, -2, -1, codeOffsetOutOfRange},
		{7, 0, -1, 3},
		{0, -1, 10, 0},
		{0, 0, 10, 0},
		{0, 10, 10, 0},
	} {
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "in", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{{Partition: step.partition, Offset: step.to}}}}
		resp, err := cl.Broker(0).Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.DeleteRecordsResponse).Topics[0].Partitions[0]
		if got.ErrorCode != step.code || got.LowWatermark != step.low || got.Partition != step.partition {
			t.Errorf("%d to %d: partition %d, code %d, low watermark %d; want code %d, %d", step.partition, step.to, got.Partition, got.ErrorCode, got.LowWatermark, step.code, step.low)
		}
	}
}
