package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The group's limit of deliveries: as its own config (Kafka 4.3 and later), else
// as the brokers'.
const (
	groupLimit  = "share.delivery.count.limit"
	brokerLimit = "group.share.delivery.count.limit"
)

// lowestLimit is the least that Kafka allows. Where the limit cannot be read it
// is the safe guess: too low costs a dead letter, too high a record.
const lowestLimit = 2

// limitEvery is how often the limit is read again: a group's config may change.
const limitEvery = 30 * time.Second

// limit is the group's limit of deliveries, as it was last read.
type limit struct {
	group  string
	use    func(func(*kgo.Client) error) error // lends a client
	log    *slog.Logger
	n      atomic.Int32
	warned bool
}

func (l *limit) get() int32 { return max(lowestLimit, l.n.Load()) }

// watch reads again until ctx ends.
func (l *limit) watch(ctx context.Context) {
	tick := time.NewTicker(limitEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.read(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (l *limit) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var n int32
	err := l.use(func(cl *kgo.Client) (err error) {
		n, err = l.ask(ctx, cl)
		return err
	})
	switch {
	case err == nil:
		l.n.Store(n)
	case ctx.Err() == nil && !l.warned:
		l.warned = true
		l.log.Warn("sharetxn: the group's delivery limit cannot be read; records are rejected rather than released from the known one on",
			"group", l.group, "limit", l.get(), "err", err)
	}
}

func (l *limit) ask(ctx context.Context, cl *kgo.Client) (int32, error) {
	n, err := describe(ctx, cl, kmsg.ConfigResourceTypeGroupConfig, l.group, groupLimit)
	if err == nil {
		return n, nil
	}
	meta := kmsg.NewPtrMetadataRequest()
	meta.Topics = []kmsg.MetadataRequestTopic{}
	resp, err2 := meta.RequestWith(ctx, cl)
	if err2 != nil || len(resp.Brokers) == 0 {
		return 0, errors.Join(err, err2)
	}
	n, err2 = describe(ctx, cl, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(resp.Brokers[0].NodeID)), brokerLimit)
	if err2 != nil {
		return 0, errors.Join(err, err2)
	}
	return n, nil
}

func describe(ctx context.Context, cl *kgo.Client, kind kmsg.ConfigResourceType, name, config string) (int32, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, []string{config}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	for _, res := range resp.Resources {
		if err := kerr.ErrorForCode(res.ErrorCode); err != nil {
			return 0, err
		}
		for _, c := range res.Configs {
			if c.Name == config && c.Value != nil {
				n, err := strconv.ParseInt(*c.Value, 10, 32)
				return int32(n), err
			}
		}
	}
	return 0, fmt.Errorf("config %s of %s is not described", config, name)
}
