package fault

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/acks"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sample fills a message with two of everything that can be several.
func sample(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "Version" && name != "UnknownTags" {
				sample(v.Field(i))
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			sample(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		sample(v.Elem())
	case reflect.String:
		v.SetString("a")
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Array:
		v.Index(0).SetUint(1)
	}
}

// codesOf gives all codes of an answer, and the names beside them.
func codesOf(resp kmsg.Response) ([]int16, []string) { return codes(reflect.ValueOf(resp)) }

func codes(v reflect.Value) (out []int16, names []string) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			return codes(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			c, n := codes(v.Index(i))
			out, names = append(out, c...), append(names, n...)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			switch f := v.Field(i); v.Type().Field(i).Name {
			case "ErrorCode":
				out = append(out, int16(f.Int()))
			case "Topic", "Group", "GroupID", "Key", "TransactionalID", "ResourceName", "User":
				for f.Kind() == reflect.Pointer && !f.IsNil() {
					f = f.Elem()
				}
				if f.Kind() == reflect.String {
					names = append(names, f.String())
				}
			default:
				c, n := codes(f)
				out, names = append(out, c...), append(names, n...)
			}
		}
	}
	return out, names
}

// noPlace are the versions whose answers have no code for what sample asks.
func noPlace(key, version int16) bool {
	return key == int16(kmsg.DescribeLogDirs) && version < 3
}

