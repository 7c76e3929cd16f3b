package shareconsumer

import (
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

// Properties sets options by their Java names: share.acknowledgement.mode
// (explicit or implicit), max.poll.records, fetch.max.bytes, fetch.max.wait.ms,
// client.rack. New refuses any other name, so that a setting that would have no
// effect is not overlooked.
func Properties(p map[string]string) Opt {
	return optFunc(func(c *config) {
		for name, value := range p {
			set, ok := properties[name]
			switch {
			case !ok:
				c.bad = append(c.bad, usage("New", "Properties: %q is not known here", name))
			case !set(c, value):
				c.bad = append(c.bad, usage("New", "Properties: %s: %q cannot be read", name, value))
			}
		}
	})
}
