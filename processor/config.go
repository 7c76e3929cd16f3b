package processor

import (
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/kopts"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/producer"
	"github.com/sharetxn/sharetxn/shareconsumer"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Config of a Processor. A zero field is its default.
type Config struct {
	Group  string   // required
	Topics []string // required

	// Handler or BatchHandler, exactly one.
	Handler      Handler
	BatchHandler BatchHandler

	// TransactionalID is the prefix; ids are
	// <TransactionalID>-<Instance>-m<member> and the same with -alt1 behind it, which
	// are used in turn. Default: Group.
	TransactionalID string
	// Instance tells the replicas of a service apart: of two processes with the
	// same TransactionalID and Instance the newer fences the older, whose Run
	// ends with ErrFenced. Stable across restarts is better (a StatefulSet's pod
	// name), since a restarted process then takes over at once what it left;
	// unique is needed. With a random one what a crashed process left open is
	// undone only after TransactionTimeout. Default: the host name.
	Instance string

	// Guarantee is the promise, the same for all processes of a group. Default
	// Staged.
	Guarantee Guarantee
	// Fallback is tried in order where the brokers do not prove Guarantee, which
	// only Staged needs; which is in force is logged and in Status. A group that is
	// bound to one of them, by the record in its ledger topic, keeps that one.
	// Default none.
	Fallback []Guarantee

	DeadLetter DeadLetter

	// InputIsolation says what to do about a group that reads uncommitted. Default
	// WarnReadUncommitted.
	InputIsolation InputIsolation

	Members     int // group members, each with transactions of its own, in parallel; 1 to 1000, default 1
	Concurrency int // handler calls in parallel per member (Handler only); 1 to 10000, default 1
	MaxRecords  int // records a transaction, and of one poll; 1 to 100000, default 500
	// MaxBytes bounds, per member, what is held of inputs and their outputs before
	// the next poll or transaction, in bytes of keys, values and headers; one
	// poll or one record may exceed it. Default 64 MiB. Records are bounded to
	// three times MaxRecords: some are committed, others are handled, and one poll
	// may bring as many again. Beside them wait those that the ledger cannot tell
	// of yet; partitions of which many do are paused. And where transactions commit
	// quickly, fetches bring what they commit in a tenth of a second.
	MaxBytes int
	// MaxWait is how long to wait to fill a transaction. Default 0: what one poll
	// brings, or what came while the transaction before was under way.
	MaxWait time.Duration
	// HandlerTimeout bounds one call of the handler. Its ctx ends then, and a
	// second later the call counts as failed though it has not returned. Default
	// 30 s. A member with more than 100 calls that never returned stops the
	// Processor.
	HandlerTimeout time.Duration
	// TransactionTimeout is the broker's (transaction.timeout.ms). Default: the
	// group's lock when Run begins, less the brokers' scan for transactions whose
	// time is up (10 s) and LockMargin, but at least 5 s or twice LockMargin, and at
	// most 15 s, as for a lock that cannot be read (txnmanager.TimeoutUnder). A value
	// that is set stays; it should keep below the lock in the same way.
	TransactionTimeout time.Duration
	// LockMargin is how long before the earliest acquisition lock ends a commit
	// is refused; default 2 s, below TransactionTimeout and the group's lock.
	LockMargin  time.Duration
	StopTimeout time.Duration // from soft to hard stop; default 20s
	Failure     Failure
	Kafka       []kgo.Opt // producer only: compression, linger, ...
}

// DeadLetter says where rejected records go.
type DeadLetter struct {
	Topic string // required unless Discard
	// Discard rejects without a copy.
	Discard bool
	// Build makes the record; default: key, value, headers of the input plus
	// sharetxn.{topic,partition,offset,delivery,reason}. A nil return, a panic or
	// a ledger's topic makes the default one; an empty Topic is filled in.
	Build func(in *Record, reason error) *kgo.Record
}

// Failure says what becomes of a record whose handler failed, or whose outputs
// the brokers refuse. The last delivery that a group allows is not for handling,
// where it allows three or more: a record that nobody decided before goes to the
// dead letter then, since its handler may be what ends the process.
type Failure struct {
	// Attempts within one delivery, the record alone in its transaction after
	// the first; 1 to 1000, default 3.
	Attempts int
	// Backoff is the pause after the attempt-th failure (from 1), at most 10
	// minutes. Default 100 ms doubling to 5 s, jittered by a quarter; that is also
	// the least where a dead letter was refused, and what counts if Backoff panics.
	Backoff func(attempt int) time.Duration
	// GiveUp rejects to the dead letter once Attempts fail; false releases the
	// record after one more Backoff, and rejects it on the last delivery that is
	// for handling. Default false.
	GiveUp bool
}

func backoff(attempt int) time.Duration {
	d := min(5*time.Second, 100*time.Millisecond<<min(attempt-1, 10))
	return d*3/4 + rand.N(d/2)
}

// withDefaults fills what is zero; it does no I/O but asking for the host name.
func (c Config) withDefaults() (Config, error) {
	or := func(n *int, def int) {
		if *n == 0 {
			*n = def
		}
	}
	wait := func(d *time.Duration, def time.Duration) {
		if *d == 0 {
			*d = def
		}
	}
	c.Topics, c.Kafka, c.Fallback = slices.Clone(c.Topics), slices.Clone(c.Kafka), slices.Clone(c.Fallback)
	if c.TransactionalID == "" {
		c.TransactionalID = c.Group
	}
	if c.Instance == "" {
		host, err := os.Hostname()
		if err != nil {
			return c, usage("New", "Instance: not set, and the host has no name: %w", err)
		}
		c.Instance = host
	}
	or(&c.Members, 1)
	or(&c.Concurrency, 1)
	or(&c.MaxRecords, 500)
	or(&c.MaxBytes, 64<<20)
	or(&c.Failure.Attempts, 3)
	wait(&c.HandlerTimeout, 30*time.Second)
	wait(&c.LockMargin, txnmanager.DefaultLockMargin)
	wait(&c.StopTimeout, 20*time.Second)
	if c.Failure.Backoff == nil {
		c.Failure.Backoff = backoff
	}
	return c, nil
}

func (c Config) check() error {
	within := func(field string, n, low, high int) error {
		if n < low || n > high {
			return usage("New", "%s: %d, want %d to %d", field, n, low, high)
		}
		return nil
	}
	positive := func(field string, d time.Duration) error {
		if d <= 0 {
			return usage("New", "%s: %v, want more than 0", field, d)
		}
		return nil
	}
	switch {
	case c.Group == "":
		return usage("New", "Group: empty")
	case len(c.Topics) == 0:
		return usage("New", "Topics: none")
	case (c.Handler == nil) == (c.BatchHandler == nil):
		return usage("New", "Handler, BatchHandler: exactly one is needed")
	case c.BatchHandler != nil && c.Concurrency != 1:
		return usage("New", "Concurrency: %d, and a BatchHandler is called once at a time; use Members", c.Concurrency)
	case c.DeadLetter.Discard == (c.DeadLetter.Topic != ""):
		return usage("New", "DeadLetter: either Topic or Discard is needed: a record that cannot be handled must go somewhere")
	case c.DeadLetter.Discard && c.DeadLetter.Build != nil:
		return usage("New", "DeadLetter.Build: set together with Discard")
	case slices.Contains(c.Topics, c.DeadLetter.Topic):
		return usage("New", "DeadLetter.Topic: %q is one of Topics, so dead letters would be handled again for ever", c.DeadLetter.Topic)
	case slices.ContainsFunc(c.Topics, topic.Reserved):
		return usage("New", "Topics: %q has a ledger topic, which holds no records to work on", c.Topics)
	case topic.Reserved(c.DeadLetter.Topic):
		return usage("New", "DeadLetter.Topic: %q is a ledger topic, and nothing else may be written there", c.DeadLetter.Topic)
	case c.MaxWait < 0:
		return usage("New", "MaxWait: %v is negative", c.MaxWait)
	}
	for _, err := range []error{
		c.Guarantee.known("Guarantee"),
		c.InputIsolation.check(),
		within("Members", c.Members, 1, 1000),
		within("Concurrency", c.Concurrency, 1, 10000),
		within("MaxRecords", c.MaxRecords, 1, 100000),
		within("MaxBytes", c.MaxBytes, 1, math.MaxInt32),
		within("Failure.Attempts", c.Failure.Attempts, 1, 1000),
		positive("HandlerTimeout", c.HandlerTimeout),
		positive("StopTimeout", c.StopTimeout),
	} {
		if err != nil {
			return err
		}
	}
	if err := c.checkKafka(); err != nil {
		return err
	}
	if slices.Contains(c.candidates(), Ledger) {
		if err := topic.CheckGroup("New", c.Group); err != nil {
			return err
		}
	}
	for _, g := range c.Fallback {
		if err := g.known("Fallback"); err != nil {
			return err
		}
	}
	return nil
}

// checkKafka refuses options that Config has fields for; the producer refuses
// others.
func (c Config) checkKafka() error {
	fields := map[string]string{"TransactionalID": "TransactionalID and Instance", "TransactionTimeout": "TransactionTimeout"}
	set, err := kopts.Set(c.Kafka, slices.Sorted(maps.Keys(fields)))
	if err != nil {
		return usage("New", "Kafka: %w", err)
	}
	for _, name := range set {
		return usage("New", "Kafka: kgo.%s: use Config.%s", name, fields[name])
	}
	return nil
}

// deadTopic is the dead letter's topic, if there is one.
func (c Config) deadTopic() []string {
	if c.DeadLetter.Discard {
		return nil
	}
	return []string{c.DeadLetter.Topic}
}

// transactionalID of a member. The m keeps it apart from the ids of a replica
// whose Instance ends in a number.
func (c Config) transactionalID(member int) string {
	return c.TransactionalID + "-" + c.Instance + "-m" + strconv.Itoa(member)
}

// maxWait is how long a fetch may be parked at a broker.
const maxWait = 500 * time.Millisecond

// alternateIDs hide the broker's wait between two transactions of one id.
const alternateIDs = 2

func (c Config) newProducer(cl *sharetxn.Cluster, member int, g Guarantee, timeout time.Duration) (*producer.Producer, error) {
	opts := []producer.Opt{
		producer.AlternateIDs(alternateIDs), producer.TransactionTimeout(timeout),
		producer.LockMargin(c.LockMargin), producer.KafkaOptions(c.Kafka...),
	}
	if g != Staged {
		opts = append(opts, producer.AckAfterCommit())
	}
	if g == Ledger {
		opts = append(opts, producer.ManualPartition(topic.Name(c.Group)))
	}
	return producer.New(cl, c.transactionalID(member), opts...)
}

func (c Config) newConsumer(cl *sharetxn.Cluster) (*shareconsumer.Consumer, error) {
	return shareconsumer.New(cl, c.Group, shareconsumer.Topics(c.Topics...),
		shareconsumer.AcknowledgementMode(shareconsumer.Transactional),
		shareconsumer.MaxPollRecords(c.MaxRecords), shareconsumer.MaxWait(maxWait), shareconsumer.MaxBytes(min(c.MaxBytes, 16<<20)))
}
