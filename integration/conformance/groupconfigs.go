package conformance

import (
	"context"
	"fmt"
	"strings"

	"github.com/sharetxn/sharetxn/integration/byhand"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupConfigs is the configs of share groups (KIP-932, KIP-1240).
var groupConfigs = []Case{
	{Name: "configs/defaults", Run: func(ctx context.Context, x *X) {
		have := x.DescribeGroup(ctx, x.Target.Nodes()[0], x.Fresh("g"))
		want := map[string]string{
			"share.auto.offset.reset":       "latest",
			"share.isolation.level":         "read_uncommitted",
			"share.record.lock.duration.ms": "30000",
			"share.heartbeat.interval.ms":   "500",
			"share.session.timeout.ms":      "45000",
		}
		if x.Target.Version().Since(4, 3) {
			want["share.delivery.count.limit"] = "5"
			want["share.partition.max.record.locks"] = "2000"
			want["share.renew.acknowledge.enable"] = "true"
			want["share.assignment.interval.ms"] = "1000"
		}
		for k, v := range want {
			x.Same(k, have[k], v)
		}
	}},
	bounds("share.delivery.count.limit", true, []string{"2", "10"}, []string{"1", "11", "0", "-1", "x", "", "2.5"}),
	bounds("share.partition.max.record.locks", true, []string{"100", "4000"}, []string{"99", "4001", "x"}),
	bounds("share.renew.acknowledge.enable", true, []string{"true", "false"}, []string{"yes", "1", ""}),
	bounds("share.record.lock.duration.ms", false, []string{"1000", "60000"}, []string{"999", "60001", "x", "-1"}),
	bounds("share.session.timeout.ms", false, []string{"45000", "60000"}, []string{"60001", "0", "x"}),
	bounds("share.heartbeat.interval.ms", false, []string{"500", "15000"}, []string{"499", "15001", "x"}),
	bounds("share.isolation.level", false, []string{"read_committed", "read_uncommitted"}, []string{"committed", ""}),
	bounds("share.auto.offset.reset", false, []string{"earliest", "latest", "by_duration:P1D", "by_duration:PT1.5S"},
		[]string{"none", "by_duration:", "by_duration:1d", "by_duration:-P1D", ""}),
	{Name: "configs/an unknown one", Run: func(ctx context.Context, x *X) {
		x.Same("code", x.AlterGroup(ctx, x.Fresh("g"), map[string]string{"share.nonsense": "1"}), int16(codeInvalidConfig))
	}},
	{Name: "configs/one bad value refuses all", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		x.Same("code", x.AlterGroup(ctx, group, map[string]string{"share.isolation.level": "read_committed", "share.record.lock.duration.ms": "1"}), int16(codeInvalidConfig))
		x.Same("as before", x.DescribeGroup(ctx, x.Target.Nodes()[0], group)["share.isolation.level"], "read_uncommitted")
	}},
	{Name: "configs/one twice in a request", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx)
		x.Same("code", x.change(ctx, group, opSet("share.isolation.level", "read_committed"), opSet("share.isolation.level", "read_committed")), int16(codeInvalidRequest))
	}},
	{Name: "configs/deleted is the default again", Run: func(ctx context.Context, x *X) {
		group := x.Group(ctx, "share.record.lock.duration.ms=20000")
		x.Same("code", x.change(ctx, group, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "share.record.lock.duration.ms", Op: kmsg.IncrementalAlterConfigOpDelete}), int16(0))
		testkit.Eventually(ctx, x, "the default", func() bool {
			return x.DescribeGroup(ctx, x.Target.Nodes()[0], group)["share.record.lock.duration.ms"] == "30000"
		})
		x.Same("the other stays", x.DescribeGroup(ctx, x.Target.Nodes()[0], group)["share.auto.offset.reset"], "earliest")
		x.Same("once more", x.change(ctx, group, kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "share.record.lock.duration.ms", Op: kmsg.IncrementalAlterConfigOpDelete}), int16(0))
	}},
	{Name: "configs/nothing can be appended", Run: func(ctx context.Context, x *X) {
		v := "20000"
		x.Same("code", x.change(ctx, x.Fresh("g"), kmsg.IncrementalAlterConfigsRequestResourceConfig{
			Name: "share.record.lock.duration.ms", Value: &v, Op: kmsg.IncrementalAlterConfigOpAppend,
		}), int16(codeInvalidConfig))
	}},
	{Name: "configs/isolation holds for a running group", Run: func(ctx context.Context, x *X) {
		p := x.Txn(ctx, 1)
		h := x.Holder(ctx, x.Group(ctx), p.topic)
		p.ends(ctx, false)
		x.Same("aborted records are delivered by default", h.first(ctx), "0..1x1")
		x.Same("accept", h.ack(ctx, "0..1:1"), int16(0))
		h.configure(ctx, "share.isolation.level=read_committed")
		p.ends(ctx, false)
		p.ends(ctx, true)
		x.Same("and then not", h.records(ctx), []int64{4})
	}},
	{Name: "configs/of dead letter queues", Run: func(ctx context.Context, x *X) {
		for _, c := range []string{"errors.deadletterqueue.topic.name=dlq.nothing", "errors.deadletterqueue.copy.record.enable=true"} {
			k, v, _ := strings.Cut(c, "=")
			code := x.AlterGroup(ctx, x.Fresh("g"), map[string]string{k: v})
			if x.Target.Version().Since(4, 4) {
				x.Differs("code of setting "+c, "the embedded broker has no dead letter queues (KIP-1191)", code, int16(0), int16(codeInvalidConfig))
			} else {
				x.Same("code of setting "+c, code, int16(codeInvalidConfig))
			}
		}
	}},
	{Name: "configs/the heartbeat tells the interval", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1)
		h.configure(ctx, "share.heartbeat.interval.ms=2000")
		resp, err := h.m.Beat(ctx)
		x.Must(err)
		x.Same("milliseconds", resp.HeartbeatIntervalMillis, int32(2000))
	}},
	{Name: "configs/outlive their group", Run: func(ctx context.Context, x *X) {
		h := x.Held(ctx, 1, "share.record.lock.duration.ms=20000").left(ctx)
		resp, err := x.Adm.DeleteGroups(ctx, h.group)
		x.Must(err)
		x.Must(resp[h.group].Err)
		x.Same("shown", x.DescribeGroup(ctx, x.Target.Nodes()[0], h.group)["share.record.lock.duration.ms"], "20000")
	}},
}

