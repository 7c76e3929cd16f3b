package groupconfig

import (
	"strconv"
	"time"
)

// Keys that this package knows. Brokers tell which ones they have.
const (
	keyAutoOffsetReset    = "share.auto.offset.reset"
	keyIsolationLevel     = "share.isolation.level"
	keyLockDuration       = "share.record.lock.duration.ms"
	keyDeliveryCountLimit = "share.delivery.count.limit"
	keyMaxRecordLocks     = "share.partition.max.record.locks"
	keyRenewAcknowledge   = "share.renew.acknowledge.enable"
	keySessionTimeout     = "share.session.timeout.ms"
	keyHeartbeatInterval  = "share.heartbeat.interval.ms"
	keyAssignmentInterval = "share.assignment.interval.ms"
)

// Setting is one config for Set: a key and its value, or a key to put back to the
// brokers' default.
type Setting struct {
	key, value string
	unset      bool
}

// Key is the config's name.
func (s Setting) Key() string { return s.key }

// String is key=value, or key alone for one that is put back.
func (s Setting) String() string {
	if s.unset {
		return s.key
	}
	return s.key + "=" + s.value
}

// Value sets any key to a text, as it goes to the brokers.
func Value(key, value string) Setting { return Setting{key: key, value: value} }

// Unset puts a key back to the brokers' default.
func Unset(key string) Setting { return Setting{key: key, unset: true} }

// Isolation is what a group may see of transactions.
type Isolation string

const (
	// ReadUncommitted delivers records of aborted and of open transactions too.
	// It is the default of Kafka.
	ReadUncommitted Isolation = "read_uncommitted"
	// ReadCommitted delivers what was committed, or written outside of
	// transactions.
	ReadCommitted Isolation = "read_committed"
)

// IsolationLevel sets share.isolation.level.
func IsolationLevel(i Isolation) Setting { return Value(keyIsolationLevel, string(i)) }

// AutoOffsetReset sets share.auto.offset.reset, where the group begins in a
// partition that it has no state of: "latest", which is Kafka's default,
// "earliest", or "by_duration:" with an ISO-8601 duration such as PT1H. What the
// group has begun stays where it is.
func AutoOffsetReset(to string) Setting { return Value(keyAutoOffsetReset, to) }

// LockDuration sets share.record.lock.duration.ms, how long a record is its
// member's before it is delivered again unless renewed, cut to whole milliseconds.
// Kafka's default is 30 s, its bounds 15 s and 60 s unless brokers are configured
// otherwise.
func LockDuration(d time.Duration) Setting { return millis(keyLockDuration, d) }

// DeliveryCountLimit sets share.delivery.count.limit, the deliveries after which
// a record is archived: 2 to 10, default 5. As a group's config from Kafka 4.3.
func DeliveryCountLimit(n int) Setting { return Value(keyDeliveryCountLimit, strconv.Itoa(n)) }

// MaxRecordLocks sets share.partition.max.record.locks, the records of a
// partition that may be under way: 100 to 4000, default 2000. As a group's config
// from Kafka 4.3.
func MaxRecordLocks(n int) Setting { return Value(keyMaxRecordLocks, strconv.Itoa(n)) }

// RenewAcknowledge sets share.renew.acknowledge.enable, whether members may renew
// locks (KIP-1222); default true. From Kafka 4.3.
func RenewAcknowledge(on bool) Setting { return Value(keyRenewAcknowledge, strconv.FormatBool(on)) }

// SessionTimeout sets share.session.timeout.ms, after which a silent member is
// removed: 45 s, the default, to 60 s, cut to whole milliseconds.
func SessionTimeout(d time.Duration) Setting { return millis(keySessionTimeout, d) }

// HeartbeatInterval sets share.heartbeat.interval.ms: 5 s, the default, to 15 s, cut to
// whole milliseconds.
func HeartbeatInterval(d time.Duration) Setting { return millis(keyHeartbeatInterval, d) }

// AssignmentInterval sets share.assignment.interval.ms, the least time between two
// assignments: 0 to 15 s, Kafka's default 1 s, cut to whole milliseconds. From
// Kafka 4.3. The embedded broker's default is 0, so that tests do not wait for
// their first assignment.
func AssignmentInterval(d time.Duration) Setting { return millis(keyAssignmentInterval, d) }

// millis cuts off what is less than a millisecond.
func millis(key string, d time.Duration) Setting {
	return Value(key, strconv.FormatInt(d.Milliseconds(), 10))
}
