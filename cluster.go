package sharetxn

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/twmb/franz-go/pkg/kgo"
)

func init() {
	core.Of = func(cl any) *core.Cluster { return cl.(*Cluster).core }
}

// Cluster is one Kafka cluster as one process sees it: the kgo options that
// every client of ours is made with, logger, hooks, and what the brokers were
// proven to speak (proved once per broker and Cluster, never per producer).
// Safe for concurrent use. Close it after everything made from it.
type Cluster struct {
	_    [0]func() // not comparable by value, so that nobody copies it
	core *core.Cluster

	mu sync.Mutex
	id string
}

// Connect checks the options. It opens no connection: a wrong address shows at
// the first call with a context (Ping, InitTransactions, Poll). Errors are of
// class usage and name the option.
func Connect(opts ...Opt) (*Cluster, error) {
	cfg := config{logger: defaultLogger()}
	for _, o := range opts {
		o.apply(&cfg)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	c := &Cluster{core: core.New(core.Config{Kafka: cfg.kafka, Logger: cfg.logger, Hooks: cfg.hooks, Profile: cfg.profile.wire})}
	return c, nil
}

// Ping asks any broker for metadata. An error wraps what kgo saw.
func (c *Cluster) Ping(ctx context.Context) error {
	if err := c.core.Use(func(meta *kgo.Client) error { return meta.Ping(ctx) }); err != nil {
		return connError("Ping", err)
	}
	return nil
}

// ID is the cluster id that the first Capabilities call was told; empty before.
func (c *Cluster) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// Client makes a kgo client with this cluster's options and extra, for the
// user's own needs (admin, plain produce). The caller closes it.
func (c *Cluster) Client(extra ...kgo.Opt) (*kgo.Client, error) {
	cl, err := c.core.NewClient(extra...)
	if err != nil {
		return nil, connError("Client", err)
	}
	return cl, nil
}

// Close is idempotent. It waits for nothing but its own metadata client.
func (c *Cluster) Close() { c.core.Close() }

func connError(op string, err error) error {
	if errors.Is(err, core.ErrClosed) {
		return &Error{Op: op, Class: ClassFatal, Err: ErrClosed}
	}
	return &Error{Op: op, Class: ClassAbortable, Err: err}
}

func defaultLogger() *slog.Logger {
	return slog.New(atLeast{slog.LevelWarn, slog.Default().Handler()})
}

// atLeast holds a handler to a level, since slog.Default() may be set to less.
type atLeast struct {
	min slog.Level
	slog.Handler
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.min && h.Handler.Enabled(ctx, l)
}

func (h atLeast) WithAttrs(as []slog.Attr) slog.Handler {
	return atLeast{h.min, h.Handler.WithAttrs(as)}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.min, h.Handler.WithGroup(name)}
}

func usage(op, format string, args ...any) error {
	return &Error{Op: op, Class: ClassUsage, Err: fmt.Errorf("%w: "+format, append([]any{ErrUsage}, args...)...)}
}
