package share

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of group configs (resource type GROUP).
const (
	configReset       = "share.auto.offset.reset"
	configIsolation   = "share.isolation.level"
	configLock        = "share.record.lock.duration.ms"
	configLimit       = "share.delivery.count.limit"
	configLocks       = "share.partition.max.record.locks"
	configRenew       = "share.renew.acknowledge.enable"
	configSession     = "share.session.timeout.ms"
	configHeartbeat   = "share.heartbeat.interval.ms"
	resetByDuration   = "by_duration:"
	isolationCommit   = "read_committed"
	isolationUncommit = "read_uncommitted"
)

// groupConfig is the effective configuration of one group.
type groupConfig struct {
	set map[string]string // what was set explicitly

	reset         string
	readCommitted bool
	lock          time.Duration
	limit         int16
	locks         int64
	renew         bool
	session       time.Duration
	heartbeat     time.Duration
}

func (c Config) groupDefaults() groupConfig {
	return groupConfig{
		set:   map[string]string{},
		reset: "latest", lock: 30 * time.Second, limit: 5, locks: 2000, renew: true,
		session: c.SessionTimeout, heartbeat: c.HeartbeatInterval,
	}
}

// with gives the configuration with one value set, or back at its default
// where value is nil. The error says why Kafka would answer INVALID_CONFIG.
func (g groupConfig) with(c Config, set map[string]string) (groupConfig, error) {
	out := c.groupDefaults()
	out.set = set
	for name, value := range set {
		if err := out.apply(c, name, value); err != nil {
			return g, err
		}
	}
	return out, nil
}

func (g *groupConfig) apply(c Config, name, value string) error {
	number := func(low, high int64) (int64, error) {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < low || n > high {
			return 0, fmt.Errorf("%s: %q is not between %d and %d", name, value, low, high)
		}
		return n, nil
	}
	var n int64
	var err error
	switch name {
	case configReset:
		if d, ok := strings.CutPrefix(value, resetByDuration); ok {
			if _, err := parseISODuration(d); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		} else if value != "latest" && value != "earliest" {
			return fmt.Errorf("%s: %q is not latest, earliest or %sISO-8601", name, value, resetByDuration)
		}
		g.reset = value
	case configIsolation:
		if value != isolationCommit && value != isolationUncommit {
			return fmt.Errorf("%s: %q is not %s or %s", name, value, isolationUncommit, isolationCommit)
		}
		g.readCommitted = value == isolationCommit
	case configLock:
		if n, err = number(c.MinLockDuration.Milliseconds(), 60000); err == nil {
			g.lock = time.Duration(n) * time.Millisecond
		}
	case configLimit:
		if n, err = number(2, 10); err == nil {
			g.limit = int16(n)
		}
	case configLocks:
		if n, err = number(100, 4000); err == nil {
			g.locks = n
		}
	case configRenew:
		if value != "true" && value != "false" {
			return fmt.Errorf("%s: %q is not true or false", name, value)
		}
		g.renew = value == "true"
	case configSession:
		if n, err = number(1, 60000); err == nil {
			g.session = time.Duration(n) * time.Millisecond
		}
	case configHeartbeat:
		if n, err = number(1, 15000); err == nil {
			g.heartbeat = time.Duration(n) * time.Millisecond
		}
	default:
		return fmt.Errorf("unknown group config %q", name)
	}
	return err
}

// all gives every config with its effective value, for DescribeConfigs.
func (g groupConfig) all() map[string]string {
	isolation := isolationUncommit
	if g.readCommitted {
		isolation = isolationCommit
	}
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		configReset: g.reset, configIsolation: isolation, configLock: millis(g.lock),
		configLimit: strconv.Itoa(int(g.limit)), configLocks: strconv.FormatInt(g.locks, 10),
		configRenew: strconv.FormatBool(g.renew), configSession: millis(g.session), configHeartbeat: millis(g.heartbeat),
	}
}

// parseISODuration reads the part of ISO 8601 that Java's Duration reads and
// Kafka takes: PnDTnHnMnS, whole numbers.
func parseISODuration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no ISO-8601 duration", s)
	rest, ok := strings.CutPrefix(s, "P")
	if !ok {
		return 0, bad
	}
	units := []struct {
		mark byte
		unit time.Duration
	}{{'D', 24 * time.Hour}, {'H', time.Hour}, {'M', time.Minute}, {'S', time.Second}}
	var total time.Duration
	next, seen, clock := 0, false, false
	for rest != "" {
		if rest[0] == 'T' && !clock {
			clock, rest = true, rest[1:]
			next = max(next, 1)
			continue
		}
		digits := strings.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
		if digits <= 0 {
			return 0, bad
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 32)
		i := slices.IndexFunc(units, func(u struct {
			mark byte
			unit time.Duration
		}) bool {
			return u.mark == rest[digits]
		})
		if err != nil || i < next || (i > 0) != clock {
			return 0, bad
		}
		total += time.Duration(n) * units[i].unit
		next, seen, rest = i+1, true, rest[digits+1:]
	}
	if !seen {
		return 0, bad
	}
	return total, nil
}
