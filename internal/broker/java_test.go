package broker

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Java's clients fail on a null where Kafka has an empty list or no bytes:
// kgo's do not, so the answers are looked at themselves.
func TestNoNullsForJava(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3})
	cl := client(t, c)
	create := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range []string{"plain", "configured"} {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 3, 1
		create.Topics = append(create.Topics, topic)
	}
	retention := "12345"
	create.Topics[1].Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms", Value: &retention}}
	for _, only := range []bool{true, false} {
		create.ValidateOnly = only
		for _, topic := range ask[*kmsg.CreateTopicsResponse](ctx, t, cl, create).Topics {
			if topic.ErrorCode != 0 || topic.Configs == nil {
				t.Errorf("%s created, only validated %v: code %d, configs %v", topic.Topic, only, topic.ErrorCode, topic.Configs)
			}
			own := slices.ContainsFunc(topic.Configs, func(c kmsg.CreateTopicsResponseTopicConfig) bool {
				return c.Name == "retention.ms" && *c.Value == retention
			})
			if own != (topic.Topic == "configured") {
				t.Errorf("%s created, only validated %v: its own retention is told: %v", topic.Topic, only, own)
			}
		}
	}
	describe := kmsg.NewPtrDescribeTopicPartitionsRequest()
	describe.ResponsePartitionLimit = 100
	topics := ask[*kmsg.DescribeTopicPartitionsResponse](ctx, t, cl, describe).Topics
	if len(topics) != 2 {
		t.Errorf("%d topics described", len(topics))
	}
	for _, topic := range topics {
		for _, p := range topic.Partitions {
			if p.EligibleLeaderReplicas == nil || p.LastKnownELR == nil {
				t.Errorf("%s/%d: eligible leaders %v, last known %v", *topic.Topic, p.Partition, p.EligibleLeaderReplicas, p.LastKnownELR)
			}
		}
	}
}

// Kafka does not look at upper and lower case in the filters.
func TestListGroupsFilters(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}})
	cl := client(t, c)
	if err := kadm.NewClient(cl).CommitAllOffsets(ctx, "classic", kadm.OffsetsFromRecords(kgo.Record{Topic: "in", Offset: 3})); err != nil {
		t.Fatal(err)
	}
	member := client(t, c, kgo.ShareGroup("shared"), kgo.ConsumeTopics("in"))
	ended, end := context.WithCancel(ctx)
	end()
	member.PollFetches(ended) // begins to join
	testkit.Eventually(ctx, t, "the member joined", func() bool { return c.engine.Groups()["shared"] })
	for _, f := range []struct {
		types, states []string
		want          []string
	}{
		{nil, nil, []string{"classic", "shared"}},
		{[]string{"Share"}, nil, []string{"shared"}},
		{[]string{"share"}, nil, []string{"shared"}},
		{[]string{"Classic", "consumer"}, nil, []string{"classic"}},
		{[]string{"Share", "Classic"}, []string{"empty"}, []string{"classic"}},
		{nil, []string{"sTable"}, []string{"shared"}},
		{[]string{"Streams"}, nil, nil},
	} {
		req := kmsg.NewPtrListGroupsRequest()
		req.TypesFilter, req.StatesFilter = f.types, f.states
		var got []string
		for _, g := range ask[*kmsg.ListGroupsResponse](ctx, t, cl, req).Groups {
			got = append(got, g.Group)
		}
		slices.Sort(got)
		if !slices.Equal(got, f.want) {
			t.Errorf("types %v, states %v: %v, want %v", f.types, f.states, got, f.want)
		}
	}
}

// The configs of a group say where they come from, and the group is listed
// among what is configured.
func TestSourcesOfGroupConfigs(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Topics: map[string]int32{"in": 1}, MinLockDuration: time.Second})
	cl := client(t, c)
	if err := c.SetGroupConfig("g", map[string]string{lockConfig: "20000"}); err != nil {
		t.Fatal(err)
	}
	describe := kmsg.NewPtrDescribeConfigsRequest()
	describe.Resources = []kmsg.DescribeConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g", ConfigNames: []string{lockConfig}},
		{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "h", ConfigNames: []string{lockConfig}},
	}
	for _, synonyms := range []bool{false, true} {
		describe.IncludeSynonyms = synonyms
		rs := ask[*kmsg.DescribeConfigsResponse](ctx, t, cl, describe).Resources
		own, other := rs[0].Configs[0], rs[1].Configs[0]
		if own.Source != kmsg.ConfigSourceGroupConfig || other.Source != kmsg.ConfigSourceDefaultConfig || own.ConfigType != kmsg.ConfigTypeInt {
			t.Errorf("sources %v and %v, type %v", own.Source, other.Source, own.ConfigType)
		}
		want := [2]int{}
		if synonyms {
			want = [2]int{2, 1}
		}
		if got := [2]int{len(own.ConfigSynonyms), len(other.ConfigSynonyms)}; got != want {
			t.Fatalf("with synonyms %v: %v, want %v", synonyms, got, want)
		}
		if synonyms && (*own.ConfigSynonyms[0].Value != "20000" || *own.ConfigSynonyms[1].Value != "30000" || own.ConfigSynonyms[1].Name != "group."+lockConfig) {
			t.Errorf("synonyms %+v", own.ConfigSynonyms)
		}
	}
	list := kmsg.NewPtrListConfigResourcesRequest()
	for _, f := range []struct {
		types []int8
		group bool
	}{
		{[]int8{int8(kmsg.ConfigResourceTypeGroupConfig)}, true},
		{[]int8{int8(kmsg.ConfigResourceTypeTopic)}, false},
		{nil, true},
	} {
		list.ResourceTypes = f.types
		var groups []string
		for _, r := range ask[*kmsg.ListConfigResourcesResponse](ctx, t, cl, list).ConfigResources {
			if r.Type == int8(kmsg.ConfigResourceTypeGroupConfig) {
				groups = append(groups, r.Name)
			}
		}
		if f.group != slices.Equal(groups, []string{"g"}) || (!f.group && len(groups) > 0) {
			t.Errorf("types %v: groups %v", f.types, groups)
		}
	}
}

// Who has a partition's log tells its producers; others do not.
func TestFollowersDescribeProducers(t *testing.T) {
	ctx := testkit.Deadline(t, 30*time.Second)
	c := start(t, Config{Brokers: 3})
	cl := client(t, c)
	adm := kadm.NewClient(cl)
	for replicas, answers := range map[int16]map[int32]int16{
		1: {0: 0, 1: codeNotLeader, 2: codeNotLeader},
		2: {0: 0, 1: 0, 2: codeNotLeader},
		3: {0: 0, 1: 0, 2: 0},
	} {
		topic := fmt.Sprintf("replicas-%d", replicas)
		if _, err := adm.CreateTopic(ctx, 1, replicas, nil, topic); err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrDescribeProducersRequest()
		req.Topics = []kmsg.DescribeProducersRequestTopic{{Topic: topic, Partitions: []int32{0}}}
		for node, want := range answers {
			resp, err := cl.Broker(int(node)).Request(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			if got := resp.(*kmsg.DescribeProducersResponse).Topics[0].Partitions[0].ErrorCode; got != want {
				t.Errorf("%d replicas, node %d: %d, want %d", replicas, node, got, want)
			}
		}
	}
}
