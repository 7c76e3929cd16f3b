package broker

import (
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const lockConfig = "share.record.lock.duration.ms"

// One request may name groups and topics: each gets its own answer.
func TestConfigsOfGroupsAndTopics(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 1}, MinLockDuration: time.Second})
	cl := client(t, c)
	set := func(value string) []kmsg.IncrementalAlterConfigsRequestResourceConfig {
		return []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: lockConfig, Value: &value}}
	}
	retention := "12345"
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", Configs: set("20000")},
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "short", Configs: set("10")},
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "twice", Configs: append(set("20000"), set("20000")...)},
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "in", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: &retention}}},
	}
	codes := make(map[string]int16)
	for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](ctx, t, cl, alter).Resources {
		codes[r.ResourceName] = r.ErrorCode
	}
	if codes["g"] != 0 || codes["short"] != codeInvalidConfig || codes["twice"] != codeInvalidRequest || codes["in"] != 0 || len(codes) != 4 {
		t.Fatalf("codes %v", codes)
	}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", ConfigNames: []string{lockConfig}},
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "short", ConfigNames: []string{lockConfig}},
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "in", ConfigNames: []string{"retention.ms"}},
	}
	values := func() map[string]string {
		got := make(map[string]string)
		for _, r := range ask[*kmsg.DescribeConfigsResponse](ctx, t, cl, describe).Resources {
			for _, cfg := range r.Configs {
				got[r.ResourceName+" "+cfg.Name] = *cfg.Value
			}
		}
		return got
	}
	if got := values(); got["g "+lockConfig] != "20000" || got["short "+lockConfig] != "30000" || got["in retention.ms"] != retention || len(got) != 3 {
		t.Fatalf("configs %v", got)
	}
	// Only asking changes nothing; deleting brings back the default.
	alter.ValidateOnly = true
	alter.Resources = []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", Configs: set("25000")}}
	ask[*kmsg.IncrementalAlterConfigsResponse](ctx, t, cl, alter)
	if got := values()["g "+lockConfig]; got != "20000" {
		t.Fatalf("%s after a validation", got)
	}
	alter.ValidateOnly = false
	alter.Resources[0].Configs = set("26000")
	alter.Resources[0].Configs[0].Op = kmsg.IncrementalAlterConfigOpAppend
	if code := ask[*kmsg.IncrementalAlterConfigsResponse](ctx, t, cl, alter).Resources[0].ErrorCode; code != codeInvalidConfig {
		t.Errorf("appended to what is no list: code %d", code)
	}
	alter.Resources[0].Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: lockConfig, Op: kmsg.IncrementalAlterConfigOpDelete}}
	ask[*kmsg.IncrementalAlterConfigsResponse](ctx, t, cl, alter)
	if got := values()["g "+lockConfig]; got != "30000" {
		t.Fatalf("%s after the deletion", got)
	}
}

