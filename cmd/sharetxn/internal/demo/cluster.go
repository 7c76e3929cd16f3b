package demo

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/audit"
	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/history"
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
			in.Conceded[audit.Source{Partition: f.Partition, Offset: offset}] = window(f.What)
		}
	}
	return in, nil
}

// window is what a conceded finding says of the window.
func window(what string) string {
	if _, says, ok := strings.Cut(what, "(conceded: "); ok {
		return strings.TrimSuffix(says, ")")
	}
	return what
}

// aborted counts the transactions that the coordinator has aborted.
func aborted(ctx context.Context, b *broker.Cluster) (n int, err error) {
	facts, err := b.Facts(ctx, group)
	if err != nil {
		return 0, err
	}
	for _, e := range facts.Events {
		if e, ok := e.(txn.Event); ok && e.Applied && !e.Commit {
			n++
		}
	}
	return n, nil
}
