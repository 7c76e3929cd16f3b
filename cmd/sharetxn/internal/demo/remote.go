package demo

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/ledger"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// remote is a cluster that was there before. What a run makes there has a prefix
// of its own, and is removed in the end.
type remote struct {
	addresses []string
	called    names
	guarantee processor.Guarantee
	keep      bool
	tell      func(string)
	seen      seen

	// from prepare on
	cl    *sharetxn.Cluster
	k     *kgo.Client
	adm   *kadm.Client
	times times
	limit int // of deliveries
	nodes []int32
}

var _ site = (*remote)(nil)

func newRemote(cfg Config, tell func(string)) *remote {
	prefix := "demo-" + strings.ToLower(rand.Text()[:8]) + "-"
	return &remote{addresses: cfg.Bootstrap, called: newNames(prefix), guarantee: cfg.Guarantee, keep: cfg.Keep, tell: tell}
}

func (r *remote) String() string {
	return fmt.Sprintf("cluster at %s: topics %s, group %s", strings.Join(r.addresses, ","), strings.Join(r.topics(), ", "), r.called.group)
}
func (r *remote) seeds() []string { return r.addresses }
func (r *remote) names() names    { return r.called }

// Times that a remote cluster is asked for: more than the embedded one's, since it
// has networks and disks. It may refuse the group's.
var wished = times{lock: 2 * time.Second, session: 6 * time.Second, txn: 5 * time.Second, margin: 300 * time.Millisecond}

// stockLimit is the delivery limit of brokers that do not let a group have its
// own.
const stockLimit = 5

func (r *remote) prepare(ctx context.Context, cl *sharetxn.Cluster, k *kgo.Client) (times, error) {
	r.cl, r.k, r.adm = cl, k, kadm.NewClient(k)
	nodes, err := r.adm.ListBrokers(ctx)
	if err != nil {
		return times{}, fmt.Errorf("brokers: %w", err)
	}
	r.nodes = nodes.NodeIDs()
	slices.Sort(r.nodes)
	made, err := r.adm.CreateTopics(ctx, partitions, -1, nil, r.called.topics()...)
	if err = errors.Join(err, made.Error()); err != nil {
		return times{}, fmt.Errorf("creating topics: %w", err)
	}
	if err := r.awaitTopics(ctx); err != nil {
		return times{}, err
	}
	if err := r.configure(ctx, cl); err != nil {
		return times{}, fmt.Errorf("configs of group %s: %w", r.called.group, err)
	}
	return r.times, nil
}

// awaitTopics waits until all topics have leaders.
func (r *remote) awaitTopics(ctx context.Context) error {
	var last error
	there := await(ctx, wished.patience(), func() bool {
		topics, err := r.adm.ListTopics(ctx, r.called.topics()...)
		if last = errors.Join(err, topics.Error()); last != nil {
			return false
		}
		for _, t := range topics {
			if len(t.Partitions) != partitions {
				return false
			}
			for _, p := range t.Partitions {
				if p.Leader < 0 || p.Err != nil {
					return false
				}
			}
		}
		return true
	})
	if !there {
		return fmt.Errorf("the topics created have no leaders: %w", errors.Join(last, context.Cause(ctx)))
	}
	return nil
}

// configure sets what the group must have, and asks for many deliveries and short
// times, as far as the brokers let it have them.
func (r *remote) configure(ctx context.Context, cl *sharetxn.Cluster) error {
	group := r.called.group
	if err := groupconfig.Set(ctx, cl, group, groupconfig.AutoOffsetReset("earliest"), groupconfig.IsolationLevel(groupconfig.ReadCommitted)); err != nil {
		return err
	}
	has, err := r.wish(ctx, cl, groupconfig.DeliveryCountLimit(deliveryLimit))
	if err != nil {
		return err
	}
	r.limit = cmp.Or(has.DeliveryCountLimit, stockLimit)
	has, err = r.wish(ctx, cl, groupconfig.LockDuration(lockFor(r.limit)), groupconfig.HeartbeatInterval(wished.session/12), groupconfig.SessionTimeout(wished.session))
	if err != nil {
		return err
	}
	r.times = wished
	r.times.lock, r.times.session = has.LockDuration, has.SessionTimeout
	return nil
}

