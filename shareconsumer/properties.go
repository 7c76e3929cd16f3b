package shareconsumer

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// properties are the Java names that Properties takes.
var properties = map[string]func(c *config, value string) bool{
	"share.acknowledgement.mode": func(c *config, v string) bool {
		switch v {
		case "explicit":
			c.mode = Explicit
		case "implicit":
			c.mode = Implicit
		default:
			return false
		}
		return true
	},
	"share.acquire.mode": func(c *config, v string) bool {
		for _, a := range []Acquire{BatchOptimized, RecordLimit} {
			if v == a.String() {
				c.acquire = a
				return true
			}
		}
		return false
	},
	"max.poll.records":     func(c *config, v string) bool { return number(v, &c.maxPollRecords) },
	"fetch.max.bytes":      func(c *config, v string) bool { return number(v, &c.maxBytes) },
	"fetch.max.wait.ms":    func(c *config, v string) bool { return millis(v, &c.maxWait) },
	"max.poll.interval.ms": func(c *config, v string) bool { return millis(v, &c.maxPollInterval) },
	"client.rack": func(c *config, v string) bool {
		c.rack = v
		return true
	},
}

func number(v string, to *int) bool {
	n, err := strconv.Atoi(v)
	*to = n
	return err == nil
}

func millis(v string, to *time.Duration) bool {
	n, err := strconv.ParseInt(v, 10, 32)
	*to = time.Duration(n) * time.Millisecond
	return err == nil
}

// elsewhere are Java names that have no meaning here, and what stands in their
// place.
var elsewhere = map[string]string{
	"group.id":                      "the group is New's argument",
	"bootstrap.servers":             "connections are the Cluster's: sharetxn.Kafka(kgo.SeedBrokers(...))",
	"client.id":                     "connections are the Cluster's: sharetxn.Kafka(kgo.ClientID(...))",
	"key.deserializer":              "records come as bytes",
	"value.deserializer":            "records come as bytes",
	"auto.offset.reset":             "it is the group's: share.auto.offset.reset, see package groupconfig",
	"isolation.level":               "it is the group's: share.isolation.level, see package groupconfig",
	"heartbeat.interval.ms":         "it is the group's: share.heartbeat.interval.ms, see package groupconfig",
	"session.timeout.ms":            "it is the group's: share.session.timeout.ms, see package groupconfig",
	"enable.auto.commit":            "share groups have no offsets to commit; AcknowledgementMode(Implicit) is nearest",
	"group.instance.id":             "share groups have no static members",
	"partition.assignment.strategy": "brokers assign",
	"group.remote.assignor":         "brokers assign",
	"group.protocol":                "share groups have one protocol",
	"fetch.min.bytes":               "a fetch is answered with the first record that is there",
	"max.partition.fetch.bytes":     "share fetches are bounded as a whole: fetch.max.bytes",
	"default.api.timeout.ms":        "each call takes a context",
	"check.crcs":                    "checksums are always checked",
	"interceptor.classes":           "see sharetxn.WithHooks",
	"metric.reporters":              "see sharetxn.WithHooks",
}

// Properties sets options by their Java names: share.acknowledgement.mode
// (explicit or implicit), share.acquire.mode (batch_optimized or record_limit),
// max.poll.records, max.poll.interval.ms (0 for never, and the default here; not
// Java's 5 minutes), fetch.max.bytes, fetch.max.wait.ms, client.rack. New refuses
// any other name, so that a setting that would have no effect is not overlooked.
// Of Java's other names it says what stands in their place: what is the group's
// (auto.offset.reset, isolation.level, heartbeat.interval.ms, session.timeout.ms)
// is set with package groupconfig, what is a connection's with sharetxn.Kafka, and
// what belongs to other kinds of group (enable.auto.commit, group.instance.id,
// assignors) has no counterpart.
func Properties(p map[string]string) Opt {
	return optFunc(func(c *config) {
		for _, name := range slices.Sorted(maps.Keys(p)) {
			set, ok := properties[name]
			instead, other := elsewhere[name]
			switch value := p[name]; {
			case other:
				c.bad = append(c.bad, usage("New", "Properties: %q has no meaning here: %s", name, instead))
			case !ok:
				c.bad = append(c.bad, usage("New", "Properties: %q is not known here", name))
			case !set(c, value):
				c.bad = append(c.bad, usage("New", "Properties: %s: %q cannot be read", name, value))
			}
		}
	})
}
