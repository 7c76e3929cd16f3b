package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

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

// limit is the group's limit of deliveries, as it was last read.
type limit struct {
	group  string
	log    *slog.Logger
	n      atomic.Int32
	warned bool
}

// get is in how many deliveries a record is handled: of those that the group
// allows, the last is kept for the dead letter of a record that was never
// decided, since its handler may be what ends the process, and after that the
// broker would archive it. A group that allows but two has none to spare.
func (l *limit) get() int32 {
	n := max(lowestLimit, l.n.Load())
	if n > lowestLimit {
		n--
	}
	return n
}

// spent tells whether a record is not to be handled any more.
func (l *limit) spent(deliveries int32) bool { return l.n.Load() > 0 && deliveries > l.get() }

// read asks again; only what a broker refuses is worth a warning, what is out of
// reach passes.
func (l *limit) read(ctx context.Context, cl *kgo.Client) error {
	n, err := l.ask(ctx, cl)
	if err == nil {
		l.n.Store(n)
		return nil
	}
	if _, refused := errors.AsType[*kerr.Error](err); refused && !l.warned {
		l.warned = true
		l.log.Warn("sharetxn: the group's delivery limit cannot be read; it is taken for the known or the lowest one, so dead letters may come early (grant DescribeConfigs on the group)",
			"group", l.group, "limit", l.get(), "err", err)
	}
	return err
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
