package kafka

import "fmt"

// Setting changes how the brokers of a cluster are started.
type Setting func(*Config)

// Set gives all brokers a line of server.properties that wins over what they
// would have otherwise.
func Set(key string, value any) Setting {
	return func(c *Config) { c.set(key, value) }
}

// JVM gives the brokers' Java these options in place of those for a quick start:
// a broker that is measured must be allowed to get warm.
func JVM(options ...string) Setting {
	return func(c *Config) { c.JVM, c.quick = options, false }
}

// Config is how brokers are started.
type Config struct {
	JVM   []string // Java's options
	Lines []Line   // of server.properties; of two with one key the last counts

	quick bool // Java starts as quickly as it can
}

// Line is one of server.properties.
type Line struct{ Key, Value string }

func (c *Config) set(key string, value any) {
	c.Lines = append(c.Lines, Line{key, fmt.Sprint(value)})
}

// Configure gives what all brokers of a cluster of n have beside their addresses:
// the least that lets groups and transactions work on so few, that keeps tests
// short and brokers small, and then the settings.
func Configure(n int, settings ...Setting) Config {
	replicas, insync := 1, 1
	if n > 2 {
		replicas, insync = 3, 2
	}
	c := Config{JVM: []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m"}, quick: true}
	c.set("process.roles", "broker,controller")
	c.set("controller.listener.names", "CONTROLLER")
	c.set("offsets.topic.replication.factor", replicas)
	c.set("default.replication.factor", replicas)
	c.set("min.insync.replicas", insync)
	c.set("transaction.state.log.replication.factor", replicas)
	c.set("transaction.state.log.min.isr", insync)
	c.set("share.coordinator.state.topic.replication.factor", replicas)
	c.set("share.coordinator.state.topic.min.isr", insync)
	c.set("offsets.topic.num.partitions", 4)
	c.set("transaction.state.log.num.partitions", 4)
	c.set("share.coordinator.state.topic.num.partitions", 4)
	c.set("group.initial.rebalance.delay.ms", 0)
	c.set("group.share.min.record.lock.duration.ms", 1000)
	c.set("group.share.min.heartbeat.interval.ms", 500)
	c.set("group.share.heartbeat.interval.ms", 500)
	c.set("broker.session.timeout.ms", 3000)
	c.set("broker.heartbeat.interval.ms", 500)
	c.set("transaction.abort.timed.out.transaction.cleanup.interval.ms", 1000)
	c.set("log.cleaner.dedupe.buffer.size", 2<<20) // else the heap must be larger
	for _, s := range settings {
		s(&c)
	}
	return c
}

// ClusterID is any 16 bytes in Kafka's alphabet.
const ClusterID = "c2hhcmV0eG4tdGVzdHMtMQ"
