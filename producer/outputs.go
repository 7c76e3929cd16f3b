package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/txnmanager"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// outputs is the kgo client that produces, and its replacement when it cannot
// follow. It implements txnmanager.Outputs.
type outputs struct {
	core    *core.Cluster
	opts    []kgo.Opt
	manual  []string // topics whose records name their partition
	asks    *asks
	opened  int64         // asks.inits when the transaction was opened
	markers time.Duration // what a follower leaves the coordinator to write them

	mu     sync.Mutex
	client *kgo.Client
	used   bool // the client has, or may have, a producer id
	closed bool
	wg     sync.WaitGroup // clients being closed
}

var _ txnmanager.Outputs = (*outputs)(nil)

// asks is a kgo hook that counts what kgo clients ask the coordinator by themselves.
// One that asks for a producer epoch in the middle of a transaction has aborted
// it; one that asks for a transaction's end more than once was too early.
type asks struct{ inits, ends atomic.Int64 }

var _ kgo.HookBrokerWrite = (*asks)(nil)

// OnBrokerWrite implements kgo.HookBrokerWrite.
func (a *asks) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	switch key {
	case kmsg.InitProducerID.Int16():
		a.inits.Add(1)
	case kmsg.EndTxn.Int16():
		a.ends.Add(1)
	}
}

// followBackoff is how often a client that follows asks whether the markers are
// written. They take about a millisecond; kgo's own 20 ms would be most of a
// short transaction.
const followBackoff = time.Millisecond

// mostPatience is the longest that a client that follows waits before it asks: as long
// as kgo waits between two questions.
const mostPatience = 20 * time.Millisecond

// patience is how long to wait for the next markers before the first question, after
// one that took so many: each is a request for nothing, but who waits too long keeps
// the next transaction of the id waiting. It settles where one in seven is too early.
func patience(last time.Duration, questions int64) time.Duration {
	if questions > 1 {
		return min(last*3/2+followBackoff/4, mostPatience)
	}
	return last * 15 / 16
}

// topicRetries is how often a topic that metadata does not have is asked for again
// (kgo's default is 4), a metadataAge apart: the error that names it must come
// before the transaction's timeout, which names nothing.
const topicRetries = 1

var errNoMetadataAge = errors.New("kgo does not tell its MetadataMinAge")

// metadataAge is how old kgo lets its metadata become, at least, before it asks
// anew: as old as the cluster's options say (kgo's default is 5 s), unless a short
// transaction would be over before kgo has asked twice.
func metadataAge(co *core.Cluster, timeout time.Duration) (kgo.Opt, error) {
	values, err := co.OptValues("MetadataMinAge")
	if err != nil {
		return nil, err
	}
	given, ok := values[0].(time.Duration)
	if !ok {
		return nil, errNoMetadataAge
	}
	return kgo.MetadataMinAge(min(given, timeout/3)), nil
}

// newOutputs gives, also along with the outputs, the error of options that kgo
// does not take. The first client
// is made when there is something to produce: one that only acknowledges needs
// none.
func newOutputs(co *core.Cluster, transactionalID string, cfg config) (*outputs, error) {
	age, err := metadataAge(co, cfg.timeout)
	o := &outputs{core: co, manual: cfg.manual, asks: &asks{}, opts: append(slices.Concat([]kgo.Opt{kgo.UnknownTopicRetries(topicRetries), age}, cfg.kafka),
		kgo.TransactionalID(transactionalID), kgo.TransactionTimeout(cfg.timeout),
		kgo.ConcurrentTransactionsBackoff(followBackoff), txnmanager.PinEndTxn(),
	)}
	if err == nil {
		err = co.CheckClient(o.clientOpts()...)
	}
	if err == nil && len(cfg.manual) > 0 {
		var opt kgo.Opt
		if opt, err = manually(co, cfg.manual, o.opts); err == nil {
			o.opts = append(o.opts, opt)
		}
	}
	return o, err
}

func (o *outputs) newClient() (*kgo.Client, error) { return o.core.NewClient(o.clientOpts()...) }

func (o *outputs) clientOpts() []kgo.Opt {
	return append([]kgo.Opt{kgo.WithHooks(o.asks)}, o.opts...)
}

// Open implements txnmanager.Outputs.
func (o *outputs) Open(ctx context.Context, fresh bool) (int64, int16, error) {
	cl, err := o.take(fresh)
	if err != nil {
		return -1, -1, err
	}
	id, epoch, err := cl.ProducerID(ctx)
	if err == nil && (id < 0 || epoch < 0) {
		err = fmt.Errorf("%w: the broker gives no producer ids", sharetxn.ErrUnsupported)
	}
	if err == nil {
		// With a producer id at hand this does no I/O.
		err = cl.BeginTransaction()
	}
	o.opened = o.asks.inits.Load()
	return id, epoch, err
}

// take gives the client to use, a new one if the present one is behind or gone.
func (o *outputs) take(fresh bool) (*kgo.Client, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.closed:
		return nil, sharetxn.ErrClosed
	case o.client != nil && !(fresh && o.used):
		o.used = true
		return o.client, nil
	}
	cl, err := o.newClient()
	if err != nil {
		return nil, err
	}
	if old := o.client; old != nil {
		// It has nothing to send any more. kgo waits a little for its metrics.
		o.wg.Go(old.Close)
	}
	o.client, o.used = cl, true
	return cl, nil
}

// Drop implements txnmanager.Outputs.
func (o *outputs) Drop() {
	o.mu.Lock()
	old := o.client
	o.client = nil
	o.mu.Unlock()
	if old != nil {
		old.Close()
	}
}

// refused looks at why a record was not delivered. kgo refuses at once what names
// a partition that it does not know, and asks for metadata every few minutes only:
// the topic may have been widened since.
func (o *outputs) refused(topic string, err error) {
	if _, broker := errors.AsType[*kerr.Error](err); broker || !slices.Contains(o.manual, topic) {
		return
	}
	if cl := o.present(); cl != nil {
		cl.ForceMetadataRefresh()
	}
}

func (o *outputs) present() *kgo.Client {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.client
}

// Flush implements txnmanager.Outputs.
func (o *outputs) Flush(ctx context.Context) error { return o.present().Flush(ctx) }

// Discard implements txnmanager.Outputs.
func (o *outputs) Discard(ctx context.Context) error { return o.present().AbortBufferedRecords(ctx) }

// Strayed implements txnmanager.Outputs.
func (o *outputs) Strayed() bool { return o.asks.inits.Load() != o.opened }

// Follow implements txnmanager.Outputs: the coordinator takes kgo's EndTxn for a
// retry of ours, and its answer gives kgo the new epoch.
func (o *outputs) Follow(ctx context.Context, commit bool) (int64, int16, error) {
	lapse.For(ctx, o.markers) // that ctx has ended EndTransaction says
	cl, before := o.present(), o.asks.ends.Load()
	if err := cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
		return -1, -1, err
	}
	o.markers = patience(o.markers, o.asks.ends.Load()-before)
	return cl.ProducerID(ctx)
}

// Close implements txnmanager.Outputs.
func (o *outputs) Close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.Drop()
	o.wg.Wait()
}