// Every request of every version that the cluster offers can be answered with a
// code: of the request, and of a partition. The answer is well-formed, and what
// was asked for is named in it.
func TestAnswerEveryRequest(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	plan := New(1)
	w := startWorld(ctx, t, plan, broker.Config{})
	versions := w.raw(ctx, t).ask(kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	if len(versions.ApiKeys) < 60 {
		t.Fatalf("%d keys offered", len(versions.ApiKeys))
	}
	for _, k := range versions.ApiKeys {
		for version := k.MinVersion; version <= k.MaxVersion; version++ {
			for _, code := range []int16{kerr.CoordinatorNotAvailable.Code, kerr.NotLeaderForPartition.Code} {
				req := kmsg.RequestForKey(k.ApiKey)
				if k.ApiKey == wire.Draft95.Key() {
					req = &wire.Request{Profile: wire.Draft95, Topics: []wire.RequestTopic{{Partitions: []wire.RequestPartition{{Batches: []acks.AcknowledgementBatch{}}}}}}
				} else {
					sample(reflect.ValueOf(req).Elem())
				}
				req.SetVersion(version)
				fault := plan.Add(Fault{Key: k.ApiKey, Action: Answer(code)})
				raw := w.raw(ctx, t)
				if noPlace(k.ApiKey, version) {
					fault.Cancel()
					if _, err := Respond(req, code); !errors.Is(err, ErrNoPlace) {
						t.Errorf("key %d version %d: %v", k.ApiKey, version, err)
					}
					continue
				}
				resp := raw.ask(req)
				got, names := codesOf(resp)
				n := 0
				for _, c := range got {
					if c == code {
						n++
					} else if c != 0 {
						t.Errorf("%s: code %d", fault, c)
					}
				}
				if n == 0 || fault.Count() != 1 || fault.Err() != nil {
					t.Errorf("%s version %d: %d codes, fired %d times, %v", fault, version, n, fault.Count(), fault.Err())
				}
				for _, name := range names {
					if name != "a" && name != "" {
						t.Errorf("%s version %d: names %q", fault, version, names)
					}
				}
				// The connection is still good, and the next one is not met.
				if resp := raw.ask(kmsg.NewPtrFindCoordinatorRequest()).(*kmsg.FindCoordinatorResponse); resp.Version != 0 {
					t.Fatal("a version that was not asked for")
				}
			}
		}
	}
	if left := plan.Unfired(); len(left) > 0 {
		t.Errorf("not fired: %v", left)
	}
}

// Where the code stands, and what stands beside it.
func TestRespond(t *testing.T) {
	testkit.Deadline(t, 10*time.Second)
	const request, partition = 15, 6
	id, alice := [16]byte{7}, "alice"
	none := kmsg.NewProduceResponseTopicPartitionCurrentLeader()
	topicPart := func(topic string, p int32) []kmsg.ProduceRequestTopic {
		return []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{{Partition: p}, {Partition: p + 1}}}}
	}
	for _, tc := range []struct {
		name string
		req  kmsg.Request
		code int16
		want kmsg.Response
	}{
		{
			"stage, request", &wire.Request{Profile: wire.KIP93, Topics: []wire.RequestTopic{{TopicID: id, Partitions: []wire.RequestPartition{{Partition: 3}}}}},
			request, &wire.Response{Profile: wire.KIP93, ErrorCode: request},
		},
		{
			"stage, partition", &wire.Request{Profile: wire.Draft95, Topics: []wire.RequestTopic{{TopicID: id, Partitions: []wire.RequestPartition{{Partition: 3}, {Partition: 4}}}}},
			partition, &wire.Response{Profile: wire.Draft95, Topics: []wire.ResponseTopic{{TopicID: id, Partitions: []wire.ResponsePartition{
				{Partition: 3, ErrorCode: partition}, {Partition: 4, ErrorCode: partition},
			}}}},
		},
		{
			"produce has partitions only", &kmsg.ProduceRequest{Version: 9, Acks: -1, Topics: topicPart("out", 3)}, request,
			&kmsg.ProduceResponse{Version: 9, Topics: []kmsg.ProduceResponseTopic{{Topic: "out", Partitions: []kmsg.ProduceResponseTopicPartition{
				{Partition: 3, ErrorCode: request, LogAppendTime: -1, LogStartOffset: -1, CurrentLeader: none}, {Partition: 4, ErrorCode: request, LogAppendTime: -1, LogStartOffset: -1, CurrentLeader: none},
			}}}},
		},
		{
			"end has itself only", &kmsg.EndTxnRequest{Version: 5}, partition,
			&kmsg.EndTxnResponse{Version: 5, ErrorCode: partition, ProducerID: -1, ProducerEpoch: -1},
		},
		{
			"coordinators, several", &kmsg.FindCoordinatorRequest{Version: 4, CoordinatorKeys: []string{"x", "y"}}, request,
			&kmsg.FindCoordinatorResponse{Version: 4, Coordinators: []kmsg.FindCoordinatorResponseCoordinator{{Key: "x", ErrorCode: request}, {Key: "y", ErrorCode: request}}},
		},
		{
			"coordinator, one", &kmsg.FindCoordinatorRequest{Version: 3, CoordinatorKey: "x"}, request,
			&kmsg.FindCoordinatorResponse{Version: 3, ErrorCode: request},
		},
		{
			"share offsets, group", &kmsg.DescribeShareGroupOffsetsRequest{Groups: []kmsg.DescribeShareGroupOffsetsRequestGroup{{GroupID: "g", Topics: []kmsg.DescribeShareGroupOffsetsRequestGroupTopic{{Topic: "in", Partitions: []int32{2}}}}}},
			request, &kmsg.DescribeShareGroupOffsetsResponse{Groups: []kmsg.DescribeShareGroupOffsetsResponseGroup{{GroupID: "g", ErrorCode: request}}},
		},
		{
			"quotas, by entity", &kmsg.AlterClientQuotasRequest{Entries: []kmsg.AlterClientQuotasRequestEntry{{Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: &alice}}}}},
			request, &kmsg.AlterClientQuotasResponse{Entries: []kmsg.AlterClientQuotasResponseEntry{{
				ErrorCode: request, Entity: []kmsg.AlterClientQuotasResponseEntryEntity{{Type: "user", Name: &alice}},
			}}},
		},
		{
			"credentials, by user", &kmsg.AlterUserSCRAMCredentialsRequest{Deletions: []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: alice}}},
			request, &kmsg.AlterUserSCRAMCredentialsResponse{Results: []kmsg.AlterUserSCRAMCredentialsResponseResult{{User: alice, ErrorCode: request}}},
		},
	} {
		got, err := Respond(tc.req, tc.code)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s:\n%+v, want\n%+v", tc.name, got, tc.want)
		}
		if _, err := frame.ReadResponse(frame.AppendResponse(nil, 1, got), tc.req); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
	for name, req := range map[string]kmsg.Request{
		"produce without acks": &kmsg.ProduceRequest{Version: 9, Topics: topicPart("out", 0)},
		"nothing asked for":    &kmsg.ProduceRequest{Version: 9, Acks: -1},
	} {
		if got, err := Respond(req, request); !errors.Is(err, ErrNoPlace) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	if _, err := Respond(&kmsg.EndTxnRequest{}, 0); !errors.Is(err, ErrNoPlace) {
		t.Errorf("code 0: %v", err)
	}
}
