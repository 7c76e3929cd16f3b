package shareconsumer

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/acks"
)

// Mode is how verdicts leave (share.acknowledgement.mode).
type Mode uint8

const (
	// Explicit, the default: every record needs a verdict, then Batch.CommitSync
	// or CommitAsync. Java's default is implicit.
	Explicit Mode = iota
	// Transactional: Accept and Reject leave only through a transaction;
	// releases and renewals stay plain.
	Transactional
	// Implicit: the next Poll accepts what has no verdict.
	Implicit
)

func (m Mode) String() string {
	switch m {
	case Explicit:
		return "explicit"
	case Transactional:
		return "transactional"
	case Implicit:
		return "implicit"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Opt is an option of New.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	topics          []string
	mode            Mode
	maxPollRecords  int
	maxBytes        int
	maxWait         time.Duration
	lockMargin      time.Duration // 0: a fifth of the lock, at most maxMargin
	closeTimeout    time.Duration
	rack            string
	maxPollInterval time.Duration // 0: none
	acquire         Acquire
	onAcknowledged  func(AckResult)
	onAssigned      func(map[string][]int32)
	bad             []error // options that cannot be read
}

func defaults() config {
	return config{maxPollRecords: 500, maxBytes: 16 << 20, maxWait: 500 * time.Millisecond, closeTimeout: 5 * time.Second}
}

// maxMargin bounds the default lock margin.
const maxMargin = 5 * time.Second

// Topics are the topics to consume from. Required. One that does not exist is
// waited for, with a warning in the cluster's log: a Poll that waits for ever may
// have a wrong name here.
func Topics(topics ...string) Opt {
	return optFunc(func(c *config) { c.topics = append(c.topics, topics...) })
}

// AcknowledgementMode is how verdicts leave. Default Explicit.
func AcknowledgementMode(m Mode) Opt { return optFunc(func(c *config) { c.mode = m }) }

// AcquireMode is how brokers count the records that a fetch asks for. Default
// BatchOptimized. With RecordLimit a fetch never brings more than it asked for,
// and what is fetched and not polled is MaxPollRecords at most, over all brokers
// together: what Poll gives is all that this member acquires. For that,
// brokers share the number, and where there are more of them than records to ask
// for they take turns (Java always asks one at a time); they also send what they
// read of a batch again with each fetch of a part of it. So it is for few or slow
// records. It needs Kafka 4.2 or later on every broker; where one is older, Poll
// fails, with class fatal and ErrUnsupported.
func AcquireMode(a Acquire) Opt { return optFunc(func(c *config) { c.acquire = a }) }

// MaxPollRecords bounds the records of one batch, 1 or more. Default 500. A
// fetch asks for as many, and grows with a consumer that polls quickly, up to
// 1,000 records for each partition that the broker leads, 4,000 in all; such a
// consumer finds the next records fetched already. One that is slow is asked for
// less, as much as it handles in a quarter of the acquisition lock, so that other
// members get the rest. A Transactional consumer asks for MaxPollRecords, and
// where its transactions commit quickly for what they commit in a tenth of a
// second, but only while a Poll waits, and not after records that were delivered
// before. Brokers may hand out a few more, since whole producer batches are
// acquired. Of what waits, a range that fits into a batch is given whole, so a batch
// may have fewer records though more wait. What waits keeps its locks, by renewals,
// until nobody has polled for five minutes.
func MaxPollRecords(n int) Opt { return optFunc(func(c *config) { c.maxPollRecords = n }) }

// MaxBytes bounds, in bytes of the log, what is fetched and not yet polled, over
// all brokers and with what fetches under way ask for. Default 16 MiB. A broker
// may always answer with one batch of its log, so that a larger one still comes
// through, and there may be one more for each broker.
func MaxBytes(n int) Opt { return optFunc(func(c *config) { c.maxBytes = n }) }

// MaxWait is how long a broker may hold a fetch that finds nothing. Default
// 500 ms. It is much shorter, 5 to 40 ms, while the consumer has records of the
// broker that are not settled, since an acknowledgement would have to wait for
// the parked fetch (not so in Transactional mode, whose verdicts go another way).
// A tenth of the group's lock is never exceeded, since deadlines are counted from
// when the fetch was sent, nor a quarter of CloseTimeout, where that leaves 5 ms.
func MaxWait(d time.Duration) Opt { return optFunc(func(c *config) { c.maxWait = d }) }

// LockMargin is how much of its acquisition lock a record must have left to be
// handed out by Poll; with less it is released. Default a fifth of the lock,
// at most 5 s. More than half of the lock counts as half: a record released
// again and again would be archived.
func LockMargin(d time.Duration) Opt { return optFunc(func(c *config) { c.lockMargin = d }) }

// CloseTimeout bounds Close. Default 5 s.
func CloseTimeout(d time.Duration) Opt { return optFunc(func(c *config) { c.closeTimeout = d }) }

// ClientRack is told to the group coordinator. Default none.
func ClientRack(rack string) Opt { return optFunc(func(c *config) { c.rack = rack }) }

// MaxPollInterval takes the member out of its group when nobody has polled for
// so long: it closes its sessions and leaves, so that others get what it held at
// once, and the next Poll joins again with the same member id. What it held is
// lost: using it answers ErrStale and names the records. Default 0: never; a
// member then stays until Close, as one should that works through a batch for
// long (Java's default is 5 minutes).
//
// A Poll that waits counts as polling. So does a batch that a transaction holds,
// whatever takes the transaction so long, since leaving would fail it; the time
// runs from its end. A batch counts that KeepLocked keeps. Nothing else does:
// not a CommitSync, not the work on a batch that no transaction holds yet.
func MaxPollInterval(d time.Duration) Opt {
	return optFunc(func(c *config) { c.maxPollInterval = d })
}

// OnAcknowledged is called with the result of each partition of every plain
// acknowledgement: of CommitSync and CommitAsync, of releases, and of what
// Implicit mode accepted. What a transaction stages, renewals, and offsets
// without a record are not told, nor what was lost before it could be sent: that
// is CommitAsync's own error. An error is an *Error, or several joined, as
// CommitSync gives them. It is called from each broker's goroutine, must be
// quick and must not call the consumer.
func OnAcknowledged(fn func(AckResult)) Opt {
	return optFunc(func(c *config) { c.onAcknowledged = fn })
}

// OnAssigned is called with the whole assignment whenever it changes. It must
// be quick and must not call the consumer.
func OnAssigned(fn func(map[string][]int32)) Opt {
	return optFunc(func(c *config) { c.onAssigned = fn })
}

// AckResult is how the acknowledgements of one partition went.
type AckResult struct {
	Partition acks.TopicIDPartition
	Batches   []acks.AcknowledgementBatch
	Err       error // nil: the broker took them all
}

func (c *config) check() error {
	if len(c.bad) > 0 {
		return errors.Join(c.bad...)
	}
	topics, err := topicSet("New", c.topics)
	if err != nil {
		return err
	}
	c.topics = topics
	switch {
	case c.mode > Implicit:
		return usage("New", "AcknowledgementMode: %v", c.mode)
	case c.acquire > RecordLimit:
		return usage("New", "AcquireMode: %v", c.acquire)
	case c.maxPollRecords < 1 || c.maxPollRecords > math.MaxInt32:
		return usage("New", "MaxPollRecords: %d, want 1 to %d", c.maxPollRecords, math.MaxInt32)
	case c.maxBytes < 1 || c.maxBytes > math.MaxInt32:
		return usage("New", "MaxBytes: %d, want 1 to %d", c.maxBytes, math.MaxInt32)
	case c.maxWait < time.Millisecond || c.maxWait > 5*time.Minute:
		return usage("New", "MaxWait: %v, want 1 ms to 5 min", c.maxWait)
	case c.lockMargin < 0:
		return usage("New", "LockMargin: %v is negative", c.lockMargin)
	case c.closeTimeout <= 0:
		return usage("New", "CloseTimeout: %v, want more than 0", c.closeTimeout)
	case c.rack != "" && strings.TrimSpace(c.rack) == "":
		return usage("New", "ClientRack: blank")
	case c.maxPollInterval < 0:
		return usage("New", "MaxPollInterval: %v is negative", c.maxPollInterval)
	}
	return nil
}

func usage(op, format string, args ...any) error {
	return &sharetxn.Error{Op: op, Class: sharetxn.ClassUsage, Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...)}
}
