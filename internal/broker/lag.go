package broker

import (
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/share"
)

// lag is what nodes that are behind with the metadata log tell of group configs:
// as they were, for the groups that were altered since.
type lag struct {
	mu    sync.Mutex
	nodes map[int32]map[string][]share.ConfigEntry
}

// Lag makes a node tell the group configs as they are now, whatever is altered
// from then on, until catchUp is called: each broker of Kafka applies the
// metadata log by itself. What the group does follows the alteration at once.
func (c *Cluster) Lag(node int32) (catchUp func()) {
	c.lag.mu.Lock()
	defer c.lag.mu.Unlock()
	if c.lag.nodes == nil {
		c.lag.nodes = make(map[int32]map[string][]share.ConfigEntry)
	}
	c.lag.nodes[node] = make(map[string][]share.ConfigEntry)
	return func() {
		c.lag.mu.Lock()
		defer c.lag.mu.Unlock()
		delete(c.lag.nodes, node)
	}
}

// setGroupConfig alters configs, and keeps what they were for who lags.
func (c *Cluster) setGroupConfig(group string, set map[string]*string) error {
	c.lag.mu.Lock()
	defer c.lag.mu.Unlock()
	before := c.engine.GroupConfig(group)
	if err := c.engine.SetGroupConfig(group, set); err != nil {
		return err
	}
	for _, kept := range c.lag.nodes {
		if _, older := kept[group]; !older {
			kept[group] = before
		}
	}
	return nil
}

// groupConfig is what a node tells of a group.
func (c *Cluster) groupConfig(node int32, group string) []share.ConfigEntry {
	c.lag.mu.Lock()
	defer c.lag.mu.Unlock()
	if kept, lags := c.lag.nodes[node][group]; lags {
		return kept
	}
	return c.engine.GroupConfig(group)
}
