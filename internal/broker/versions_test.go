package broker

import (
	"fmt"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func handshake(p wire.Profile) *wire.Request { return &wire.Request{Profile: p} }

// Each node offers what the cluster looks like, in every version of ApiVersions.
func TestApiVersions(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	type offer map[int16][2]int16
	base := offer{
		keyEndTxn: {5, 5}, keyAddPartitionsToTxn: {0, 3}, keyInitProducerID: {0, 5},
		keyShareHeartbeat: {1, 1}, keyShareDescribe: {1, 1}, keyShareFetch: {1, 2}, keyShareAck: {1, 2},
		keyDescribeShareOffs: {0, 1}, keyAlterShareOffs: {0, 0}, keyDeleteShareOffs: {0, 0},
	}
	for _, tc := range []struct {
		name  string
		cfg   Config
		node  int
		more  offer
		not   []int16
		share int16
	}{
		{"draft95", Config{}, 0, offer{95: {0, 0}}, []int16{93, 94}, 3},
		{"draft95, the node that lacks it", Config{Brokers: 2, LacksStaging: []int32{1}}, 1, nil, []int16{93, 94, 95}, 3},
		{"draft95, the other node", Config{Brokers: 2, LacksStaging: []int32{1}}, 0, offer{95: {0, 0}}, []int16{93, 94}, 3},
		{"kip93", Config{Profile: wire.KIP93}, 0, offer{93: {0, 0}}, []int16{94, 95}, 2},
		{"kip93, the node that lacks it", Config{Profile: wire.KIP93, Brokers: 2, LacksStaging: []int32{1}}, 1, nil, []int16{93, 94, 95}, 2},
		{"stock 4.4", Config{Stock44: true}, 0, offer{93: {0, 0}, 94: {0, 0}}, []int16{95}, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := start(t, tc.cfg)
			w := dial(ctx, t, c, tc.node)
			for v := range int16(6) {
				req := kmsg.NewPtrApiVersionsRequest()
				req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = v, "raw", "1"
				w.send(req)
				resp := w.receive(req).(*kmsg.ApiVersionsResponse)
				got := make(offer)
				for _, k := range resp.ApiKeys {
					if _, twice := got[k.ApiKey]; twice {
						t.Errorf("v%d: key %d twice", v, k.ApiKey)
					}
					got[k.ApiKey] = [2]int16{k.MinVersion, k.MaxVersion}
				}
				for _, want := range []offer{base, tc.more} {
					for key, versions := range want {
						if got[key] != versions {
							t.Errorf("v%d: key %d has versions %v, want %v", v, key, got[key], versions)
						}
					}
				}
				for _, key := range tc.not {
					if _, ok := got[key]; ok {
						t.Errorf("v%d: key %d is offered", v, key)
					}
				}
				if v < 3 {
					continue
				}
				levels := make(map[string]int16)
				for _, f := range resp.FinalizedFeatures {
					levels[f.Name] = f.MaxVersionLevel
				}
				if levels["share.version"] != tc.share || levels["transaction.version"] != 2 {
					t.Errorf("v%d: finalized %v", v, levels)
				}
			}
		})
	}
}

// A newer ApiVersions than there is gets version 0 and a code, and the
// connection goes on.
func TestApiVersionsTooNew(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	w := dial(ctx, t, start(t, Config{}), 0)
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = 99
	w.send(req)
	req.Version = 0
	if resp := w.receive(req).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 35 || len(resp.ApiKeys) == 0 {
		t.Fatalf("answer %+v", resp)
	}
	w.send(req)
	if resp := w.receive(req).(*kmsg.ApiVersionsResponse); resp.ErrorCode != 0 {
		t.Fatalf("code %d the second time", resp.ErrorCode)
	}
}

// A node that does not speak staging closes the connection without an answer,
// as Kafka does, and every byte of it is counted; its neighbours are untouched.
func TestStagingNotSpoken(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for _, tc := range []struct {
		cfg     Config
		node    int
		profile wire.Profile
	}{
		{Config{Stock44: true}, 0, wire.Draft95},
		{Config{Stock44: true}, 0, wire.KIP93},
		{Config{}, 0, wire.KIP93},
		{Config{Profile: wire.KIP93}, 0, wire.Draft95},
		{Config{Profile: wire.KIP93, Brokers: 2, LacksStaging: []int32{1}}, 1, wire.KIP93},
		{Config{Brokers: 2, LacksStaging: []int32{1}}, 1, wire.Draft95},
	} {
		t.Run(fmt.Sprintf("stock=%v/%v", tc.cfg.Stock44, tc.profile), func(t *testing.T) {
			c := start(t, tc.cfg)
			beside := dial(ctx, t, c, tc.node)
			if n := c.Traffic(tc.profile.Key()); n != (Traffic{}) {
				t.Fatalf("%+v before anything was sent", n)
			}
			w := dial(ctx, t, c, tc.node)
			n := w.send(handshake(tc.profile))
			w.wantCut()
			if got := c.Traffic(tc.profile.Key()); got != (Traffic{Requests: 1, Bytes: int64(n)}) {
				t.Errorf("counted %+v, sent %d bytes", got, n)
			}
			req := kmsg.NewPtrApiVersionsRequest()
			beside.send(req)
			beside.receive(req)
		})
	}
}

// A node that speaks it answers the handshake.
func TestStagingSpoken(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	for _, profile := range []wire.Profile{wire.Draft95, wire.KIP93} {
		w := dial(ctx, t, start(t, Config{Profile: profile, Brokers: 2, LacksStaging: []int32{1}}), 0)
		req := handshake(profile)
		w.send(req)
		if resp := w.receive(req).(*wire.Response); resp.ErrorCode != codeInvalidRequest || len(resp.Topics) > 0 {
			t.Fatalf("%v: answer %+v", profile, resp)
		}
	}
}

// What is not offered is not answered: old versions would be understood wrongly.
func TestVersionsNotOffered(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{})
	for _, tc := range []struct{ key, version int16 }{
		{keyEndTxn, 4}, {keyAddPartitionsToTxn, 4}, {keyShareFetch, 0}, {keyShareHeartbeat, 0}, {keyInitProducerID, 6},
	} {
		req := kmsg.RequestForKey(tc.key)
		req.SetVersion(tc.version)
		w := dial(ctx, t, c, 0)
		w.send(req)
		w.wantCut()
	}
}
