package conformance

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// X is what a case works with: its target, and names of its own.
type X struct {
	testing.TB
	Target    Target
	Client    *kgo.Client // plain, produces to partitions by hand
	Adm       *kadm.Client
	name      string
	prefix    string
	n         int
	differing *tally
}

// serial makes names that no earlier run on the same cluster had.
var serial atomic.Int64

// NewX is an X for another suite than the list; what differs is not listed.
func NewX(t testing.TB, target Target, name string) *X {
	t.Helper()
	return newX(t, target, name, &tally{})
}

func newX(t testing.TB, target Target, name string, differing *tally) *X {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(target.Seeds()...), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MetadataMinAge(10*time.Millisecond), kgo.DisableClientMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &X{
		TB: t, Target: target, Client: client, Adm: kadm.NewClient(client), name: name, differing: differing,
		prefix: fmt.Sprintf("c%d-%d-%s", time.Now().UnixMilli(), serial.Add(1), strings.Map(nameable, name)),
	}
}

// nameable puts in place of what Kafka allows in no topic's name what it allows.
func nameable(r rune) rune {
	switch {
	case r == '/':
		return '.'
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9':
		return r
	}
	return '-'
}

// runFlag is -run as it was given.
func runFlag() string {
	if f := flag.Lookup("test.run"); f != nil {
		return f.Value.String()
	}
	return ""
}

// Fresh is a name of this case's own; what tells its names apart.
func (x *X) Fresh(what string) string {
	x.n++
	return fmt.Sprintf("%s.%s%d", x.prefix, what, x.n)
}

// Must fails the case on an error that no expectation is about.
func (x *X) Must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// Topic is a topic of this case.
type Topic struct {
	Name string
	ID   [16]byte
}

// Part is one of its partitions.
func (t Topic) Part(i int32) byhand.Partition { return byhand.Partition{Topic: t.ID, Index: i} }

// Topic creates a topic, waits until every partition has a leader, and gives it.
// configs are "key=value".
func (x *X) Topic(ctx context.Context, partitions int32, configs ...string) Topic {
	x.Helper()
	set := make(map[string]*string)
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		set[k] = &v
	}
	name := x.Fresh("t")
	_, err := x.Adm.CreateTopic(ctx, partitions, -1, set, name)
	x.Must(err)
	return x.Find(ctx, name, partitions)
}

// metadataRequest asks for those topics. It is not kadm's, which may answer with
// what its client has kept, and that may be long ago.
func metadataRequest(topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none; all would be null
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	return req
}

// told is what each broker tells of a topic, those left out that do not answer, as
// one that is down or has just come back. Each learns of changes by itself, so
// what one tells the next may not know yet.
func (x *X) told(ctx context.Context, topic string) (all []kmsg.MetadataResponseTopic) {
	for _, node := range x.Target.Nodes() {
		if kresp, err := x.Client.Broker(int(node)).Request(ctx, metadataRequest(topic)); err == nil {
			all = append(all, kresp.(*kmsg.MetadataResponse).Topics[0])
		}
	}
	return all
}

// Find waits until every broker tells that a topic has that many partitions, and
// the same leader of each.
func (x *X) Find(ctx context.Context, name string, partitions int32) (t Topic) {
	x.Helper()
	testkit.Eventually(ctx, x, "topic "+name+" has leaders", func() bool {
		all := x.told(ctx, name)
		if len(all) == 0 {
			return false
		}
		for _, told := range all {
			if told.ErrorCode != 0 || len(told.Partitions) != int(partitions) || told.TopicID != all[0].TopicID {
				return false
			}
		}
		for p := range partitions {
			if leader(all, p) < 0 {
				return false
			}
		}
		t = Topic{name, all[0].TopicID}
		return true
	})
	return t
}

// Leader is the broker that leads a partition now, -1 if none does or if one
// broker still names another than the next.
func (x *X) Leader(ctx context.Context, t Topic, partition int32) int32 {
	return leader(x.told(ctx, t.Name), partition)
}

// leader is the leader of a partition that all agree on, or -1.
func leader(all []kmsg.MetadataResponseTopic, partition int32) int32 {
	agreed := int32(-1)
	for i, told := range all {
		of := slices.IndexFunc(told.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Partition == partition && p.ErrorCode == 0 })
		if of < 0 || i > 0 && told.Partitions[of].Leader != agreed {
			return -1
		}
		agreed = told.Partitions[of].Leader
	}
	return agreed
}

