package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/brokerconfig"
	"github.com/sharetxn/sharetxn/internal/brokers"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/rules"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// inquiry gathers facts; each of its steps asks for some of them.
type inquiry struct {
	cl       *sharetxn.Cluster
	op       string
	client   *kgo.Client
	facts    *rules.Facts
	settings map[string]string // of brokers
}

// gather asks the brokers.
func gather(ctx context.Context, cl *sharetxn.Cluster, op, group string, topics []string, cfg checkConfig) (f rules.Facts, err error) {
	err = use(cl, op, group, func(client *kgo.Client) error {
		f = rules.Facts{Group: group, ReadCommitted: cfg.readCommitted, Ledger: rules.Ledger{Topic: topic.Name(group)}}
		q := inquiry{cl: cl, op: op, client: client, facts: &f}
		for _, step := range []func(context.Context) error{
			func(ctx context.Context) error { return q.topics(ctx, topics) },
			q.brokers, q.brokerSettings, q.share, q.ledgerConfigs,
		} {
			if err := step(ctx); err != nil {
				return err
			}
		}
		f.TransactionTimeout = timeoutOf(cfg, f)
		if cfg.environment {
			return nil
		}
		return q.generation(ctx)
	})
	return f, err
}

func (q *inquiry) refused(setting, acl string, fatal bool) {
	q.facts.Refused = append(q.facts.Refused, rules.Refusal{Setting: setting, ACL: acl, Fatal: fatal})
}

// topics asks for the sources and the ledger.
func (q *inquiry) topics(ctx context.Context, names []string) error {
	f := q.facts
	infos, refused, err := topic.Describe(ctx, q.client, append(slices.Clone(names), f.Ledger.Topic)...)
	if err != nil {
		return err
	}
	if len(infos[0].Brokers) == 0 {
		return brokers.ErrNone
	}
	for i, name := range names {
		if refused[name] != nil {
			q.refused("topic "+name, "Describe and Read on topic "+name, true)
			continue
		}
		f.Sources = append(f.Sources, rules.Source{Topic: name, Partitions: infos[i].Partitions})
	}
	own := infos[len(names)]
	f.Ledger.Partitions, f.Ledger.Replicas = own.Partitions, own.Replicas
	if refused[f.Ledger.Topic] != nil {
		f.Ledger.Hidden = true
		q.refused("topic "+f.Ledger.Topic, "Describe, Read and Write on topic "+f.Ledger.Topic, true)
	}
	for _, id := range slices.Sorted(slices.Values(own.Brokers)) {
		f.Brokers = append(f.Brokers, rules.Broker{ID: id})
	}
	return nil
}

