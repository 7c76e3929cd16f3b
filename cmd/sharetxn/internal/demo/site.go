package demo

import (
	"context"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// site is the cluster of a run: the embedded one, which is the run's own, or one
// that was there before.
type site interface {
	String() string // for progress
	seeds() []string
	names() names
	// prepare makes what the run needs: topics and the group's configs. It gives the
	// times that hold there.
	prepare(ctx context.Context, cl *sharetxn.Cluster, k *kgo.Client) (times, error)
	// remove removes all of it, when the members have ended.
	remove() error
	close()
	sight
}

// sight is what a run sees of its cluster beside what clients are told. The
// embedded brokers are asked; of others there is what goes over the wire.
type sight interface {
	// handed tells whether the group has handed a record out to anybody.
	handed(partition int32, offset int64) bool
	// held tells whether the chance is there: the records are as they are when its
	// request comes.
	held(c chance) bool
	// took tells whether the brokers did what the request of a chance wants, when its
	// answer has come.
	took(c chance, answer kmsg.Response) bool
	// fresh tells whether none was delivered so often that faults could use up its
	// deliveries.
	fresh(r records) bool
	// lapse waits, while their member is stopped, until the locks of records have run
	// out; false if they were lost otherwise.
	lapse(ctx context.Context, r records) (bool, error)
	// fenced tells whether another producer has the transactional id of a chance.
	fenced(ctx context.Context, c chance) bool
	// unmovable says why no leader can move; empty if they can.
	unmovable() string
	// move moves the leader of a source partition some brokers on.
	move(ctx context.Context, p place, hops int32) error
	// observe is shown the processes' requests and may ask for the answer, which is
	// nil if none comes.
	observe(by reader, m kmsg.Request) (then func(kmsg.Response))
	// aborts is how many transactions were aborted; reported is what members say, for
	// where brokers do not.
	aborts(ctx context.Context, reported int64) (int, error)
	inside(ctx context.Context) (audit.Inside, error)
}

// names of what a run makes.
type names struct {
	prefix string // of all of them, transactional ids too; of nothing else there
	group  string
	audit.Topics
}

// newNames puts the run's prefix before each name.
func newNames(prefix string) names {
	return names{
		prefix: prefix,
		group:  prefix + "enrichers",
		Topics: audit.Topics{Source: prefix + "quakes", Enriched: prefix + "quakes.enriched", Alerts: prefix + "quakes.alerts", Dead: prefix + "quakes.dead"},
	}
}

// topics of a run; its ledger is one more.
func (n names) topics() []string { return []string{n.Source, n.Enriched, n.Alerts, n.Dead} }

const (
	partitions = 3
	brokers    = 3 // of the embedded cluster
	heartbeat  = 250 * time.Millisecond

	// deliveryLimit is the highest that Kafka allows: the faults cost deliveries.
	deliveryLimit = 10
)

// times of a run.
type times struct {
	lock, session time.Duration // of the group
	txn, margin   time.Duration // transaction timeout, lock margin
}

// short are the times of the embedded cluster; defaults are 30 s, 45 s, 15 s and
// 2 s. A paused member must lose its locks before its membership, so that its
// session is longer.
var short = times{lock: 2 * time.Second, session: 3 * time.Second, txn: time.Second, margin: 300 * time.Millisecond}

// patience bounds what a strike waits for: more than any lock or session.
func (t times) patience() time.Duration { return 15*time.Second + t.lock + t.session }

// stall is the time without progress before a fault shows instead of hanging.
func (t times) stall() time.Duration { return 27*time.Second + t.session }
