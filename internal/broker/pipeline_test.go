package broker

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Pipelined requests of one connection, some answered here, some by kfake, one
// that waits and one without an answer, are answered in their order.
func TestPipelinedRequests(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}})
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version, fetch.MaxWaitMillis, fetch.MinBytes, fetch.MaxBytes, fetch.SessionEpoch = 12, 300, 1, 1<<20, -1
	fetch.Topics = []kmsg.FetchRequestTopic{{Topic: "in", Partitions: []kmsg.FetchRequestTopicPartition{{PartitionMaxBytes: 1 << 20}}}}
	silent := kmsg.NewPtrProduceRequest()
	silent.Version, silent.TimeoutMillis = 11, 1000
	metadata := kmsg.NewPtrMetadataRequest()
	metadata.Version = 12
	list := kmsg.NewPtrListTransactionsRequest()
	versions := kmsg.NewPtrApiVersionsRequest()
	sent := []kmsg.Request{versions, fetch, list, silent, metadata, handshake(wire.Draft95), initX("x"), versions}
	w := dial(ctx, t, c, 0)
	for _, req := range sent {
		w.send(req)
	}
	for i, req := range sent {
		if req == kmsg.Request(silent) {
			continue
		}
		raw, err := frame.Read(w, nil)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		if got := binary.BigEndian.Uint32(raw[4:]); got != uint32(i+1) {
			t.Fatalf("answer to request %d where %d was due", got, i+1)
		}
		if _, err := frame.ReadResponse(raw, req); err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
	}
}
