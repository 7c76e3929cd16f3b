package broker

import (
	"errors"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A leader that moves between the look and the question is asked again; any
// other refusal is told.
func TestAskLeader(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 2, Topics: map[string]int32{"in": 1}})
	feed(ctx, t, c, "in", 3)
	answers := make(chan int16, 2)
	refused := 0
	refuse := func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.kf.KeepControl()
		select {
		case code := <-answers:
			refused++
			switch req := kreq.(type) {
			case *kmsg.FetchRequest:
				resp := req.ResponseKind().(*kmsg.FetchResponse)
				p := kmsg.NewFetchResponseTopicPartition()
				p.ErrorCode = code
				resp.Topics = []kmsg.FetchResponseTopic{{Topic: "in", Partitions: []kmsg.FetchResponseTopicPartition{p}}}
				return resp, nil, true
			case *kmsg.ListOffsetsRequest:
				resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
				p := kmsg.NewListOffsetsResponseTopicPartition()
				p.ErrorCode = code
				resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "in", Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
				return resp, nil, true
			}
		default:
		}
		return nil, nil, false
	}
	c.kf.ControlKey(1, refuse)
	c.kf.ControlKey(2, refuse)
	read := func() error {
		chunk, err := logs{c}.Read(ctx, "in", 0, 0, 1<<20, false)
		if err == nil && len(chunk.Records) == 0 {
			t.Error("read nothing")
		}
		return err
	}
	find := func() error {
		at, err := logs{c}.OffsetForTime(ctx, "in", 0, time.Now().Add(-time.Hour))
		if err == nil && at != 0 {
			t.Errorf("found offset %d", at)
		}
		return err
	}
	for name, ask := range map[string]func() error{"fetch": read, "list offsets": find} {
		refused = 0
		answers <- codeNotLeader
		answers <- codeNotLeader
		if err := ask(); err != nil || refused != 2 {
			t.Errorf("%s: %v after %d refusals, want none after 2", name, err, refused)
		}
		answers <- 1
		if err := ask(); !errors.Is(err, kerr.OffsetOutOfRange) {
			t.Errorf("%s: %v, want OFFSET_OUT_OF_RANGE", name, err)
		}
		if err := ask(); err != nil {
			t.Errorf("%s afterwards: %v", name, err)
		}
	}
	if _, err := (logs{c}).fetch(ctx, "none", 0, 0, 1<<20, 0); !errors.Is(err, errNoPartition) {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// A piece of the log tells what was aborted in it, however small it was cut.
func TestReadTellsAborted(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}})
	cl := client(t, c, kgo.TransactionalID("id"), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	const transactions = 5
	for range transactions {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "in", Value: make([]byte, 100)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Eventually(ctx, t, "all markers are written", func() bool {
		b, err := (logs{c}).Bounds(ctx, "in", 0)
		return err == nil && b.LastStable == 2*transactions
	})
	for _, maxBytes := range []int32{1, 200, 400, 1 << 20} {
		chunk, err := logs{c}.Read(ctx, "in", 0, 0, maxBytes, true)
		if err != nil {
			t.Fatal(err)
		}
		if cut := maxBytes < 1<<20; len(chunk.Records) == 0 || (cut && len(chunk.Records) > 600) {
			t.Errorf("at most %d bytes: %d were read", maxBytes, len(chunk.Records))
		}
		if len(chunk.Aborted) == 0 || chunk.Aborted[0].FirstOffset != 0 {
			t.Errorf("at most %d bytes: aborted %v, want the first one among them", maxBytes, chunk.Aborted)
		}
	}
}
