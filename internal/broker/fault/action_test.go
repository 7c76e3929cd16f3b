package fault

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// scene prepares one request and tells how often the cluster handled it.
type scene struct {
	key     int16
	prepare func(context.Context, *world) (req kmsg.Request, handled func() int)
	repeat  int // handled so often when it is delivered twice
}

var scenes = map[string]scene{
	"produce":          {int16(kmsg.Produce), produceScene, 2},
	"offset commit":    {int16(kmsg.OffsetCommit), offsetScene, 1}, // kfake answers it
	"init producer id": {int16(kmsg.InitProducerID), initScene, 2},
	"end txn":          {int16(kmsg.EndTxn), endScene, 1},
	"heartbeat":        {int16(kmsg.ShareGroupHeartbeat), heartbeatScene, 1},
	"share fetch":      {int16(kmsg.ShareFetch), fetchScene, 1},
	"acknowledge":      {int16(kmsg.ShareAcknowledge), ackScene, 1},
	"stage":            {StageKey, stageScene, 1},
}

// record makes a batch of one record of no producer.
func record() []byte {
	rec := kmsg.Record{Value: []byte("a")}
	rec.Length = int32(len(rec.AppendTo(nil)) - 1)
	b := kmsg.RecordBatch{PartitionLeaderEpoch: -1, Magic: 2, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: 1, Records: rec.AppendTo(nil)}
	b.Length = int32(len(b.AppendTo(nil)) - 12)
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func produceScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1000
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: "in", TopicID: w.TopicID("in"), Partitions: []kmsg.ProduceRequestTopicPartition{{Records: record()}}}}
	return req, func() int {
		ask := kmsg.NewPtrListOffsetsRequest()
		ask.ReplicaID = -1
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = -1
		ask.Topics = []kmsg.ListOffsetsRequestTopic{{Topic: "in", Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		return int(w.request(ctx, 0, ask).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset)
	}
}

func offsetScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = "classic", -1
	req.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "in", TopicID: w.TopicID("in"), Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1, LeaderEpoch: -1}}}}
	return req, func() int {
		ask := kmsg.NewPtrOffsetFetchRequest()
		ask.Group = "classic"
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = "classic"
		ask.Groups = append(ask.Groups, g)
		for _, g := range w.request(ctx, 0, ask).(*kmsg.OffsetFetchResponse).Groups {
			for _, t := range g.Topics {
				return int(t.Partitions[0].Offset)
			}
		}
		return 0
	}
}

func initProducer(id string) *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis, req.ProducerID, req.ProducerEpoch = &id, 60_000, -1, -1
	return req
}

func initScene(_ context.Context, w *world) (kmsg.Request, func() int) {
	return initProducer("x"), func() int { return int(w.transaction().ProducerEpoch) + 1 }
}

func endScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	p := w.client(ctx, kgo.TransactionalID("x"), kgo.DefaultProduceTopic("in"))
	if err := p.BeginTransaction(); err != nil {
		w.t.Fatal(err)
	}
	if err := p.ProduceSync(ctx, kgo.StringRecord("a")).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
	id, epoch, err := p.ProducerID(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = "x", id, epoch, true
	return req, func() int {
		if w.transaction().Status == txn.CompleteCommit {
			return 1
		}
		return 0
	}
}

const member = "AAAAAAAAAAAAAAAAAAAAAQ"

func heartbeatScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.SubscribedTopicNames = "g", member, []string{"in"}
	return req, func() int { return len(members(ctx, w)) }
}

func members(ctx context.Context, w *world) []kmsg.ShareGroupDescribeResponseGroupMember {
	w.t.Helper()
	ask := kmsg.NewPtrShareGroupDescribeRequest()
	ask.GroupIDs = []string{"g"}
	return w.request(ctx, routed, ask).(*kmsg.ShareGroupDescribeResponse).Groups[0].Members
}

func fetchScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	req, _ := produceScene(ctx, w)
	w.request(ctx, 0, req)
	join, _ := heartbeatScene(ctx, w)
	w.request(ctx, routed, join)
	group, id := "g", member
	fetch := kmsg.NewPtrShareFetchRequest()
	fetch.GroupID, fetch.MemberID, fetch.MaxBytes, fetch.MaxRecords, fetch.BatchSize = &group, &id, 1<<20, 10, 10
	fetch.Topics = []kmsg.ShareFetchRequestTopic{{TopicID: w.TopicID("in"), Partitions: []kmsg.ShareFetchRequestTopicPartition{{PartitionMaxBytes: 1 << 20}}}}
	return fetch, func() int {
		_, _, count, _ := w.StateOf("g", "in", 0, 0)
		return int(count)
	}
}

// fetched is a world in which the member holds record 0.
func fetched(ctx context.Context, w *world) {
	fetch, _ := fetchScene(ctx, w)
	w.request(ctx, 0, fetch)
	if s, _, _, _ := w.StateOf("g", "in", 0, 0); s != share.Acquired {
		w.t.Fatalf("record 0 is %v", s)
	}
}

func ackScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	fetched(ctx, w)
	group, id := "g", member
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &id, 1
	req.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: w.TopicID("in"), Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{{
		AcknowledgementBatches: []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{AcknowledgeTypes: []int8{1}}},
	}}}}
	return req, func() int {
		if _, _, _, inWindow := w.StateOf("g", "in", 0, 0); inWindow {
			return 0
		}
		return 1
	}
}

func stageScene(ctx context.Context, w *world) (kmsg.Request, func() int) {
	fetched(ctx, w)
	got := w.request(ctx, routed, initProducer("x")).(*kmsg.InitProducerIDResponse)
	id := "x"
	req := &wire.Request{
		Profile: w.profile, TransactionalID: &id, GroupID: "g", ProducerID: got.ProducerID, ProducerEpoch: got.ProducerEpoch, MemberID: member, MemberEpoch: members(ctx, w)[0].MemberEpoch,
		Topics: []wire.RequestTopic{{TopicID: w.TopicID("in"), Partitions: []wire.RequestPartition{{
			Batches: []acks.AcknowledgementBatch{{Types: []acks.Type{acks.Accept}}},
		}}}},
	}
	return req, func() int {
		if s, _, _, _ := w.StateOf("g", "in", 0, 0); s == share.TxPending {
			return 1
		}
		return 0
	}
}

// firstCode is the first code that is not 0.
func firstCode(resp kmsg.Response) int16 {
	all, _ := codesOf(resp)
	for _, c := range all {
		if c != 0 {
			return c
		}
	}
	return 0
}

