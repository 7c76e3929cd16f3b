package demo

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// embedded is a cluster in this process, whose brokers are asked what they know.
type embedded struct {
	*broker.Cluster
	called    names
	guarantee processor.Guarantee
}

var _ site = (*embedded)(nil)

// start starts an embedded cluster: one without staging looks like stock Kafka.
func start(g processor.Guarantee, profile sharetxn.Profile, logger *slog.Logger) (*embedded, error) {
	e := &embedded{called: newNames(""), guarantee: g}
	topics := make(map[string]int32)
	for _, t := range e.called.topics() {
		topics[t] = partitions
	}
	b, err := broker.Start(broker.Config{
		Brokers: brokers, Profile: spoken(profile), Stock44: g != processor.Staged, HeartbeatInterval: heartbeat, SessionTimeout: short.session, History: true, Logger: logger,
		Topics: topics,
		GroupConfigs: map[string]map[string]string{e.called.group: {
			"share.auto.offset.reset":       "earliest",
			"share.isolation.level":         "read_committed",
			"share.record.lock.duration.ms": fmt.Sprint(short.lock.Milliseconds()),
			"share.delivery.count.limit":    fmt.Sprint(deliveryLimit),
		}},
	})
	if err != nil {
		return nil, err
	}
	e.Cluster = b
	return e, nil
}

// spoken is a profile on the wire.
func spoken(p sharetxn.Profile) wire.Profile {
	if p == sharetxn.ProfileKIP93 {
		return wire.KIP93
	}
	return wire.Draft95
}

func (e *embedded) String() string {
	return "embedded cluster: brokers " + strings.Join(e.Seeds(), ",")
}
func (e *embedded) seeds() []string { return e.Seeds() }
func (e *embedded) names() names    { return e.called }

func (e *embedded) prepare(context.Context, *sharetxn.Cluster, *kgo.Client) (times, error) {
	return short, nil
}

func (e *embedded) remove() error { return nil } // it is gone with the cluster
func (e *embedded) close()        { e.Close() }

// state is how the group has a record; what is below its start is done.
func (e *embedded) state(partition int32, offset int64) (s share.State, owner string, deliveries int16) {
	s, owner, deliveries, ok := e.StateOf(e.called.group, e.called.Source, partition, offset)
	if !ok {
		s = share.Acknowledged
	}
	return s, owner, deliveries
}

func (e *embedded) handed(partition int32, offset int64) bool {
	s, _, _ := e.state(partition, offset)
	return s == share.Acquired
}

// all tells whether there are records and the group has them all in a state,
// held by their member.
func (e *embedded) all(r records, want share.State) bool {
	return len(r.places) > 0 && !r.any(func(partition int32, offset int64) bool {
		s, owner, _ := e.state(partition, offset)
		return s != want || owner != r.member
	})
}

// none is all of no record.
func (e *embedded) none(r records, bad share.State) bool {
	return !r.any(func(partition int32, offset int64) bool {
		s, owner, _ := e.state(partition, offset)
		return s == bad && owner == r.member
	})
}

func (e *embedded) held(c chance) bool {
	switch {
	case c.at != ending:
		return e.all(c.records, share.Acquired)
	case e.guarantee == processor.Staged:
		return e.open(c) && e.all(c.records, share.TxPending)
	}
	return e.open(c)
}

func (e *embedded) took(c chance, _ kmsg.Response) bool {
	switch {
	case c.at == ending:
		return !e.open(c)
	case e.guarantee == processor.Staged:
		return e.all(c.records, share.TxPending)
	}
	return e.none(c.records, share.Acquired)
}

func (e *embedded) fresh(r records) bool {
	return !r.any(func(partition int32, offset int64) bool {
		_, _, deliveries := e.state(partition, offset)
		return deliveries > deliveryLimit/2
	})
}

// open tells whether a transaction has not been ended.
func (e *embedded) open(c chance) bool {
	v := e.view(c.id)
	return v.Status == txn.Ongoing && v.Writer == c.key
}

// view is a transactional id as the coordinator has it.
func (e *embedded) view(id string) (v txn.View) {
	for _, v := range e.Transactions() {
		if v.ID == id {
			return v
		}
	}
	return v
}

func (e *embedded) fenced(_ context.Context, c chance) bool {
	v := e.view(c.id)
	return c.supplanted(v.ProducerID, v.ProducerEpoch)
}

func (e *embedded) lapse(ctx context.Context, r records) (bool, error) {
	if !await(ctx, short.patience(), func() bool { return e.none(r, share.Acquired) }) {
		return false, nil
	}
	n, err := happened(ctx, e, func(x share.Event) bool {
		return x.Kind == share.EventExpired && x.Group == e.called.group && x.Member == r.member && slices.ContainsFunc(r.places, func(p place) bool {
			return e.TopicName(x.Topic) == e.called.Source && x.Partition == p.partition && x.First <= p.last && p.first <= x.Last
		})
	})
	return n > 0, err
}

func (e *embedded) unmovable() string { return "" }

func (e *embedded) move(_ context.Context, p place, hops int32) error {
	return e.MoveLeader(e.called.Source, p.partition, (e.Leader(e.called.Source, p.partition)+hops)%brokers)
}

func (e *embedded) observe(reader, kmsg.Request) func(kmsg.Response) { return nil }

// happened counts the events of a kind that something is true of.
func happened[E any](ctx context.Context, e *embedded, is func(E) bool) (n int, err error) {
	facts, err := e.Facts(ctx, e.called.group)
	if err != nil {
		return 0, err
	}
	for _, x := range facts.Events {
		if x, ok := x.(E); ok && is(x) {
			n++
		}
	}
	return n, nil
}

func (e *embedded) aborts(ctx context.Context, _ int64) (int, error) {
	return happened(ctx, e, func(x txn.Event) bool { return x.Applied && !x.Commit })
}

// inside is what only the brokers know. Their history judges transactions that
// acknowledge; of others it has nothing to say.
func (e *embedded) inside(ctx context.Context) (in audit.Inside, err error) {
	for _, s := range e.PartitionStates(e.called.group) {
		in.Staged += s.Pending
	}
	if e.guarantee != processor.Staged {
		return in, nil
	}
	facts, err := e.Facts(ctx, e.called.group, e.called.Enriched, e.called.Alerts, e.called.Dead)
	if err != nil {
		return in, err
	}
	in.Conceded = make(map[audit.Source]string)
	for _, f := range history.Judge(facts).Findings {
		if !f.Conceded {
			in.Wrong = append(in.Wrong, f.String())
			continue
		}
		for offset := f.First; offset <= f.Last; offset++ {
			in.Conceded[audit.Source{Partition: f.Partition, Offset: offset}] = f.Window
		}
	}
	return in, nil
}