// Group gives a share group of this case that reads from the start; configs are
// "key=value". It returns when every broker shows them.
func (x *X) Group(ctx context.Context, configs ...string) string {
	x.Helper()
	group := x.Fresh("g")
	x.GroupConfigs(ctx, group, append([]string{"share.auto.offset.reset=earliest"}, configs...)...)
	return group
}

// GroupConfigs sets configs of a group and waits until every broker shows them.
func (x *X) GroupConfigs(ctx context.Context, group string, configs ...string) {
	x.Helper()
	want := make(map[string]string)
	for _, c := range configs {
		k, v, _ := strings.Cut(c, "=")
		want[k] = v
	}
	x.Same("code of setting "+strings.Join(configs, " "), x.AlterGroup(ctx, group, want), int16(0))
	for _, node := range x.Target.Nodes() {
		testkit.Eventually(ctx, x, fmt.Sprintf("broker %d shows %v", node, want), func() bool {
			have := x.DescribeGroup(ctx, node, group)
			for k, v := range want {
				if have[k] != v {
					return false
				}
			}
			return true
		})
	}
}

// groupResource is the type of configs of groups (KIP-848).
const groupResource = 32

// AlterGroup sets configs of a group and gives the answer's code.
func (x *X) AlterGroup(ctx context.Context, group string, configs map[string]string) int16 {
	x.Helper()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = groupResource, group
	for k, v := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, &v
		res.Configs = append(res.Configs, c)
	}
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	return resp.Resources[0].ErrorCode
}

// DescribeGroup is what one broker shows of a group's configs.
func (x *X) DescribeGroup(ctx context.Context, node int32, group string) map[string]string {
	x.Helper()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = groupResource, group
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, res)
	kresp, err := x.Client.Broker(int(node)).RetriableRequest(ctx, req)
	x.Must(err)
	have := make(map[string]string)
	for _, c := range kresp.(*kmsg.DescribeConfigsResponse).Resources[0].Configs {
		if c.Value != nil {
			have[c.Name] = *c.Value
		}
	}
	return have
}

// Member makes a member that has done nothing yet, with connections of its own.
func (x *X) Member(group string, topics ...string) *byhand.Member {
	x.Helper()
	m, err := byhand.NewMember(x.Target.Seeds(), group, topics...)
	x.Must(err)
	x.Cleanup(m.Close)
	return m
}

// Joined makes a member that has all n partitions of the topics.
func (x *X) Joined(ctx context.Context, group string, n int, topics ...string) *byhand.Member {
	x.Helper()
	m := x.Member(group, topics...)
	_, err := m.Settle(ctx, n)
	x.Must(err)
	return m
}

// Feed produces n records with values "0" to "n-1" to one partition, in one
// batch.
func (x *X) Feed(ctx context.Context, t Topic, partition int32, n int) {
	x.Helper()
	var rs []*kgo.Record
	for i := range n {
		rs = append(rs, &kgo.Record{Topic: t.Name, Partition: partition, Value: fmt.Append(nil, i)})
	}
	x.Must(x.Client.ProduceSync(ctx, rs...).FirstErr())
}

// Until fetches until the partition hands something out or has an error of its
// own, and gives the answer. The session must be the member's with its leader.
func (x *X) Until(ctx context.Context, s *byhand.Session, f byhand.Fetch, p byhand.Partition) byhand.FetchedPart {
	x.Helper()
	for {
		got, err := s.Fetch(ctx, f)
		x.Must(err)
		if got.Code != 0 {
			x.Fatalf("fetch refused: code %d", got.Code)
		}
		if part := got.Parts[p]; len(part.Acquired) > 0 || (part.Code != 0 && part.Code != 15) {
			return part
		}
		f.Acks, f.Forget = nil, nil // sent once
		if ctx.Err() != nil {
			x.Fatalf("nothing of %v was handed out: %v", p, context.Cause(ctx))
		}
	}
}

// Offsets are the offsets of records.
func Offsets(rs []*kgo.Record) []int64 {
	var out []int64
	for _, r := range rs {
		out = append(out, r.Offset)
	}
	return out
}