// brokers asks each what it offers.
func (q *inquiry) brokers(ctx context.Context) error {
	f := q.facts
	answers, errs := make([]*kmsg.ApiVersionsResponse, len(f.Brokers)), make([]error, len(f.Brokers))
	var wg sync.WaitGroup
	for i, b := range f.Brokers {
		wg.Go(func() { answers[i], errs[i] = probe.APIVersions(ctx, q.client, b.ID) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, a := range answers {
		f.Brokers[i].APIs = make(map[int16]int16)
		for _, k := range a.ApiKeys {
			f.Brokers[i].APIs[k.ApiKey] = k.MaxVersion
		}
		levels := map[string]int16{"transaction.version": -1, "share.version": -1}
		for _, x := range a.FinalizedFeatures {
			levels[x.Name] = x.MaxVersionLevel
		}
		if txn, share := levels["transaction.version"], levels["share.version"]; i == 0 {
			f.TransactionVersion, f.ShareVersion = txn, share
		} else {
			f.TransactionVersion, f.ShareVersion = min(f.TransactionVersion, txn), min(f.ShareVersion, share)
		}
	}
	return nil
}

// timeoutOf is the transaction timeout to judge.
func timeoutOf(cfg checkConfig, f rules.Facts) time.Duration {
	if cfg.timeout != nil {
		return *cfg.timeout
	}
	return txnmanager.TimeoutUnder(f.Share.Lock, cmp.Or(f.Settings.TimeoutScan, rules.StockScan), txnmanager.DefaultLockMargin)
}

func (q *inquiry) brokerSettings(ctx context.Context) error {
	f := q.facts
	names := rules.InternalSettings()
	got, err := brokerconfig.Read(ctx, q.client, append(names, brokerconfig.DeliveryLimit, brokerconfig.RecordLock, brokerconfig.TimeoutScan)...)
	switch {
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		q.refused("settings of the brokers", "DescribeConfigs on the cluster", false)
		return nil
	case err != nil:
		return fmt.Errorf("settings of the brokers: %w", err)
	}
	q.settings = got
	f.Settings.Replication = make(map[string]string)
	for _, name := range names {
		if value, told := got[name]; told {
			f.Settings.Replication[name] = value
		}
	}
	f.Settings.TimeoutScan = brokerconfig.Millis(got[brokerconfig.TimeoutScan])
	return nil
}

// share asks for the group's configs. Brokers that are too old for the ledger need
// not know of them.
func (q *inquiry) share(ctx context.Context) error {
	f := q.facts
	got, err := groupconfig.Describe(ctx, q.cl, f.Group)
	switch {
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		q.refused("configs of group "+f.Group, "DescribeConfigs on group "+f.Group, f.ReadCommitted)
		return nil
	case err != nil && slices.ContainsFunc(rules.Judge(*f), func(p rules.Problem) bool { return p.Rule == "broker-api" }):
		return nil // that is told already
	case err != nil:
		return err
	}
	_, renews := got.Entry(groupconfig.RenewAcknowledge(true).Key())
	limit, _ := strconv.Atoi(q.settings[brokerconfig.DeliveryLimit])
	f.Share = rules.Share{
		Known:         true,
		ReadCommitted: got.IsolationLevel == groupconfig.ReadCommitted,
		NoRenewal:     renews && !got.RenewAcknowledge,
		DeliveryLimit: cmp.Or(got.DeliveryCountLimit, limit),
		Lock:          cmp.Or(got.LockDuration, brokerconfig.Millis(q.settings[brokerconfig.RecordLock])),
	}
	return nil
}

func (q *inquiry) ledgerConfigs(ctx context.Context) error {
	f := q.facts
	if f.Ledger.Partitions == 0 {
		return nil
	}
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeTopic, f.Ledger.Topic
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, q.client)
	if err != nil {
		return err
	}
	told := make(map[string]string)
	for _, r := range resp.Resources {
		switch err := kerr.ErrorForCode(r.ErrorCode); {
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			q.refused("configs of topic "+f.Ledger.Topic, "DescribeConfigs on topic "+f.Ledger.Topic, true)
			return nil
		case err != nil:
			return fmt.Errorf("configs of topic %s: %w", f.Ledger.Topic, err)
		}
		for _, c := range r.Configs {
			if c.Value != nil {
				told[c.Name] = *c.Value
			}
		}
	}
	f.Ledger.Configs = told
	return nil
}

// generation reads the ledger's records.
func (q *inquiry) generation(ctx context.Context) error {
	l := &q.facts.Ledger
	if l.Partitions == 0 {
		return nil
	}
	states, err := topic.ReadStates(ctx, core.Of(q.cl), q.facts.Group, l.Partitions)
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		q.refused("records of topic "+l.Topic, "Read on topic "+l.Topic, true)
		return nil
	case errors.Is(err, entry.ErrVersion), errors.Is(err, entry.ErrCorrupt), errors.Is(err, topic.ErrMixed):
		l.Broken, l.Remedy = err.Error(), topic.Remedy(q.facts.Group, err)
		return nil
	case err != nil:
		return err
	}
	current, err := states.Current()
	l.Guarantee = current.Guarantee
	if err != nil {
		l.Broken, l.Remedy = err.Error(), topic.Remedy(q.facts.Group, err)
	}
	return nil
}
