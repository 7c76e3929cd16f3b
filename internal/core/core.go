// Package core is a sharetxn.Cluster seen from inside the module: one place
// for connections, what the brokers were proven to speak, and the consumers of
// the process. The root package wraps it; producer, shareconsumer and
// txnmanager get it with Of. It stands below root and knows none of its types.
package core

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sharetxn/sharetxn/internal/bind"
	"github.com/sharetxn/sharetxn/internal/kopts"
	"github.com/sharetxn/sharetxn/internal/probe"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
	"github.com/twmb/franz-go/plugin/kslog"
)

// Of gives the Cluster inside a *sharetxn.Cluster. Package sharetxn sets it;
// it is a variable because core cannot import root.
var Of func(cluster any) *Cluster

// ErrClosed is given by everything after Close; root exports it by its own name.
var ErrClosed = errors.New("cluster closed")

// Config is what a Cluster is made of.
type Config struct {
	Kafka  []kgo.Opt    // checked by the caller: no option that chooses a role
	Logger *slog.Logger // never nil
	Hooks  []any        // each implements a Hook* interface of root
	// Profile is what brokers are asked to prove; None: Draft95.
	Profile wire.Profile
}

// Cluster is safe for concurrent use.
type Cluster struct {
	cfg    Config
	prover *probe.Prover
	absent absent
	steps  atomic.Pointer[func(string)]

	mu     sync.Mutex
	meta   *metaClient
	closed bool
	owners map[ownerKey]bind.Owner
}

type ownerKey struct{ group, member string }

// New opens no connection.
func New(cfg Config) *Cluster {
	c := &Cluster{cfg: cfg, owners: make(map[ownerKey]bind.Owner), absent: absent{told: make(map[string]bool)}}
	c.prover = probe.New(cfg.Logger, cfg.Profile)
	return c
}

// Logger is never nil.
func (c *Cluster) Logger() *slog.Logger { return c.cfg.Logger }

// Hooks are the user's hooks in order.
func (c *Cluster) Hooks() []any { return c.cfg.Hooks }

// NewClient makes a kgo client with the cluster's options and extra, which win.
// Its connections tell the prover when a broker goes, so that a proof never
// outlives the process it was given by. The caller closes it.
func (c *Cluster) NewClient(extra ...kgo.Opt) (*kgo.Client, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return nil, ErrClosed
	}
	return kgo.NewClient(c.options(extra)...)
}

// CheckClient says whether NewClient would take the options, and makes nothing.
func (c *Cluster) CheckClient(extra ...kgo.Opt) error { return kgo.ValidateOpts(c.options(extra)...) }

// OptValues gives what a client made by NewClient with extra would have for an
// option, by its name in kgo; it makes nothing.
func (c *Cluster) OptValues(name string, extra ...kgo.Opt) ([]any, error) {
	return kopts.Values(c.options(extra), name)
}

func (c *Cluster) options(extra []kgo.Opt) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.WithLogger(kslog.New(c.cfg.Logger)),
		kgo.MaxVersions(maxVersions()),
	}
	opts = append(opts, c.cfg.Kafka...)
	opts = append(opts, kgo.WithHooks(c.prover))
	return append(opts, extra...)
}

// maxVersions is all that kgo knows plus the staging keys, which kgo would
// otherwise refuse to send (it pins keys to the newest released Kafka).
func maxVersions() *kversion.Versions {
	v := kversion.Stable()
	for _, p := range []wire.Profile{wire.Draft95, wire.KIP93} {
		v.SetMaxKeyVersion(p.Key(), 0)
	}
	return v
}

// Capabilities asks every broker what it offers and proves staging where all
// brokers advertise it. What was proven before and still stands is not asked
// again. An error means that the question could not be asked.
func (c *Cluster) Capabilities(ctx context.Context) (rep probe.Report, err error) {
	err = c.Use(func(meta *kgo.Client) (err error) {
		rep, err = c.prover.Report(ctx, meta)
		return err
	})
	return rep, err
}

// Prove makes sure, before a byte of staging goes to it, that the broker has
// proven the profile since it was last connected. Cheap when it has.
func (c *Cluster) Prove(ctx context.Context, node int32) (profile wire.Profile, err error) {
	err = c.Use(func(meta *kgo.Client) (err error) {
		profile, err = c.prover.Prove(ctx, meta, node)
		return err
	})
	return profile, err
}

// Proven tells whether Capabilities found staging proven by all brokers and no
// broker has denied it since. Brokers that joined later are asked by Prove.
func (c *Cluster) Proven() bool { return c.prover.Whole() }

// Deny takes back what the broker has proven: it was found not to speak the
// profile, or not any more. Capabilities then asks everyone again.
func (c *Cluster) Deny(node int32) { c.prover.Deny(node) }

// Register makes a consumer of this process known by its group and member id
// until the returned function is called.
func (c *Cluster) Register(group, member string, o bind.Owner) (unregister func()) {
	k := ownerKey{group, member}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.owners[k] = o
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.owners, k)
	}
}

// Owner finds the consumer of a member of this process.
func (c *Cluster) Owner(group, member string) (bind.Owner, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	o, ok := c.owners[ownerKey{group, member}]
	return o, ok
}

// OnStep has fn called at each named step of the work: polled, looked, handled,
// begun, produced, checked, frozen, staged, ended, settled, loaded, truncating. A test
// that kills or stops its process between two steps is what it is for; no
// service sets it. fn is called from the goroutine that makes the step, also
// concurrently, and holds it up.
func (c *Cluster) OnStep(fn func(step string)) { c.steps.Store(&fn) }

// Step says that the step was made.
func (c *Cluster) Step(step string) {
	if fn := c.steps.Load(); fn != nil {
		(*fn)(step)
	}
}

// Close is idempotent.
func (c *Cluster) Close() {
	c.mu.Lock()
	meta := c.meta
	c.meta, c.closed = nil, true
	c.mu.Unlock()
	if meta != nil {
		meta.client.Close()
	}
}