// wish sets what the brokers let the group have, and gives what it has.
func (r *remote) wish(ctx context.Context, cl *sharetxn.Cluster, settings ...groupconfig.Setting) (groupconfig.Configs, error) {
	for _, s := range settings {
		err := groupconfig.Set(ctx, cl, r.called.group, s)
		if err != nil && !errors.Is(err, groupconfig.ErrInvalidValue) && !errors.Is(err, groupconfig.ErrUnknownKey) {
			return groupconfig.Configs{}, err
		}
	}
	return groupconfig.Describe(ctx, cl, r.called.group)
}

// stockScan is how often stock Kafka looks for transactions whose time is up.
const stockScan = 10 * time.Second

// lockFor gives a lock so long that what a transaction leaves open ends before the
// deliveries of its records do, which the ledger asks for.
func lockFor(limit int) time.Duration {
	least := (wished.txn + stockScan) / time.Duration(limit-1)
	return max(wished.lock, least.Truncate(time.Second)+time.Second)
}

func (r *remote) close() {}

// removeLimit bounds the removal.
const removeLimit = 60 * time.Second

// remove takes no heed of members that are still counted: all have ended, and
// those killed could not say so.
func (r *remote) remove() error {
	what := fmt.Sprintf("topics %s and group %s", strings.Join(r.topics(), ", "), r.called.group)
	if r.keep {
		r.tell("kept: " + what)
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), removeLimit)
	defer cancel()
	if err := errors.Join(r.removeGroup(ctx), r.removeTopics(ctx)); err != nil {
		return fmt.Errorf("not all of this was removed: %s: %w", what, err)
	}
	r.tell("removed: " + what)
	return nil
}

// topics are all that the run makes.
func (r *remote) topics() []string {
	if r.guarantee == processor.Ledger {
		return append(r.called.topics(), ledger.TopicName(r.called.group))
	}
	return r.called.topics()
}

func (r *remote) removeTopics(ctx context.Context) error {
	gone, err := r.adm.DeleteTopics(ctx, r.topics()...)
	if err != nil {
		return fmt.Errorf("deleting topics: %w", err)
	}
	var errs []error
	for _, t := range gone.Sorted() {
		if t.Err != nil && !errors.Is(t.Err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, fmt.Errorf("deleting topic %s: %w", t.Topic, t.Err))
		}
	}
	return errors.Join(errs...)
}

// removeGroup has the members leave that could not, and deletes the group and its
// configs.
func (r *remote) removeGroup(ctx context.Context) error {
	group := r.called.group
	var last error
	deleted := await(ctx, removeLimit, func() bool {
		if last = r.evict(ctx); last != nil {
			return false
		}
		done, err := r.adm.DeleteGroups(ctx, group)
		last = errors.Join(err, done[group].Err)
		return last == nil || errors.Is(last, kerr.GroupIDNotFound)
	})
	if !deleted {
		return fmt.Errorf("deleting group %s: %w", group, errors.Join(last, context.Cause(ctx)))
	}
	has, err := groupconfig.Describe(ctx, r.cl, group)
	if err != nil {
		return err
	}
	var own []groupconfig.Setting
	for _, e := range has.Entries {
		if e.Source == groupconfig.SourceGroup {
			own = append(own, groupconfig.Unset(e.Key))
		}
	}
	if len(own) == 0 {
		return nil
	}
	return groupconfig.Set(ctx, r.cl, group, own...)
}

// leaveEpoch is a member's that leaves.
const leaveEpoch = -1

