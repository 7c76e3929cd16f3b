package sharetxntest

import (
	"fmt"
	"strconv"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// Opt is an option of Start.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	brokers int
	topics  map[string]int32
	groups  map[string]GroupConfig
	profile sharetxn.Profile
	stock   bool
}

// Brokers is how many brokers the cluster has; their ids are 0, 1, ... Default 1.
func Brokers(n int) Opt { return optFunc(func(c *config) { c.brokers = n }) }

// Topic creates a topic. The leader of partition p is broker p modulo Brokers.
// A topic that your code asks for and that was not named here comes into being
// with one partition, unless its name begins with "__"; Feed creates none.
func Topic(name string, partitions int) Opt {
	return optFunc(func(c *config) { c.topics[name] = int32(partitions) })
}

// Group sets the configuration of a share group. A group that is not named here
// has GroupConfig's defaults.
func Group(name string, o GroupConfig) Opt { return optFunc(func(c *config) { c.groups[name] = o }) }

// GroupConfig is the configuration of a share group; a zero field is its
// default. All groups here start at the earliest offset, so that what was fed
// before the first member came is read too; Kafka starts them at the latest.
type GroupConfig struct {
	LockDuration  time.Duration // of acquired records, at least 1 ms; default 30 s
	DeliveryLimit int           // deliveries before a record is archived, 2 to 10; default 5
	ReadCommitted bool          // whether the group sees only what was committed
}

// Profile is the form of KIP-1289 that the brokers speak, and that Connect asks
// for: sharetxn.ProfileDraft95, the default, or sharetxn.ProfileKIP93.
func Profile(p sharetxn.Profile) Opt { return optFunc(func(c *config) { c.profile = p }) }

// StockKafka44 makes the brokers look like Kafka 4.4, which has no KIP-1289 and
// uses its numbers for something else: what needs staging must fail there with
// sharetxn.ErrUnsupported.
func StockKafka44() Opt { return optFunc(func(c *config) { c.stock = true }) }

// wire is the profile inside the module.
func (c config) wire() wire.Profile {
	switch {
	case c.stock:
		return wire.None
	case c.profile == sharetxn.ProfileKIP93:
		return wire.KIP93
	}
	return wire.Draft95
}

func (c config) check() error {
	if c.brokers < 1 {
		return fmt.Errorf("Brokers(%d): at least 1", c.brokers)
	}
	if c.stock && c.profile != sharetxn.ProfileAuto {
		return fmt.Errorf("Profile(%v) with StockKafka44: that has none", c.profile)
	}
	for name, g := range c.groups {
		if g.LockDuration < 0 || g.LockDuration%time.Millisecond != 0 || g.LockDuration > time.Minute {
			return fmt.Errorf("Group(%q): LockDuration %v is not whole milliseconds up to 1m", name, g.LockDuration)
		}
		if g.DeliveryLimit != 0 && (g.DeliveryLimit < 2 || g.DeliveryLimit > 10) {
			return fmt.Errorf("Group(%q): DeliveryLimit %d is not between 2 and 10", name, g.DeliveryLimit)
		}
	}
	return nil
}

// broker is what the embedded broker is started with.
func (c config) broker() broker.Config {
	out := broker.Config{
		Brokers: c.brokers, Topics: c.topics, Stock44: c.stock, Profile: c.wire(),
		OffsetReset: "earliest", MinLockDuration: time.Millisecond, GroupConfigs: make(map[string]map[string]string),
	}
	for name, g := range c.groups {
		kv := make(map[string]string)
		if g.LockDuration > 0 {
			kv["share.record.lock.duration.ms"] = strconv.FormatInt(g.LockDuration.Milliseconds(), 10)
		}
		if g.DeliveryLimit > 0 {
			kv["share.delivery.count.limit"] = strconv.Itoa(g.DeliveryLimit)
		}
		if g.ReadCommitted {
			kv["share.isolation.level"] = "read_committed"
		}
		out.GroupConfigs[name] = kv
	}
	return out
}
