package broker

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// These requests are about share groups and other things at once: ours are
// answered here, the rest by kfake, and the answers are put together.

// createTopics has kfake create topics and then places their leaders.
func (c *Cluster) createTopics(ctx context.Context, conn *front.Conn, req *kmsg.CreateTopicsRequest) (kmsg.Response, error) {
	kresp, err := c.broker(conn.Node).Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.CreateTopicsResponse)
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode != 0 {
			continue
		}
		if !req.ValidateOnly {
			if err := c.place(t.Topic); err != nil {
				c.cfg.Logger.Error("leaders not placed", "topic", t.Topic, "err", err)
			}
		}
		if t.Configs, err = c.topicConfigs(ctx, conn, t); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// topicConfigs are all configs of a topic, as Kafka tells them whoever creates
// it; kfake tells those that the request set, and none as null, which Java's
// client takes for a refusal to tell. They stay alone where only a validation was
// asked for.
func (c *Cluster) topicConfigs(ctx context.Context, conn *front.Conn, t *kmsg.CreateTopicsResponseTopic) ([]kmsg.CreateTopicsResponseTopicConfig, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, t.Topic
	req.Version, req.Resources = 4, append(req.Resources, res)
	kresp, err := c.broker(conn.Node).Do(ctx, req)
	if err != nil {
		return nil, err
	}
	out := append([]kmsg.CreateTopicsResponseTopicConfig{}, t.Configs...)
	for _, r := range kresp.(*kmsg.DescribeConfigsResponse).Resources {
		if r.ErrorCode != 0 {
			continue
		}
		out = out[:0]
		for _, cfg := range r.Configs {
			x := kmsg.NewCreateTopicsResponseTopicConfig()
			x.Name, x.Value, x.ReadOnly, x.Source, x.IsSensitive = cfg.Name, cfg.Value, cfg.ReadOnly, int8(cfg.Source), cfg.IsSensitive
			out = append(out, x)
		}
	}
	return out, nil
}

// describeTopics has kfake describe topics, for the client's own principal. The
// eligible leaders are an empty list on Kafka, not a null.
func (c *Cluster) describeTopics(conn *front.Conn, q frame.Request) ([]byte, error) {
	raw, err := conn.Forward(q.Raw, true)
	if err != nil {
		return nil, err
	}
	kresp, err := frame.ReadResponse(raw, &kmsg.DescribeTopicPartitionsRequest{Version: q.Version})
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.DescribeTopicPartitionsResponse)
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			p.EligibleLeaderReplicas, p.LastKnownELR = []int32{}, []int32{}
		}
	}
	return frame.AppendResponse(nil, q.CorrelationID, resp), nil
}

// Kafka's error codes that are answered here.
const (
	codeNotCoordinator       = 16
	codeInvalidConfig        = 40
	codeInvalidRequest       = 42
	codeInvalidProducerEpoch = 47
	codeInvalidUpdateVersion = 95
)

func isGroup(t kmsg.ConfigResourceType) bool { return t == kmsg.ConfigResourceTypeGroupConfig }

// part tells what is answered here from what kfake answers.
func part[R any](all []R, ours func(R) bool) (here, kfake []R) {
	for _, r := range all {
		if ours(r) {
			here = append(here, r)
		} else {
			kfake = append(kfake, r)
		}
	}
	return here, kfake
}

