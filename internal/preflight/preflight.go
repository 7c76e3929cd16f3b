// Package preflight finds out why a coordinator is not available: whoever waits
// for one in vain asks it whether Kafka's internal topics can be there at all.
package preflight

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/brokerconfig"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Topic is an internal topic of Kafka and the setting that says how often it is
// replicated.
type Topic struct{ name, setting string }

var (
	Offsets      = Topic{"__consumer_offsets", "offsets.topic.replication.factor"}
	Transactions = Topic{"__transaction_state", "transaction.state.log.replication.factor"}
	ShareState   = Topic{"__share_group_state", "share.coordinator.state.topic.replication.factor"}
)

// seen is what brokers told.
type seen struct {
	brokers  int               // alive
	existing map[string]bool   // topics
	settings map[string]string // of brokers
}

// judge says whether all topics exist, and which of the others cannot. What is
// not told of a setting is no evidence. A topic that exists is not at fault,
// whatever the settings say of it now. min.isr is no matter: with fewer replicas
// than it wants a new topic still works (measured on 4.4.0).
func judge(s seen, topics []Topic) (settled bool, fault *sharetxn.InternalTopicsError) {
	settled = true
	for _, t := range topics {
		if s.existing[t.name] {
			continue
		}
		settled = false
		replicas, err := strconv.Atoi(s.settings[t.setting])
		if err != nil || replicas <= s.brokers {
			continue
		}
		if fault == nil {
			fault = &sharetxn.InternalTopicsError{Brokers: s.brokers}
		}
		fault.Topics = append(fault.Topics, sharetxn.InternalTopic{Topic: t.name, Setting: t.setting, Replicas: replicas})
	}
	return settled, fault
}

// look asks the brokers.
func look(ctx context.Context, cl *kgo.Client, topics []Topic) (s seen, err error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	settings := make([]string, len(topics))
	for i := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &topics[i].name
		req.Topics = append(req.Topics, t)
		settings[i] = topics[i].setting
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return s, err
	}
	s = seen{brokers: len(resp.Brokers), existing: make(map[string]bool)}
	for _, t := range resp.Topics {
		if t.Topic != nil && t.ErrorCode != kerr.UnknownTopicOrPartition.Code && t.ErrorCode != kerr.TopicAuthorizationFailed.Code {
			s.existing[*t.Topic] = true
		}
	}
	s.settings, err = brokerconfig.Read(ctx, cl, settings...)
	return s, err
}

const (
	// patience is how long a coordinator may be missing before anybody asks why:
	// brokers create internal topics within that.
	patience = 2 * time.Second
	// between two looks, growing
	maxPause = 30 * time.Second
)

// Watch returns what is wrong with the topics, once it is: it looks when patience
// is over, and now and then as long as some topic is missing. It returns nil when
// there is nothing to find any more: well tells so, all topics exist, the brokers
// refuse to tell, or ctx ended.
func Watch(ctx context.Context, c *core.Cluster, well func() bool, topics ...Topic) *sharetxn.InternalTopicsError {
	for pause := patience; lapse.For(ctx, pause) && !well(); pause = min(2*pause, maxPause) {
		var told seen
		err := c.Use(func(cl *kgo.Client) (err error) {
			told, err = look(ctx, cl, topics)
			return err
		})
		if _, refused := errors.AsType[*kerr.Error](err); refused {
			c.Logger().Warn("sharetxn: a coordinator is missing, and why cannot be asked; are the internal topics' replication factors above the number of brokers? (grant DescribeConfigs on the cluster to be told)", "err", err)
			return nil
		}
		if err != nil {
			c.Logger().Log(ctx, slog.LevelInfo, "sharetxn: a coordinator is missing, and no broker says why", "err", err)
			continue
		}
		if settled, fault := judge(told, topics); settled || fault != nil {
			return fault
		}
	}
	return nil
}

// Guard gives a context that ends with an *sharetxn.InternalTopicsError as its
// cause, if Watch finds one before stop is called. stop must be called.
func Guard(ctx context.Context, c *core.Cluster, topics ...Topic) (guarded context.Context, stop func()) {
	guarded, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if fault := Watch(guarded, c, func() bool { return false }, topics...); fault != nil {
			cancel(fault)
		}
	}()
	return guarded, func() { cancel(nil); <-done }
}