// records fetches until records are acquired and gives their offsets, without
// those of gaps.
func (h *held) records(ctx context.Context) (out []int64) {
	h.Helper()
	part := h.Until(ctx, h.s, byhand.NewFetch(h.part), h.part)
	for _, r := range part.Records {
		for _, a := range part.Acquired {
			if a.First <= r.Offset && r.Offset <= a.Last && !r.Attrs.IsControl() {
				out = append(out, r.Offset)
			}
		}
	}
	return out
}

// bounds is the case of a config's good and bad values.
func bounds(config string, kip1240 bool, good, bad []string) Case {
	return Case{Name: "configs/values of " + config, Run: func(ctx context.Context, x *X) {
		if kip1240 && !x.knows(ctx, config+"="+good[0]) {
			return
		}
		group := x.Fresh("g")
		for _, v := range good {
			x.GroupConfigs(ctx, group, config+"="+v)
		}
		for _, v := range bad {
			x.Same(fmt.Sprintf("code of %q", v), x.AlterGroup(ctx, group, map[string]string{config: v}), int16(codeInvalidConfig))
		}
		x.Same("the last good one", x.DescribeGroup(ctx, x.Target.Nodes()[0], group)[config], good[len(good)-1])
	}}
}

func opSet(name, value string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	return kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: name, Value: &value}
}

// change sends changes of a group's configs in one request and gives the code.
func (x *X) change(ctx context.Context, group string, changes ...kmsg.IncrementalAlterConfigsRequestResourceConfig) int16 {
	x.Helper()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName, res.Configs = groupResource, group, changes
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = append(req.Resources, res)
	resp, err := req.RequestWith(ctx, x.Client)
	x.Must(err)
	return resp.Resources[0].ErrorCode
}
