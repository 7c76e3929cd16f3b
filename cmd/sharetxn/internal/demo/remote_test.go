package demo

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetched is the answer that hands out a run of records.
func fetched(topic [16]byte, partition int32, first, last int64, deliveries int16) *kmsg.ShareFetchResponse {
	return &kmsg.ShareFetchResponse{AcquisitionLockTimeoutMillis: 2000, Topics: []kmsg.ShareFetchResponseTopic{{
		TopicID: topic, Partitions: []kmsg.ShareFetchResponseTopicPartition{{Partition: partition, AcquiredRecords: []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord{{FirstOffset: first, LastOffset: last, DeliveryCount: deliveries}}}},
	}}}
}

// What is held is told by what goes over the wire: what was handed out to whom,
// for how long, renewed, and how often.
func TestSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source, other := [16]byte{1}, [16]byte{2}
		r := &remote{limit: 4, guarantee: processor.Ledger}
		by := reader{guarantee: processor.Ledger, source: source}
		mine := chance{at: acking, records: records{member: "m", places: []place{{1, 3, 5}}}}
		is := func(when string, held, fresh bool) {
			t.Helper()
			if got := r.held(mine); got != held || r.handed(1, 4) != held {
				t.Errorf("%s: held is %v", when, got)
			}
			if got := r.fresh(mine.records); got != fresh {
				t.Errorf("%s: fresh is %v", when, got)
			}
		}
		_, renewal, fetch := asked(source, 1, 3, 5, acks.Renew)
		is("nothing seen", false, true)
		r.observe(by, fetch)(fetched(other, 1, 3, 5, 1))
		is("another topic", false, true)
		r.observe(by, fetch)(fetched(source, 1, 3, 4, 1))
		if r.held(mine) {
			t.Error("held though one was not handed out")
		}
		r.observe(by, fetch)(fetched(source, 1, 5, 9, 2))
		is("handed out", true, true)
		theirs := mine
		theirs.records.member = "another"
		if r.held(theirs) {
			t.Error("held by another")
		}
		time.Sleep(1500 * time.Millisecond)
		r.observe(by, renewal)(&kmsg.ShareAcknowledgeResponse{})
		time.Sleep(time.Second)
		is("renewed", true, true)
		r.observe(by, renewal)(&kmsg.ShareAcknowledgeResponse{ErrorCode: 122})
		r.observe(by, renewal)(nil)
		time.Sleep(time.Second + time.Millisecond)
		is("not renewed", false, true)
		r.observe(by, fetch)(fetched(source, 1, 3, 5, 3))
		is("the third time", true, false)
	})
}

// A transaction is open until an answer says that it has ended.
func TestSeenEnd(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	r := &remote{guarantee: processor.Ledger}
	by := reader{guarantee: processor.Ledger}
	req := &kmsg.EndTxnRequest{ProducerID: 7, ProducerEpoch: 2, Commit: true}
	c := chance{at: ending, key: txn.Key{ProducerID: 7, ProducerEpoch: 2}}
	for _, answer := range []kmsg.Response{nil, &kmsg.EndTxnResponse{ErrorCode: 51}} {
		if r.observe(by, req)(answer); !r.held(c) {
			t.Errorf("over after %v", answer)
		}
	}
	if r.observe(by, req)(&kmsg.EndTxnResponse{}); r.held(c) {
		t.Error("not over")
	}
	c.key.ProducerEpoch++
	if !r.held(c) {
		t.Error("the next one is over too")
	}
	r.guarantee = processor.Staged
	if r.held(c) {
		t.Error("nothing is staged")
	}
}

func TestRefused(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const code = 121
	acked := func(top, partition int16) *kmsg.ShareAcknowledgeResponse {
		return &kmsg.ShareAcknowledgeResponse{ErrorCode: top, Topics: []kmsg.ShareAcknowledgeResponseTopic{{Partitions: []kmsg.ShareAcknowledgeResponseTopicPartition{{}, {ErrorCode: partition}}}}}
	}
	rode := func(top, fetch, ack int16) *kmsg.ShareFetchResponse {
		return &kmsg.ShareFetchResponse{ErrorCode: top, Topics: []kmsg.ShareFetchResponseTopic{{Partitions: []kmsg.ShareFetchResponseTopicPartition{{}, {ErrorCode: fetch, AcknowledgeErrorCode: ack}}}}}
	}
	staged := func(top, partition int16) *wire.Response {
		return &wire.Response{ErrorCode: top, Topics: []wire.ResponseTopic{{Partitions: []wire.ResponsePartition{{}, {ErrorCode: partition}}}}}
	}
	for name, c := range map[string]struct {
		answer kmsg.Response
		want   bool
	}{
		"no answer": {nil, true}, "of another request": {&kmsg.MetadataResponse{}, true},
		"ended": {&kmsg.EndTxnResponse{}, false}, "not ended": {&kmsg.EndTxnResponse{ErrorCode: code}, true},
		"acknowledged": {acked(0, 0), false}, "not one of them": {acked(0, code), true}, "none of them": {acked(code, 0), true},
		"rode": {rode(0, 0, 0), false}, "only the fetch failed": {rode(0, 6, 0), false}, "rode and refused": {rode(0, 0, code), true}, "session gone": {rode(code, 0, 0), true},
		"staged": {staged(0, 0), false}, "one not staged": {staged(0, code), true}, "not staged": {staged(code, 0), true},
	} {
		if got := refused(c.answer); got != c.want {
			t.Errorf("%s: refused is %v", name, got)
		}
	}
}

// A leader gives way to the replica so many on, and follows it; a partition
// without other replicas goes to another broker.
func TestReassigned(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	nodes := []int32{1, 2, 3, 9}
	for _, c := range []struct {
		leader        int32
		replicas      []int32
		hops          int32
		without, with []int32
	}{
		{1, []int32{1, 2, 3}, 1, []int32{2, 3}, []int32{2, 3, 1}},
		{1, []int32{1, 2, 3}, 2, []int32{3, 2}, []int32{3, 2, 1}},
		{2, []int32{1, 2, 3}, 1, []int32{3, 1}, []int32{3, 1, 2}},
		{3, []int32{2, 3}, 2, []int32{2}, []int32{2, 3}},
		{2, []int32{2}, 1, []int32{3}, []int32{3}},
		{9, []int32{9}, 2, []int32{2}, []int32{2}},
	} {
		if without, with := reassigned(c.leader, c.replicas, nodes, c.hops); !slices.Equal(without, c.without) || !slices.Equal(with, c.with) {
			t.Errorf("%+v: %v, then %v", c, without, with)
		}
	}
}

// The fewer deliveries a group allows, the longer its locks must be.
func TestLockFor(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	for limit, want := range map[int]time.Duration{10: 2 * time.Second, 5: 4 * time.Second, 2: 16 * time.Second} {
		if got := lockFor(limit); got != want || got*time.Duration(limit-1) < wished.txn+stockScan {
			t.Errorf("limit %d: %v, want %v", limit, got, want)
		}
	}
}