// kadm sees share groups beside others, their offsets, and deletes them.
func TestAdminOfShareGroups(t *testing.T) {
	ctx := testkit.Deadline(t, 60*time.Second)
	c := start(t, Config{Brokers: 3, Topics: map[string]int32{"in": 3}, GroupConfigs: earliest, HeartbeatInterval: 100 * time.Millisecond})
	const n = 60
	feed(ctx, t, c, "in", n)
	adm := kadm.NewClient(client(t, c))
	if err := adm.CommitAllOffsets(ctx, "classic", kadm.OffsetsFromRecords(kgo.Record{Topic: "in", Offset: 3})); err != nil {
		t.Fatal(err)
	}
	member := client(t, c, kgo.ShareGroup("g"), kgo.ConsumeTopics("in"))
	for got := 0; got < n; {
		fs := member.PollFetches(ctx)
		if ctx.Err() != nil {
			t.Fatalf("%d of %d records", got, n)
		}
		fs.EachRecord(func(r *kgo.Record) { got++; r.Ack(kgo.AckAccept) })
	}
	groups, err := adm.ListGroups(ctx)
	if err != nil || len(groups) != 2 || groups["g"].State != "Stable" || groups["g"].GroupType != "share" {
		t.Fatalf("groups %+v, %v", groups, err)
	}
	if groups, err = adm.ListGroups(ctx, "Empty"); err != nil || len(groups) != 1 || groups["classic"].Group == "" {
		t.Fatalf("empty groups %+v, %v", groups, err)
	}
	if deleted, err := adm.DeleteGroups(ctx, "g"); err != nil || deleted["g"].Err == nil {
		t.Fatalf("a group with a member was deleted: %+v, %v", deleted, err)
	}
	member.Close() // sends the acknowledgements and leaves
	waitDrained(ctx, t, c, "g", "in", n)
	offsets, err := adm.DescribeShareGroupOffsets(ctx, "g")
	if err != nil {
		t.Fatal(err)
	}
	drained := 0
	for _, topic := range offsets["g"].Offsets {
		for _, p := range topic {
			if p.Lag == 0 {
				drained++
			} else if p.Lag != -1 { // nobody looked at it yet
				t.Fatalf("lag left: %+v", offsets)
			}
		}
	}
	if drained == 0 {
		t.Fatalf("no partition has been read: %+v", offsets)
	}
	testkit.Eventually(ctx, t, "the group is empty", func() bool { return !c.engine.Groups()["g"] })
	deleted, err := adm.DeleteGroups(ctx, "g", "classic")
	if err != nil || deleted.Error() != nil || len(deleted) != 2 {
		t.Fatalf("deleted %+v, %v", deleted, err)
	}
	if groups, err = adm.ListGroups(ctx); err != nil || len(groups) != 0 {
		t.Fatalf("groups %+v, %v", groups, err)
	}
}

// Topics that clients create have their leaders placed as well.
func TestCreateTopics(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3})
	adm := kadm.NewClient(client(t, c))
	if _, err := adm.CreateTopic(ctx, 9, 1, nil, "later"); err != nil {
		t.Fatal(err)
	}
	for p := range int32(9) {
		if got := c.Leader("later", p); got != p%3 {
			t.Errorf("partition %d is led by %d", p, got)
		}
	}
	if _, err := adm.CreateTopic(ctx, 9, 1, nil, "later"); err == nil {
		t.Error("created twice")
	}
	if c.TopicID("later") == [16]byte{} || c.TopicID("never") != [16]byte{} {
		t.Errorf("ids %x, %x", c.TopicID("later"), c.TopicID("never"))
	}
}

// What brokers are set to is told to who asks by name, for all, or beside groups:
// how soon transactions end whose time is up, and what internal topics want.
func TestSettingsOfBrokers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 2, InternalReplicas: InternalReplicas{Transactions: 5}})
	cl := client(t, c)
	for name, tc := range map[string]struct {
		names  []string
		beside bool
		want   map[string]string
	}{
		"by name":       {[]string{settingScan, settingTransactions}, false, map[string]string{settingScan: "1", settingTransactions: "5"}},
		"all":           {nil, false, map[string]string{settingScan: "1", settingTransactions: "5", settingOffsets: "2", "group.share.delivery.count.limit": "5"}},
		"beside groups": {[]string{settingScan}, true, map[string]string{settingScan: "1"}},
	} {
		req := kmsg.NewPtrDescribeConfigsRequest()
		req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1", ConfigNames: tc.names}}
		if tc.beside {
			req.Resources = append(req.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", ConfigNames: []string{lockConfig}})
		}
		kresp, err := cl.Broker(1).Request(ctx, req)
		if err != nil {
			t.Fatal(err)
		}
		got := make(map[string]string)
		for _, r := range kresp.(*kmsg.DescribeConfigsResponse).Resources {
			for _, x := range r.Configs {
				if x.Value != nil && r.ResourceType == kmsg.ConfigResourceTypeBroker {
					got[x.Name] = *x.Value
				}
			}
		}
		for key, value := range tc.want {
			if got[key] != value {
				t.Errorf("%s: %s is %q, want %q", name, key, got[key], value)
			}
		}
		if tc.names != nil && len(got) != len(tc.want) {
			t.Errorf("%s: told %v", name, got)
		}
	}
}
