package broker

import (
	"context"
	"slices"

	"github.com/sharetxn/sharetxn/internal/broker/front"
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
	for _, t := range resp.Topics {
		if t.ErrorCode == 0 && !req.ValidateOnly {
			if err := c.place(t.Topic); err != nil {
				c.cfg.Logger.Error("leaders not placed", "topic", t.Topic, "err", err)
			}
		}
	}
	return resp, nil
}

// Kafka's error codes that are answered here.
const (
	codeNotCoordinator       = 16
	codeInvalidConfig        = 40
	codeInvalidRequest       = 42
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

func (c *Cluster) describeConfigs(ctx context.Context, conn *front.Conn, req *kmsg.DescribeConfigsRequest) (kmsg.Response, error) {
	groups, others := part(req.Resources, func(r kmsg.DescribeConfigsRequestResource) bool { return isGroup(r.ResourceType) })
	rest := *req
	rest.Resources = others
	if len(groups) == 0 {
		return nil, errKfake
	}
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	if len(rest.Resources) > 0 {
		kresp, err := c.broker(conn.Node).Do(ctx, &rest)
		if err != nil {
			return nil, err
		}
		resp = kresp.(*kmsg.DescribeConfigsResponse)
	}
	for _, g := range groups {
		out := kmsg.NewDescribeConfigsResponseResource()
		out.ResourceType, out.ResourceName = g.ResourceType, g.ResourceName
		for name, value := range c.engine.GroupConfig(g.ResourceName) {
			if g.ConfigNames != nil && !slices.Contains(g.ConfigNames, name) {
				continue
			}
			cfg := kmsg.NewDescribeConfigsResponseResourceConfig()
			cfg.Name, cfg.Value, cfg.Source = name, &value, kmsg.ConfigSourceGroupConfig
			out.Configs = append(out.Configs, cfg)
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
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
			if cfg.Op == kmsg.IncrementalAlterConfigOpDelete {
				set[cfg.Name] = nil
			}
		}
		if out.ErrorCode == 0 && !req.ValidateOnly {
			if err := c.engine.SetGroupConfig(g.ResourceName, set); err != nil {
				why := err.Error()
				out.ErrorCode, out.ErrorMessage = codeInvalidConfig, &why
			}
		}
		resp.Resources = append(resp.Resources, out)
	}
	return resp, nil
}

func (c *Cluster) listGroups(ctx context.Context, conn *front.Conn, req *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	kresp, err := c.broker(conn.Node).Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.ListGroupsResponse)
	for name, members := range c.engine.Groups() {
		state := "Empty"
		if members {
			state = "Stable"
		}
		if c.kf.CoordinatorFor(name) != conn.Node ||
			(len(req.StatesFilter) > 0 && !slices.Contains(req.StatesFilter, state)) ||
			(len(req.TypesFilter) > 0 && !slices.Contains(req.TypesFilter, "share")) {
			continue
		}
		g := kmsg.NewListGroupsResponseGroup()
		g.Group, g.ProtocolType, g.GroupState, g.GroupType = name, "share", state, "share"
		resp.Groups = append(resp.Groups, g)
	}
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