func (c *Cluster) describeConfigs(ctx context.Context, conn *front.Conn, q frame.Request, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	groups, others := part(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool { return isGroup(r.ResourceType) })
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	var kresp kmsg.Response = resp
	var err error
	switch {
	case len(groups) == 0: // for the client's own principal
		var raw []byte
		if raw, err = conn.Forward(q.Raw, true); err == nil {
			kresp, err = frame.ReadResponse(raw, req)
		}
	case len(others) > 0:
		rest := *req
		rest.Resources = others
		kresp, err = c.broker(conn.Node).Do(ctx, &rest)
	}
	if err != nil {
		return nil, err
	}
	resp = kresp.(*kmsg.DescribeConfigsResponse)
	c.tellSettings(req, resp)
	for _, g := range groups {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = g.ResourceType, g.ResourceName
		for _, x := range c.groupConfig(conn.Node, g.ResourceName) {
			if g.ConfigNames == nil || slices.Contains(g.ConfigNames, x.Name) {
				out.Configs = append(out.Configs, describeConfig(x, req.IncludeSynonyms))
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// describeConfig tells a config of a group: its source, and behind it what
// would hold without it.
func describeConfig(x share.ConfigEntry, synonyms bool) kmsg.DescribeConfigsResponseResourceConfig {
	out := kmsg.NewDescribeConfigsResponseResourceConfig()
	out.Name, out.Value, out.Source, out.ConfigType = x.Name, &x.Value, kmsg.ConfigSourceDefaultConfig, x.Type
	if x.Set {
		out.Source = kmsg.ConfigSourceGroupConfig
	}
	add := func(name, value string, source kmsg.ConfigSource) {
		s := kmsg.NewDescribeConfigsResponseResourceConfigConfigSynonym()
		s.Name, s.Value, s.Source = name, &value, source
		out.ConfigSynonyms = append(out.ConfigSynonyms, s)
	}
	if synonyms && x.Set {
		add(x.Name, x.Value, kmsg.ConfigSourceGroupConfig)
	}
	if synonyms {
		add(x.DefaultName, x.Default, kmsg.ConfigSourceDefaultConfig)
	}
	return out
}

// listConfigResources adds the groups that are configured here.
func (c *Cluster) listConfigResources(conn *front.Conn, q frame.Request) ([]byte, error) {
	m, err := q.Message(c.staging(conn.Node))
	if err != nil {
		return nil, err
	}
	raw, err := conn.Forward(q.Raw, true)
	if err != nil {
		return nil, err
	}
	kresp, err := frame.ReadResponse(raw, m)
	if err != nil {
		return nil, err
	}
	resp, types := kresp.(*kmsg.ListConfigResourcesResponse), m.(*kmsg.ListConfigResourcesRequest).ResourceTypes
	if q.Version > 0 && resp.ErrorCode == 0 && (len(types) == 0 || slices.Contains(types, int8(kmsg.ConfigResourceTypeGroupConfig))) {
		for _, name := range c.engine.Configured() {
			r := kmsg.NewListConfigResourcesResponseConfigResource()
			r.Name, r.Type = name, int8(kmsg.ConfigResourceTypeGroupConfig)
			resp.ConfigResources = append(resp.ConfigResources, r)
		}
	}
	return frame.AppendResponse(nil, q.CorrelationID, resp), nil
}

func (c *Cluster) alterConfigs(ctx context.Context, conn *front.Conn, req *kmsg.IncrementalAlterConfigsRequest) (kmsg.Response, error) {
	groups, others := part(req.Resources, func(r kmsg.IncrementalAlterConfigsRequestResource) bool { return isGroup(r.ResourceType) })
	rest := *req
	rest.Resources = others
	if len(groups) == 0 {
		return nil, errKfake
	}
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	if len(rest.Resources) > 0 {
		kresp, err := c.broker(conn.Node).Do(ctx, &rest)
		if err != nil {
			return nil, err
		}
		resp = kresp.(*kmsg.IncrementalAlterConfigsResponse)
	}
	for _, g := range groups {
		out := kmsg.NewIncrementalAlterConfigsResponseResource()
		out.ResourceType, out.ResourceName = g.ResourceType, g.ResourceName
		set := make(map[string]*string)
		for _, cfg := range g.Configs {
			if _, twice := set[cfg.Name]; twice {
				out.ErrorCode = codeInvalidRequest
			}
			set[cfg.Name] = cfg.Value
			switch cfg.Op {
			case kmsg.IncrementalAlterConfigOpDelete:
				set[cfg.Name] = nil
			case kmsg.IncrementalAlterConfigOpAppend, kmsg.IncrementalAlterConfigOpSubtract:
				out.ErrorCode = cmp.Or(out.ErrorCode, codeInvalidConfig) // none is a list
			}
		}
		if out.ErrorCode == 0 && !req.ValidateOnly {
			if err := c.setGroupConfig(g.ResourceName, set); err != nil {
				why := err.Error()
				out.ErrorCode, out.ErrorMessage = codeInvalidConfig, &why
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

// listGroups filters here what kfake and the engine have: Kafka does not look at
// upper and lower case in the filters, and Java's tools write Share and Classic.
func (c *Cluster) listGroups(ctx context.Context, conn *front.Conn, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	all := *req
	all.StatesFilter, all.TypesFilter = nil, nil
	kresp, err := c.broker(conn.Node).Do(ctx, &all)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ListGroupsResponse)
	for name, members := range c.engine.Groups() {
		if c.kf.CoordinatorFor(name) != conn.Node {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = name, "share", "Empty", "share"
		if members {
			g.GroupState = "Stable"
		}
		resp.Groups = append(resp.Groups, g)
	}
	wanted := func(filter []string, value string) bool {
		return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
	}
	resp.Groups = slices.DeleteFunc(resp.Groups, func(g kmsg.ListGroupsResponseGroup) bool {
		return !wanted(req.StatesFilter, g.GroupState) || !wanted(req.TypesFilter, g.GroupType)
	})
	return resp, nil
}

func (c *Cluster) deleteGroups(ctx context.Context, conn *front.Conn, req *kmsg.DeleteGroupsRequest) (kmsg.Response, error) {
	ours := c.engine.Groups()
	rest := *req
	rest.Groups = nil
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, name := range req.Groups {
		if _, ok := ours[name]; !ok {
			rest.Groups = append(rest.Groups, name)
			continue
		}
		g := kmsg.NewDeleteGroupsResponseGroup()
		g.Group, g.ErrorCode = name, codeNotCoordinator
		if c.kf.CoordinatorFor(name) == conn.Node {
			g.ErrorCode = c.engine.DeleteGroup(name)
		}
		resp.Groups = append(resp.Groups, g)
	}
	if len(rest.Groups) > 0 {
		kresp, err := c.broker(conn.Node).Do(ctx, &rest)
		if err != nil {
			return nil, err
		}
		resp.Groups = append(resp.Groups, kresp.(*kmsg.DeleteGroupsResponse).Groups...)
	}
	return resp, nil
}
