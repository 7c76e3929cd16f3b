package txnmanager

import (
	"strings"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/groupmeta"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
)

func member(t *testing.T, group, id string, epoch int32) groupmeta.ShareGroupMetadata {
	t.Helper()
	m, err := groupmeta.New(group, id, epoch)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func tp(topic byte, partition int32) acks.TopicIDPartition {
	return acks.TopicIDPartition{TopicID: [16]byte{topic}, Topic: string('a' + topic), Partition: partition}
}

func accept(first, last int64) []acks.AcknowledgementBatch {
	return []acks.AcknowledgementBatch{{FirstOffset: first, LastOffset: last, Types: []acks.Type{acks.Accept}}}
}

// response answers with a code per partition: topic, partition, code.
func response(top int16, triples ...int) *wire.Response {
	r := &wire.Response{ErrorCode: top}
	for i := 0; i < len(triples); i += 3 {
		r.Topics = append(r.Topics, wire.ResponseTopic{
			TopicID:    [16]byte{byte(triples[i])},
			Partitions: []wire.ResponsePartition{{Partition: int32(triples[i+1]), ErrorCode: int16(triples[i+2])}},
		})
	}
	return r
}

func TestReadAnswer(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := &stageRequest{member: member(t, "g", "m", 1), parts: []part{{tp(1, 0), accept(0, 9)}, {tp(1, 1), accept(5, 5)}, {tp(2, 0), accept(7, 8)}}}
	for _, c := range []struct {
		name   string
		resp   *wire.Response
		again  bool
		code   int16
		moved  int
		failed int16
		err    string
	}{
		{name: "all staged, in any order", resp: response(0, 2, 0, 0, 1, 1, 0, 1, 0, 0)},
		{name: "refused as a whole", resp: response(25), code: 25},
		{name: "refused as a whole, but named", resp: response(90, 1, 0, 0, 1, 1, 0, 2, 0, 0), code: 90},
		{name: "to be repeated as a whole", resp: response(51), again: true, code: 51},
		{name: "one to be repeated", resp: response(0, 1, 0, 0, 1, 1, 14, 2, 0, 0), again: true, code: 14},
		{name: "one moved", resp: response(0, 1, 0, 6, 1, 1, 0, 2, 0, 0), moved: 1},
		{name: "one moved, one to be repeated", resp: response(0, 1, 0, 6, 1, 1, 51, 2, 0, 0), again: true, code: 51},
		{name: "one failed", resp: response(0, 1, 0, 0, 1, 1, 121, 2, 0, 0), failed: 121},
		{name: "one failed, one to be repeated", resp: response(0, 1, 0, 51, 1, 1, 121, 2, 0, 0), again: true, code: 51, failed: 121},
		{name: "one failed, one moved", resp: response(0, 1, 0, 6, 1, 1, 121, 2, 0, 0), moved: 1, failed: 121},
		{name: "one left out", resp: response(0, 1, 0, 0, 1, 1, 0), err: "leaves partition"},
		{name: "empty", resp: response(0), err: "leaves partition"},
		{name: "one twice", resp: response(0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 2, 0, 0), err: "twice"},
		{name: "one more than asked", resp: response(0, 1, 0, 0, 1, 1, 0, 2, 0, 0, 3, 0, 0), err: "not asked"},
	} {
		a, err := r.read(c.resp)
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: %+v, %v; want an error on %q", c.name, a, err, c.err)
			}
			continue
		}
		failed := int16(0)
		if a.failed != nil {
			failed = a.failed.code
		}
		if err != nil || a.again != c.again || a.code != c.code || len(a.moved) != c.moved || failed != c.failed {
			t.Errorf("%s: %+v, %v", c.name, a, err)
		}
	}
}

func TestStagedSet(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	s := make(freedSet)
	s.mark(&stageRequest{member: member(t, "g", "m", 1), parts: []part{{tp(1, 0), nil}}})
	for _, c := range []struct {
		group, member string
		tp            acks.TopicIDPartition
		want          bool
	}{
		{"g", "m", tp(1, 0), true},
		{"g", "m", acks.TopicIDPartition{TopicID: [16]byte{1}}, true}, // the name does not count
		{"g", "m", tp(1, 1), false},
		{"g", "m", tp(2, 0), false},
		{"g", "n", tp(1, 0), false},
		{"h", "m", tp(1, 0), false},
	} {
		if got := s.has(c.group, c.member, c.tp); got != c.want {
			t.Errorf("%s/%s %v: %v", c.group, c.member, c.tp, got)
		}
	}
}
