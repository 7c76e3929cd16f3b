package broker

import (
	"bytes"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Unknown fields are in header, top and nested structures of what kfake answers
// and of what is answered here; what is not flexible stays as it is.
func TestUnknownTags(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}, UnknownTags: true})
	w := dial(ctx, t, c, 0)
	has := func(what string, tags kmsg.Tags) {
		t.Helper()
		found := false
		tags.Each(func(key uint32, value []byte) { found = found || key == unknownTag && bytes.Equal(value, unknownValue) })
		if !found {
			t.Errorf("%s has no unknown tag", what)
		}
	}
	metadata := kmsg.NewPtrMetadataRequest() // kfake's
	metadata.Version = 12
	w.send(metadata)
	raw, err := frame.Read(w, nil)
	if err != nil {
		t.Fatal(err)
	}
	if raw[8] != 1 { // fields in the header
		t.Errorf("header with %d tagged fields", raw[8])
	}
	kresp, err := frame.ReadResponse(raw, metadata)
	if err != nil {
		t.Fatal(err)
	}
	m := kresp.(*kmsg.MetadataResponse)
	has("metadata", m.UnknownTags)
	has("metadata's broker", m.Brokers[0].UnknownTags)
	has("metadata's partition", m.Topics[0].Partitions[0].UnknownTags)

	versions := kmsg.NewPtrApiVersionsRequest()
	versions.Version, versions.ClientSoftwareName, versions.ClientSoftwareVersion = 3, "raw", "1"
	w.send(versions)
	v := w.receive(versions).(*kmsg.ApiVersionsResponse)
	has("api versions", v.UnknownTags)
	has("one api's versions", v.ApiKeys[0].UnknownTags)

	group := kmsg.NewPtrFindCoordinatorRequest()
	group.Version, group.CoordinatorKey = 2, "g"
	w.send(group)
	if resp := w.receive(group).(*kmsg.FindCoordinatorResponse); resp.ErrorCode != 0 || resp.UnknownTags.Len() != 0 {
		t.Errorf("not flexible: %+v", resp)
	}
}

// Our own response has unknown fields in each structure and still decodes to the
// same.
func TestUnknownTagsOfStaging(t *testing.T) {
	testkit.Deadline(t, 30*time.Second)
	for _, profile := range []wire.Profile{wire.Draft95, wire.KIP93} {
		resp := &wire.Response{Profile: profile, ErrorCode: 3, ThrottleMillis: 7, Topics: []wire.ResponseTopic{{
			TopicID: [16]byte{1}, Partitions: []wire.ResponsePartition{{Partition: 2, ErrorCode: 6}},
		}}}
		fields := 3 // response, topic, partition
		if profile == wire.KIP93 {
			resp.Topics[0].Partitions[0].CurrentLeader = &wire.CurrentLeader{LeaderID: 4, LeaderEpoch: 5}
			fields++
		}
		req := &wire.Request{Profile: profile}
		out, err := tagged(frame.Request{Key: profile.Key(), CorrelationID: 9}, profile, frame.AppendResponse(nil, 9, resp))
		if err != nil {
			t.Fatal(err)
		}
		if n := bytes.Count(out, unknownValue); n != fields+1 {
			t.Errorf("%v: %d unknown fields, want one in each of %d structures and the header", profile, n, fields)
		}
		got, err := frame.ReadResponse(out, req)
		if err != nil {
			t.Fatal(err)
		}
		if again := got.AppendTo(nil); !bytes.Equal(again, resp.AppendTo(nil)) {
			t.Errorf("%v: %+v became %+v", profile, resp, got)
		}
	}
}