// Each action does to each request what it says, once, and to no other.
func TestActions(t *testing.T) {
	const code = 15
	for name, s := range scenes {
		for _, tc := range []struct {
			action Action
			cut    bool  // the client gets no answer
			code   int16 // of the answer
			times  int   // handled
		}{
			{LoseRequest(), true, 0, 0},
			{LoseAnswer(), true, 0, 1},
			{Disconnect(), false, 0, 1},
			{DeliverTwice(), false, 0, s.repeat},
			{Answer(code), false, code, 0},
			{AnswerDone(code), false, code, 1},
			{TruncateAnswer(), true, 0, 1},
			{Action{}, false, 0, 1},
		} {
			t.Run(name+", "+tc.action.String(), func(t *testing.T) {
				ctx := testkit.Deadline(t, 20*time.Second)
				plan := New(1)
				w := startWorld(ctx, t, plan, plainConfig())
				req, handled := s.prepare(ctx, w)
				planned := plan.Add(Fault{Key: s.key, Action: tc.action})
				if left := plan.Unfired(); len(left) != 1 || left[0] != planned {
					t.Fatalf("unfired %v", left)
				}
				resp, err := w.try(ctx, 0, req)
				if (err != nil) != tc.cut {
					t.Fatalf("answered %v, %v", resp, err)
				}
				if err == nil && firstCode(resp) != tc.code {
					t.Errorf("code %d, want %d", firstCode(resp), tc.code)
				}
				if n := handled(); n != tc.times {
					t.Errorf("handled %d times, want %d", n, tc.times)
				}
				fs := plan.Firings()
				if planned.Count() != 1 || len(plan.Unfired()) != 0 || len(fs) != 1 || fs[0].Fault != planned || fs[0].Nth != 1 || fs[0].Node != 0 {
					t.Errorf("fired %d times, %+v", planned.Count(), fs)
				}
				if resp := w.request(ctx, 0, initProducer("neighbour")); firstCode(resp) != 0 {
					t.Errorf("the neighbour was answered %d", firstCode(resp))
				}
			})
		}
		t.Run(name+", hold", func(t *testing.T) {
			ctx := testkit.Deadline(t, 20*time.Second)
			plan := New(1)
			w := startWorld(ctx, t, plan, plainConfig())
			req, handled := s.prepare(ctx, w)
			release := make(chan struct{})
			planned := plan.Add(Fault{Key: s.key, Action: Hold(release)})
			got := make(chan error, 1)
			go func() {
				resp, err := w.try(ctx, 0, req)
				if err == nil && firstCode(resp) != 0 {
					err = errors.New("answered with a code")
				}
				got <- err
			}()
			select {
			case <-planned.Fired():
			case err := <-got:
				t.Fatalf("never fired: %v", err)
			}
			if n := w.raw(ctx, t).ask(initProducerV4("neighbour")); firstCode(n) != 0 {
				t.Errorf("the neighbour was answered %d", firstCode(n))
			}
			select {
			case err := <-got:
				t.Fatalf("not held: %v", err)
			default:
			}
			close(release)
			if err := <-got; err != nil {
				t.Fatal(err)
			}
			if n := handled(); n != 1 {
				t.Errorf("handled %d times", n)
			}
		})
	}
}

// initProducerV4 is for connections that negotiate no version.
func initProducerV4(id string) *kmsg.InitProducerIDRequest {
	req := initProducer(id)
	req.Version = 4
	return req
}

func plainConfig() broker.Config {
	return broker.Config{
		Topics: map[string]int32{"in": 1}, GroupConfigs: map[string]map[string]string{"g": {"share.auto.offset.reset": "earliest"}},
	}
}

// A delay is as long as it says, on whatever clock the cluster runs; and what is
// delayed is what the action says, the work or only its answer.
func TestDelay(t *testing.T) {
	for _, tc := range []struct {
		action Action
		epoch  int16 // of the id while the client waits
	}{{Delay(7 * time.Second), -1}, {LateAnswer(7 * time.Second), 0}} {
		t.Run(tc.action.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testDelay(t, tc.action, tc.epoch) })
		})
	}
}

func testDelay(t *testing.T, action Action, epoch int16) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var network kfake.VirtualNetwork
	plan := New(1)
	cfg := plainConfig()
	cfg.Ports, cfg.Listen = []int{9092}, network.Listen
	w := startWorld(ctx, t, plan, cfg, kgo.Dialer(network.DialContext))
	w.request(ctx, 0, initProducer("before"))
	planned := plan.Add(Fault{Key: int16(kmsg.InitProducerID), Action: action})
	began := time.Now()
	time.AfterFunc(6*time.Second, func() {
		if got := w.transaction().ProducerEpoch; got != epoch {
			t.Errorf("the id has epoch %d a second before the answer, want %d", got, epoch)
		}
	})
	w.request(ctx, 0, initProducer("x"))
	if d := time.Since(began); d != 7*time.Second || planned.Count() != 1 {
		t.Errorf("answered after %v, fired %d times", d, planned.Count())
	}
	w.request(ctx, 0, initProducer("y"))
	if d := time.Since(began); d != 7*time.Second {
		t.Errorf("the next was answered after %v", d)
	}
	if at := plan.Firings()[0].At; !at.Equal(began) {
		t.Errorf("fired at %v, sent at %v", at, began)
	}
}
