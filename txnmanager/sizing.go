package txnmanager

import "time"

// leastSized is the least that TimeoutUnder gives unasked: a transaction of
// hundreds of records and tens of megabytes takes seconds where brokers are busy,
// and one that is never given the time is never committed.
const leastSized = 5 * time.Second

// TimeoutUnder is the transaction timeout for records that are acquired under a
// lock of this length: with scan, how often brokers look for transactions whose
// time is up (transaction.abort.timed.out.transaction.cleanup.interval.ms), and
// margin, the LockMargin, it ends within the lock, so that what a process left
// open is undone when its records come to another. It is never above
// DefaultTransactionTimeout, which is also for a lock that is not known (0), and
// never below 5 s or twice the margin, whatever the lock: a commit that comes too
// late for a short lock is refused by the margin, so a timeout above it costs that
// others wait a little longer. Pure; safe for concurrent use.
func TimeoutUnder(lock, scan, margin time.Duration) time.Duration {
	if lock <= 0 {
		return DefaultTransactionTimeout
	}
	return min(DefaultTransactionTimeout, max(lock-scan-margin, leastSized, 2*margin))
}
