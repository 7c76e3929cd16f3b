package brokerconfig

import (
	"strconv"
	"time"
)

// Settings that hold where a group has no config of its own (before Kafka 4.3),
// and how often brokers look for transactions whose time is up.
const (
	DeliveryLimit = "group.share.delivery.count.limit"
	RecordLock    = "group.share.record.lock.duration.ms"
	TimeoutScan   = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
)

// Millis reads a setting in milliseconds; it is 0 for what is no number, as of a
// setting that brokers do not have.
func Millis(text string) time.Duration {
	n, _ := strconv.ParseInt(text, 10, 64)
	return time.Duration(n) * time.Millisecond
}
