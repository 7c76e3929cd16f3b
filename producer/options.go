package producer

import (
	"fmt"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/kopts"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Opt is an option of New.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	ids     int // in turn
	timeout time.Duration
	manager []txnmanager.Opt
	kafka   []kgo.Opt
	plain   bool     // nothing is staged
	manual  []string // topics whose records name their partition
}

func manager(o txnmanager.Opt) Opt {
	return optFunc(func(c *config) { c.manager = append(c.manager, o) })
}

// TransactionTimeout is how long the broker lets a transaction stay open before
// it aborts it. Default 15 s: with the broker's scan of 10 s it stays below the
// default acquisition lock of 30 s, so that a process that was paused cannot
// commit after its records went to another. At least 100 ms.
func TransactionTimeout(d time.Duration) Opt {
	return optFunc(func(c *config) {
		c.timeout = d
		c.manager = append(c.manager, txnmanager.TransactionTimeout(d))
	})
}

// StageTimeout bounds the staging of acknowledgements. Default 0: what their
// locks and the transaction timeout leave; it never extends that.
func StageTimeout(d time.Duration) Opt { return manager(txnmanager.StageTimeout(d)) }

// ResolveTimeout bounds EndTxn and the resolution of an outcome without an
// answer, and each initialisation. Default 30 s.
func ResolveTimeout(d time.Duration) Opt { return manager(txnmanager.ResolveTimeout(d)) }

// CloseTimeout bounds Close, and how long an abort waits for produce requests
// under way. Default 5 s.
func CloseTimeout(d time.Duration) Opt { return manager(txnmanager.CloseTimeout(d)) }

// LockMargin is how long before the earliest acquisition lock ends a commit is
// refused. Default 2 s; below the TransactionTimeout.
func LockMargin(d time.Duration) Opt { return manager(txnmanager.LockMargin(d)) }

// maxIDs is how many transactional ids a producer can have, now or in an earlier
// life.
const maxIDs = 16

// AlternateIDs uses n transactional ids in turn: the producer's own, then that
// with "-alt1", "-alt2" and so on. It hides the time a broker needs after each commit,
// about 20 ms, before the same id can begin anew; there is still one transaction
// at a time, and each id has connections of its own. Default 1, at most 16. The
// names up to "-alt15" belong to this producer whatever n is: InitTransactions
// takes those that exist, since an earlier life may have used more.
func AlternateIDs(n int) Opt { return optFunc(func(c *config) { c.ids = n }) }

// AckAfterCommit stages nothing: the verdicts of a transaction's batches are sent
// as plain acknowledgements once its commit is proven and has landed (Land), some
// ms after Commit has returned, which brokers without KIP-1289 can do, and none is
// sent while an outcome is unknown. Close the producer, or call Land, before the
// consumer. That is at
// least once: where the process, its connection or a lock ends between the commit
// and the acknowledgement, the records come again and their outputs are
// published a second time. An abort gives the batches back, as ever.
// SendShareAcknowledgementsToTransaction is refused.
func AckAfterCommit() Opt { return optFunc(func(c *config) { c.plain = true }) }

// ManualPartition has records of the topics go to the partition that they name
// (kgo.Record.Partition), whatever the partitioner of the others is.
func ManualPartition(topics ...string) Opt {
	return optFunc(func(c *config) { c.manual = append(c.manual, topics...) })
}

// KafkaOptions passes kgo options to the client that produces: compression,
// linger, partitioner, buffer sizes. They come after the cluster's own. Options
// that choose a role or belong to the cluster's connections are refused by New.
func KafkaOptions(opts ...kgo.Opt) Opt {
	return optFunc(func(c *config) { c.kafka = append(c.kafka, opts...) })
}

// roles are the kgo options that a transactional producer sets itself, or that
// have no place in one.
var roles = []struct{ option, instead string }{
	{"TransactionalID", "it is an argument of producer.New"},
	{"TransactionTimeout", "use producer.TransactionTimeout"},
	{"RequiredAcks", "a transaction needs acks from all replicas"},
	{"DisableIdempotentWrite", "a transaction needs idempotent writes"},
	{"MaxVersions", "the library negotiates versions with each broker"},
	{"MinVersions", "the library negotiates versions with each broker"},
	{"ConcurrentTransactionsBackoff", "it is set by the library"},
	{"SeedBrokers", "connections belong to the cluster: use sharetxn.Kafka"},
	{"WithLogger", "use sharetxn.Logger"},
	{"ConsumerGroup", "a producer does not consume"},
	{"ShareGroup", "use shareconsumer.New(cluster, group)"},
	{"ConsumeTopics", "a producer does not consume"},
	{"ConsumePartitions", "a producer does not consume"},
	{"ConsumeRegex", "a producer does not consume"},
	{"InstanceID", "a producer does not consume"},
	{"Rack", "a producer does not consume"},
}

func (c config) check() error {
	if c.ids < 1 || c.ids > maxIDs {
		return usage("New", "", "AlternateIDs: %d is not between 1 and %d", c.ids, maxIDs)
	}
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.option
	}
	set, err := kopts.Set(c.kafka, names)
	if err != nil {
		return usage("New", "", "KafkaOptions: %w", err)
	}
	for _, name := range set {
		for _, r := range roles {
			if r.option == name {
				return usage("New", "", "KafkaOptions: kgo.%s is not for a producer's transactions: %s", name, r.instead)
			}
		}
	}
	return nil
}

func usage(op, transactionalID, format string, args ...any) error {
	return &sharetxn.Error{
		Op: op, Class: sharetxn.ClassUsage, TransactionalID: transactionalID,
		Err: fmt.Errorf("%w: "+format, append([]any{sharetxn.ErrUsage}, args...)...),
	}
}
