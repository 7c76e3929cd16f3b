package share

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
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
	configAssignment  = "share.assignment.interval.ms"
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
	interval      time.Duration // between two assignments
}

func (c Config) groupDefaults() groupConfig {
	return groupConfig{
		set:   map[string]string{},
		reset: cmp.Or(c.OffsetReset, "latest"), lock: 30 * time.Second, limit: 5, locks: 2000, renew: true,
		session: c.SessionTimeout, heartbeat: c.HeartbeatInterval, interval: c.AssignmentInterval,
	}
}

// groupConfig gives the defaults with the values of set in their place; what Kafka would
// answer INVALID_CONFIG to is an error. The lower bounds of times are Kafka's,
// or the broker's own default where that was made shorter.
func (c Config) groupConfig(set map[string]string) (groupConfig, error) {
	out := c.groupDefaults()
	out.set = set
	for name, value := range set {
		if err := out.apply(c, name, value); err != nil {
			return groupConfig{}, err
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
		if n, err = number(c.MinSessionTimeout.Milliseconds(), 60000); err == nil {
			g.session = time.Duration(n) * time.Millisecond
		}
	case configHeartbeat:
		if n, err = number(min(5000, c.HeartbeatInterval.Milliseconds()), 15000); err == nil {
			g.heartbeat = time.Duration(n) * time.Millisecond
		}
	case configAssignment:
		if n, err = number(0, 15000); err == nil {
			g.interval = time.Duration(n) * time.Millisecond
		}
	default:
		return fmt.Errorf("unknown group config %q", name)
	}
	return err
}

// ConfigEntry is one config of a group, as DescribeConfigs tells it.
type ConfigEntry struct {
	Name, Value string
	Type        kmsg.ConfigType
	Default     string // what holds where the group has none of its own
	DefaultName string // the broker's config that gives the default, or Name
	Set         bool   // Value is the group's own
}

// entries are all configs, sorted by name.
func (c Config) entries(g groupConfig) []ConfigEntry {
	values, defaults := g.values(), c.groupDefaults().values()
	var out []ConfigEntry
	for _, name := range slices.Sorted(maps.Keys(values)) {
		_, set := g.set[name]
		x := ConfigEntry{Name: name, Value: values[name], Type: kmsg.ConfigTypeInt, Default: defaults[name], DefaultName: "group." + name, Set: set}
		switch name { // these are of groups only
		case configReset, configIsolation:
			x.Type, x.DefaultName = kmsg.ConfigTypeString, name
		case configRenew:
			x.Type, x.DefaultName = kmsg.ConfigTypeBoolean, name
		}
		out = append(out, x)
	}
	return out
}

// values gives every config's effective value.
func (g groupConfig) values() map[string]string {
	isolation := isolationUncommit
	if g.readCommitted {
		isolation = isolationCommit
	}
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	return map[string]string{
		configReset: g.reset, configIsolation: isolation, configLock: millis(g.lock),
		configLimit: strconv.Itoa(int(g.limit)), configLocks: strconv.FormatInt(g.locks, 10),
		configRenew: strconv.FormatBool(g.renew), configSession: millis(g.session), configHeartbeat: millis(g.heartbeat),
		configAssignment: millis(g.interval),
	}
}

// isoDuration is the part of ISO 8601 that Java's Duration reads and Kafka
// takes: PnDTnHnMnS, where only seconds have decimals.
var isoDuration = regexp.MustCompile(`^P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9})(\.\d{1,9})?S)?)?$`)

func parseISODuration(s string) (time.Duration, error) {
	m := isoDuration.FindStringSubmatch(s)
	if m == nil || strings.HasSuffix(s, "T") || s == "P" {
		return 0, fmt.Errorf("%q is no ISO-8601 duration", s)
	}
	total := 0.0
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second} {
		n, _ := strconv.ParseFloat(cmp.Or(m[i+1], "0"), 64) // the pattern holds digits only
		total += n * float64(unit)
	}
	decimals, _ := strconv.ParseFloat(cmp.Or(m[5], "0"), 64)
	if total += decimals * float64(time.Second); total > math.MaxInt64/2 {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return time.Duration(total), nil
}
