package processor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"

	"github.com/sharetxn/sharetxn/groupconfig"
	"github.com/sharetxn/sharetxn/internal/brokerconfig"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
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

// read takes the limit from the group's configs, or from the brokers' where the
// group has none; err says why there are no configs. Only what a broker refuses is
// worth a warning, what is out of reach passes.
func (l *limit) read(ctx context.Context, cl *kgo.Client, configs groupconfig.Configs, err error) error {
	n := configs.DeliveryCountLimit
	if n == 0 {
		n, err = l.ofBrokers(ctx, cl, err)
	}
	if err == nil {
		l.n.Store(int32(n))
		return nil
	}
	if _, refused := errors.AsType[*kerr.Error](err); refused && !l.warned {
		l.warned = true
		l.log.Warn("sharetxn: the group's delivery limit cannot be read; it is taken for the known or the lowest one, so dead letters may come early (grant DescribeConfigs on the group)",
			"group", l.group, "limit", l.get(), "err", err)
	}
	return err
}

// ofBrokers is the brokers' limit; before says why the group's is not known.
func (l *limit) ofBrokers(ctx context.Context, cl *kgo.Client, before error) (int, error) {
	configs, err := brokerconfig.Read(ctx, cl, brokerconfig.DeliveryLimit)
	if err != nil {
		return 0, errors.Join(before, err)
	}
	n, err := strconv.ParseInt(configs[brokerconfig.DeliveryLimit], 10, 32)
	if err != nil {
		return 0, errors.Join(before, fmt.Errorf("config %s of the brokers: %w", brokerconfig.DeliveryLimit, err))
	}
	return int(n), nil
}