// evict says for each member that is left that it leaves.
func (r *remote) evict(ctx context.Context) error {
	groups, err := r.adm.DescribeShareGroups(ctx, r.called.group)
	if err != nil {
		return err
	}
	for _, m := range groups[r.called.group].Members {
		req := kmsg.NewPtrShareGroupHeartbeatRequest()
		req.GroupID, req.MemberID, req.MemberEpoch = r.called.group, m.MemberID, leaveEpoch
		if _, err := req.RequestWith(ctx, r.k); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) handed(partition int32, offset int64) bool {
	return time.Now().Before(r.seen.of(partition, offset).until)
}

func (r *remote) held(c chance) bool {
	if c.at == ending {
		return !r.seen.over(c.key) && (r.guarantee != processor.Staged || len(c.records.places) > 0)
	}
	now := time.Now()
	return len(c.records.places) > 0 && !c.records.any(func(partition int32, offset int64) bool {
		h := r.seen.of(partition, offset)
		return h.member != c.records.member || now.After(h.until)
	})
}

func (r *remote) took(_ chance, answer kmsg.Response) bool { return !refused(answer) }

func (r *remote) fresh(rs records) bool {
	return !rs.any(func(partition int32, offset int64) bool {
		return r.seen.of(partition, offset).deliveries > int16(r.limit/2)
	})
}

// late is how late a broker may find that a lock has run out.
const late = time.Second

// lapse: nothing that the member says reaches the brokers, so that its locks run
// out by time.
func (r *remote) lapse(ctx context.Context, _ records) (bool, error) {
	return lapse.For(ctx, r.times.lock+late), nil
}

func (r *remote) fenced(ctx context.Context, c chance) bool {
	txns, err := r.adm.DescribeTransactions(ctx, c.id)
	if err != nil {
		return false
	}
	t, err := txns.On(c.id, nil)
	return err == nil && t.Err == nil && c.supplanted(t.ProducerID, t.ProducerEpoch)
}

func (r *remote) unmovable() string {
	if len(r.nodes) < 2 {
		return "the cluster has one broker"
	}
	return ""
}

// move takes a partition from its leader, so that another one leads, and where
// there were several replicas gives it back as a follower.
func (r *remote) move(ctx context.Context, p place, hops int32) error {
	topics, err := r.adm.ListTopics(ctx, r.called.Source)
	if err = errors.Join(err, topics.Error()); err != nil {
		return fmt.Errorf("moving a leader: %w", err)
	}
	now := topics[r.called.Source].Partitions[p.partition]
	without, with := reassigned(now.Leader, now.Replicas, r.nodes, hops)
	if err := r.assign(ctx, p.partition, without); err != nil {
		return err
	}
	moved := await(ctx, r.times.patience(), func() bool {
		topics, err := r.adm.ListTopics(ctx, r.called.Source)
		return err == nil && topics[r.called.Source].Partitions[p.partition].Leader == without[0]
	})
	if !moved {
		return fmt.Errorf("moving a leader: partition %d of %s was taken from broker %d, and %d does not lead it", p.partition, r.called.Source, now.Leader, without[0])
	}
	if len(with) == len(without) {
		return nil
	}
	return r.assign(ctx, p.partition, with)
}

// reassigned gives the replicas of a partition without its leader, the next leader
// first, and all that it is to have in the end.
func reassigned(leader int32, replicas, nodes []int32, hops int32) (without, with []int32) {
	from := replicas
	if len(replicas) < 2 {
		from = nodes
	}
	at := max(0, slices.Index(from, leader))
	ring := slices.Concat(from[at:], from[:at])[1:] // the others in their order
	n := (int(hops) - 1) % len(ring)
	ring = slices.Concat(ring[n:], ring[:n])
	if len(replicas) < 2 {
		return ring[:1], ring[:1]
	}
	return ring, append(slices.Clone(ring), leader)
}

func (r *remote) assign(ctx context.Context, partition int32, replicas []int32) error {
	var req kadm.AlterPartitionAssignmentsReq
	req.Assign(r.called.Source, partition, replicas)
	resp, err := r.adm.AlterPartitionAssignments(ctx, req)
	if err = errors.Join(err, resp.Error()); err != nil {
		return fmt.Errorf("moving a leader (it needs Alter on the cluster; --faults=off does without): %w", err)
	}
	return nil
}

func (r *remote) observe(by reader, m kmsg.Request) func(kmsg.Response) { return r.seen.observe(by, m) }

func (r *remote) aborts(_ context.Context, reported int64) (int, error) { return int(reported), nil }

// inside: no request tells more than the audit asks by itself.
func (r *remote) inside(context.Context) (audit.Inside, error) { return audit.Inside{}, nil }
