package broker

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// InternalReplicas is how many replicas the brokers' settings want of Kafka's
// internal topics; 0: as many as there are brokers. While more are wanted than
// there are brokers the topic cannot be created and what it is for answers that
// there is no coordinator, as one stock broker does (measured on 4.4.0).
type InternalReplicas struct{ Offsets, Transactions, ShareState int }

// The settings and FindCoordinator's key types they decide about.
const (
	settingOffsets      = "offsets.topic.replication.factor"
	settingTransactions = "transaction.state.log.replication.factor"
	settingShareState   = "share.coordinator.state.topic.replication.factor"

	ofGroups       = 0
	ofTransactions = 1
	ofShareState   = 2
)

// short tells whether there are fewer brokers than a topic wants.
func (c *Cluster) short(replicas int) bool { return replicas > len(c.nodes()) }

// findCoordinator answers where there is none; else kfake does.
func (c *Cluster) findCoordinator(req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	want := c.cfg.InternalReplicas
	var short bool
	switch req.CoordinatorType {
	case ofGroups:
		short = c.short(want.Offsets)
	case ofTransactions:
		short = c.short(want.Transactions)
	case ofShareState:
		short = c.short(want.ShareState)
	}
	if !short {
		return nil, errKfake
	}
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.ErrorCode, resp.NodeID, resp.Port = codeCoordinatorNotAvailable, -1, -1
	if req.Version >= 4 {
		resp.ErrorCode, resp.NodeID, resp.Port = 0, 0, 0
		for _, key := range req.CoordinatorKeys {
			x := kmsg.NewFindCoordinatorResponseCoordinator()
			x.Key, x.ErrorCode, x.NodeID, x.Port = key, codeCoordinatorNotAvailable, -1, -1
			resp.Coordinators = append(resp.Coordinators, x)
		}
	}
	return resp, nil
}

// withoutTopics answers what needs an internal topic that is not there; nil for
// all else.
func (c *Cluster) withoutTopics(m kmsg.Request) kmsg.Response {
	want := c.cfg.InternalReplicas
	switch m := m.(type) {
	case *kmsg.InitProducerIDRequest:
		if m.TransactionalID == nil || !c.short(want.Transactions) {
			return nil
		}
		resp := m.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = codeNotCoordinator, -1, -1
		return resp
	case *kmsg.ShareGroupHeartbeatRequest:
		resp := m.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
		switch {
		case c.short(want.Offsets):
			resp.ErrorCode = codeNotCoordinator
			return resp
		case !c.short(want.ShareState) || m.MemberEpoch < 0:
			return nil
		}
		// The member is taken, and waits for partitions in vain. The engine does
		// not get to know it: once the topic is there it has to join again, which
		// Kafka spares it.
		resp.MemberID, resp.MemberEpoch = &m.MemberID, max(m.MemberEpoch, 1)
		resp.HeartbeatIntervalMillis = 100
		if m.MemberEpoch == 0 {
			none := kmsg.NewShareGroupHeartbeatResponseAssignment()
			resp.Assignment = &none
		}
		return resp
	}
	return nil
}

// settingScan is how often Kafka looks for transactions whose time is up; here each
// ends when it is, so the least is told that Kafka takes.
const settingScan = "transaction.abort.timed.out.transaction.cleanup.interval.ms"

// settings are of brokers, and not kfake's.
func (c *Cluster) settings() map[string]int {
	out := map[string]int{settingScan: 1}
	want := c.cfg.InternalReplicas
	for name, replicas := range map[string]int{settingOffsets: want.Offsets, settingTransactions: want.Transactions, settingShareState: want.ShareState} {
		if replicas == 0 {
			replicas = len(c.nodes())
		}
		out[name] = replicas
	}
	return out
}

// tellSettings puts the settings into what kfake tells of brokers.
func (c *Cluster) tellSettings(req *kmsg.DescribeConfigsRequest, resp *kmsg.DescribeConfigsResponse) {
	for i := range resp.Resources {
		r := &resp.Resources[i]
		if r.ResourceType != kmsg.ConfigResourceTypeBroker || r.ErrorCode != 0 {
			continue
		}
		var names []string // nil: all
		for _, asked := range req.Resources {
			if asked.ResourceType == r.ResourceType && asked.ResourceName == r.ResourceName {
				names = asked.ConfigNames
			}
		}
		for name, n := range c.settings() {
			if names != nil && !slices.Contains(names, name) {
				continue
			}
			r.Configs = slices.DeleteFunc(r.Configs, func(x kmsg.DescribeConfigsResponseResourceConfig) bool { return x.Name == name })
			value := strconv.Itoa(n)
			x := kmsg.NewDescribeConfigsResponseResourceConfig()
			x.Name, x.Value, x.Source, x.ReadOnly, x.ConfigType = name, &value, kmsg.ConfigSourceStaticBrokerConfig, true, kmsg.ConfigTypeShort
			if name == settingScan {
				x.ConfigType = kmsg.ConfigTypeInt
			}
			r.Configs = append(r.Configs, x)
		}
	}
}
