package broker

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	"github.com/sharetxn/sharetxn/internal/broker/front"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nodes are the brokers, by node id.
func (c *Cluster) nodes() []*front.Broker {
	c.nodeMu.RLock()
	defer c.nodeMu.RUnlock()
	return slices.Clone(c.brokers)
}

// broker is one of them.
func (c *Cluster) broker(node int32) *front.Broker {
	c.nodeMu.RLock()
	defer c.nodeMu.RUnlock()
	return c.brokers[node]
}

// listen opens a node's public listener and gives kfake the one behind it;
// kfake calls it once per node, in order of node id.
func (c *Cluster) listen(network, address string) (net.Listener, error) {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	pub, err := c.open(network, net.JoinHostPort(c.cfg.Host, port))
	if err != nil {
		return nil, err
	}
	again := pub.Addr().String()
	c.nodeMu.Lock()
	defer c.nodeMu.Unlock()
	b, back := front.New(front.Config{
		Node: int32(len(c.brokers)), Handler: c, Public: pub, IDs: &c.ids, Die: c.die,
		Listen: func() (net.Listener, error) { return c.open(network, again) },
	})
	c.brokers = append(c.brokers, b)
	return back, nil
}

// AddNode makes another broker join and gives its node id, the next free one.
// Leaders stay where they are: MoveLeader gives it some; new topics are placed
// on it too. What is coordinated by hash is spread over it at once. It has
// staging unless Config.LacksStaging names it. Where Config.Ports are given it
// takes the port above the highest. Do not create topics or move leaders
// meanwhile.
func (c *Cluster) AddNode() (int32, error) {
	if c.data != nil {
		return 0, errors.New("broker: a cluster with a folder has the nodes that it began with")
	}
	before, err := c.leaders()
	if err != nil {
		return 0, fmt.Errorf("broker: %w", err)
	}
	port := 0
	if len(c.cfg.Ports) > 0 {
		port = slices.Max(c.cfg.Ports) + 1 + len(c.nodes()) - c.cfg.Brokers
	}
	node, _, err := c.kf.AddNode(-1, port)
	if err != nil {
		return 0, fmt.Errorf("broker: %w", err)
	}
	var errs []error
	for _, p := range before { // kfake draws all leaders anew
		errs = append(errs, c.kf.MoveTopicPartition(p.topic, p.partition, p.leader))
	}
	return node, errors.Join(errs...)
}

type led struct {
	topic             string
	partition, leader int32
}

// leaders are all partitions with who leads them.
func (c *Cluster) leaders() ([]led, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, nil // all
	kresp, err := c.broker(0).Do(c.die, req)
	if err != nil {
		return nil, err
	}
	var out []led
	for _, t := range kresp.(*kmsg.MetadataResponse).Topics {
		for _, p := range t.Partitions {
			out = append(out, led{*t.Topic, p.Partition, p.Leader})
		}
	}
	return out, nil
}

// StopNode takes a node down: its connections are cut, new ones are refused, and
// what it had in memory only is gone: share sessions, acquisitions and, in
// profile KIP93, what was staged on the partitions it leads. Logs, leaders and
// all that was persisted stay. StartNode undoes it.
func (c *Cluster) StopNode(node int32) {
	c.engine.NodeDown(node)
	c.broker(node).Stop()
	c.engine.NodeDown(node)
}

// StartNode undoes StopNode, at the same address.
func (c *Cluster) StartNode(node int32) error { return c.broker(node).Start() }

// RestartNode is StopNode and StartNode. Two of a node at once may be one restart.
func (c *Cluster) RestartNode(node int32) error {
	c.StopNode(node)
	if err := c.StartNode(node); !errors.Is(err, front.ErrRunning) {
		return err
	}
	return nil // the other was quicker
}

// UpgradeNode restarts a node that lacks staging as one that has it. The
// features stay as they are: see SetFeature.
func (c *Cluster) UpgradeNode(node int32) error {
	c.StopNode(node)
	c.nodeMu.Lock()
	delete(c.lacks, node)
	c.nodeMu.Unlock()
	return c.StartNode(node)
}

// staging is the profile that a node's software speaks, at whatever level the
// features are; None for none.
func (c *Cluster) staging(node int32) wire.Profile {
	c.nodeMu.RLock()
	defer c.nodeMu.RUnlock()
	if c.cfg.Stock44 || c.lacks[node] {
		return wire.None
	}
	return c.cfg.Profile
}

// hostPort splits a node's address.
func (c *Cluster) hostPort(node int32) (string, int32, bool) {
	nodes := c.nodes()
	if node < 0 || int(node) >= len(nodes) {
		return "", 0, false
	}
	host, port, err := net.SplitHostPort(nodes[node].Addr())
	if err != nil {
		return "", 0, false
	}
	n, err := strconv.ParseInt(port, 10, 32)
	return host, int32(n), err == nil
}
