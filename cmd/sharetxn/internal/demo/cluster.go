package demo

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/history"
	"github.com/sharetxn/sharetxn/internal/broker/share"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
)

func start(profile sharetxn.Profile, logger *slog.Logger) (*broker.Cluster, error) {
	spoken := wire.Draft95
	if profile == sharetxn.ProfileKIP93 {
		spoken = wire.KIP93
	}
	return broker.Start(broker.Config{
		Brokers: brokers, Profile: spoken, HeartbeatInterval: heartbeat, SessionTimeout: session, History: true, Logger: logger,
		Topics: map[string]int32{topics.Source: partitions, topics.Enriched: partitions, topics.Alerts: partitions, topics.Dead: partitions},
		GroupConfigs: map[string]map[string]string{group: {
			"share.auto.offset.reset":       "earliest",
			"share.isolation.level":         "read_committed",
			"share.record.lock.duration.ms": fmt.Sprint(lock.Milliseconds()),
			"share.delivery.count.limit":    fmt.Sprint(deliveryLimit),
		}},
	})
}

// inside is what only the brokers know. Their history judges transactions that
// acknowledge; of a pattern that does not it has nothing to say.
func inside(ctx context.Context, b *broker.Cluster, p pattern) (in audit.Inside, err error) {
	for _, s := range b.PartitionStates(group) {
		in.Staged += s.Pending
	}
	if p != staged {
		return in, nil
	}
	facts, err := b.Facts(ctx, group, topics.Enriched, topics.Alerts, topics.Dead)
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

// happened counts the events of a kind that something is true of.
func happened[E any](ctx context.Context, b *broker.Cluster, is func(E) bool) (n int, err error) {
	facts, err := b.Facts(ctx, group)
	if err != nil {
		return 0, err
	}
	for _, e := range facts.Events {
		if e, ok := e.(E); ok && is(e) {
			n++
		}
	}
	return n, nil
}

// aborted counts the transactions that the coordinator has aborted.
func aborted(ctx context.Context, b *broker.Cluster) (int, error) {
	return happened(ctx, b, func(e txn.Event) bool { return e.Applied && !e.Commit })
}

// expired tells whether locks of records ran out that their member held.
func expired(ctx context.Context, b *broker.Cluster, r records) (bool, error) {
	n, err := happened(ctx, b, func(e share.Event) bool {
		return e.Kind == share.EventExpired && e.Group == group && e.Member == r.member && slices.ContainsFunc(r.places, func(p place) bool {
			return b.TopicName(e.Topic) == p.topic && e.Partition == p.partition && e.First <= p.last && p.first <= e.Last
		})
	})
	return n > 0, err
}
