package sharetxn

import (
	"log/slog"
	"slices"

	"github.com/sharetxn/sharetxn/internal/kopts"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Opt is an option of Connect.
type Opt interface{ apply(*config) }

type optFunc func(*config)

func (f optFunc) apply(c *config) { f(c) }

type config struct {
	kafka   []kgo.Opt
	logger  *slog.Logger
	hooks   []any
	profile Profile
}

// Kafka passes kgo options to every kgo client that is made for this cluster:
// SeedBrokers, SASL, DialTLSConfig, ClientID, WithHooks and whatever else
// concerns the connection. Options that choose a role (ConsumerGroup,
// ShareGroup, ConsumeTopics, TransactionalID, RequiredAcks, ...) are refused by
// Connect, which names what to use instead. It may be given several times.
func Kafka(opts ...kgo.Opt) Opt {
	return optFunc(func(c *config) { c.kafka = append(c.kafka, opts...) })
}

// Logger sets the logger of the library and, bridged, of its kgo clients.
// Default: slog.Default() from level warn on. No payload or secret is logged.
func Logger(l *slog.Logger) Opt {
	return optFunc(func(c *config) { c.logger = l })
}

// WithHooks adds hooks, called in order. Each must implement at least one Hook*
// interface of this package; Connect refuses one that implements none.
func WithHooks(hooks ...Hook) Opt {
	return optFunc(func(c *config) {
		for _, h := range hooks {
			c.hooks = append(c.hooks, h)
		}
	})
}

// roles are the kgo options that choose what a client does, or what versions it
// may speak; our packages set their own. Instead is what Connect's error names.
var roles = []struct{ option, instead string }{
	{"ConsumerGroup", "classic groups are kgo's own: make a client with Cluster.Client"},
	{"ShareGroup", "use shareconsumer.New(cluster, group)"},
	{"ConsumeTopics", "use shareconsumer.Topics"},
	{"ConsumePartitions", "use shareconsumer.Topics; for plain reading make a client with Cluster.Client"},
	{"ConsumeRegex", "use shareconsumer.Topics with names"},
	{"InstanceID", "share groups have no static members (KIP-932)"},
	{"Rack", "use shareconsumer.ClientRack"},
	{"TransactionalID", "use producer.New(cluster, transactionalID)"},
	{"TransactionTimeout", "use producer.TransactionTimeout"},
	{"RequiredAcks", "a transaction needs acks from all replicas"},
	{"DisableIdempotentWrite", "a transaction needs idempotent writes"},
	{"MaxVersions", "the library negotiates versions with each broker"},
	{"WithLogger", "use sharetxn.Logger"},
}

func (c *config) check() error {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.option
	}
	set, err := kopts.Set(c.kafka, names)
	if err != nil {
		return usage("Connect", "Kafka: %w", err)
	}
	for _, r := range roles {
		if slices.Contains(set, r.option) {
			return usage("Connect", "Kafka: kgo.%s is not for a cluster's connections: %s", r.option, r.instead)
		}
	}
	if c.logger == nil {
		return usage("Connect", "Logger: nil; leave the option out for the default")
	}
	for i, h := range c.hooks {
		if !implementsHook(h) {
			return usage("Connect", "WithHooks: hook %d (%T) implements no Hook interface of this package", i, h)
		}
	}
	return nil
}
