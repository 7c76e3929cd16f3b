// Package tail reads the commit ledger of one group: all of it when it is
// opened, and then without a gap what is written to it. It owns the indexes of
// the ledger's partitions, says what they say of a record, and refuses a commit
// that they do not allow. All I/O of the ledger's decisions is here; what is
// decided is package index's.
package tail

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/core"
	"github.com/sharetxn/sharetxn/internal/ledger/entry"
	"github.com/sharetxn/sharetxn/internal/ledger/index"
	"github.com/sharetxn/sharetxn/internal/ledger/topic"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Options of Open. The zero Options are those of a Processor under guarantee
// Ledger, but for Guarantee.
type Options struct {
	// Guarantee is what the ledger's generation must name.
	Guarantee string
	// Observe takes the ledger as it is: no generation is refused, at the start
	// or later, and nothing is truncated unasked. For tools that look at it; such
	// a Ledger makes no entries.
	Observe bool
	// Starts is how often the starts of the share partitions are read. Default 5 s.
	Starts time.Duration
	// Widths is how often partitions that are missing are looked for. Default 30 s.
	Widths time.Duration
	// Truncations is about how often the ledger is truncated, with some chance so
	// that processes do not meet. Default 1 min; negative: never.
	Truncations time.Duration
}

func (o Options) withDefaults() Options {
	def := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	def(&o.Starts, 5*time.Second)
	def(&o.Widths, 30*time.Second)
	def(&o.Truncations, time.Minute)
	return o
}

// Ledger is the commit ledger of one group. Safe for concurrent use.
type Ledger struct {
	co     *core.Cluster
	group  string
	topic  string
	id     [16]byte // the ledger topic's
	opts   Options
	client *kgo.Client

	parts   atomic.Pointer[[]*part] // grows, with the topic
	changed signal                  // something may be decided otherwise
	toStart chan struct{}           // asks for the starts to be read now
	toWidth chan struct{}           // asks for the topic to be looked at now
	toEnds  chan struct{}           // asks for where the log ends now
	starts  starts
	told    told

	cancel context.CancelFunc
	wg     sync.WaitGroup

	closing sync.Once

	once  sync.Once
	done  chan struct{}
	err   error                            // set before done is closed
	fixed atomic.Pointer[entry.Generation] // the one that it was opened in
}

// Open reads the ledger of a group up to its present end and goes on reading
// until Close. ctx bounds the opening only. Errors are *sharetxn.Error: fatal
// where the ledger cannot be used as it is (see the sentinels), abortable where
// the brokers could not be asked, or ctx ended first.
func Open(ctx context.Context, co *core.Cluster, group string, opts Options) (_ *Ledger, err error) {
	if err := topic.CheckGroup(op, group); err != nil {
		return nil, err
	}
	l := &Ledger{
		co: co, group: group, topic: topic.Name(group), opts: opts.withDefaults(),
		toStart: make(chan struct{}, 1), toWidth: make(chan struct{}, 1), toEnds: make(chan struct{}, 1), done: make(chan struct{}),
	}
	began := time.Now()
	width, err := l.look(ctx)
	if err != nil {
		return nil, l.wrap(err)
	}
	if l.client, err = l.newClient(); err != nil {
		return nil, l.wrap(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	background, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.parts.Store(new([]*part))
	if err := l.widen(ctx, width); err != nil {
		return nil, l.wrap(err)
	}
	l.wg.Go(func() { l.read(background) })
	if err := l.load(ctx); err != nil {
		return nil, l.wrap(err)
	}
	g, err := l.agreed()
	if err != nil {
		return nil, l.wrap(err)
	}
	l.fixed.Store(&g)
	l.checkGeneration() // one that was read since it was agreed on
	if err := l.firstStarts(ctx); err != nil {
		return nil, l.wrap(err)
	}
	l.wg.Go(func() { l.watch(background) })
	if l.opts.Truncations > 0 && !l.opts.Observe {
		l.wg.Go(func() { l.truncateNowAndThen(background) })
	}
	l.co.Step("loaded")
	l.tell(sharetxn.LedgerEvent{Event: sharetxn.LedgerLoaded, Records: l.Status().Entries, Took: time.Since(began)})
	return l, nil
}

// op names the ledger in errors.
const op = "Ledger"

// wrap makes ours of what brokers or contexts said.
func (l *Ledger) wrap(err error) error {
	return topic.Failed(op, l.group, "Read and Describe on topic "+l.topic, err)
}

// fail ends the ledger: nothing is decided by it any more.
func (l *Ledger) fail(err error) {
	l.once.Do(func() {
		l.err = err
		if !errors.Is(err, sharetxn.ErrClosed) {
			l.tell(sharetxn.LedgerEvent{Event: sharetxn.LedgerEnded, Err: err})
		}
		close(l.done)
		l.changed.fire()
	})
}

// Done is closed when the ledger is not usable any more; Err says why.
func (l *Ledger) Done() <-chan struct{} { return l.done }

// Err is nil until Done is closed. Then it is fatal: the ledger was reset or
// deleted, a newer library writes it, or it was closed.
func (l *Ledger) Err() error {
	select {
	case <-l.done:
		return l.err
	default:
		return nil
	}
}

// Close ends the reading and waits for it; it sends nothing. Idempotent, safe
// for concurrent use, never an error.
func (l *Ledger) Close() error {
	l.closing.Do(func() {
		l.fail(failure("Close", l.group, sharetxn.ErrClosed))
		l.cancel()
		l.client.Close()
		l.wg.Wait()
	})
	return nil
}

// Generation is the one that the ledger was opened in.
func (l *Ledger) Generation() entry.Generation { return *l.fixed.Load() }

// part is nil where the ledger has no such partition.
func (l *Ledger) part(n int32) *part {
	parts := *l.parts.Load()
	if n < 0 || int(n) >= len(parts) {
		return nil
	}
	return parts[n]
}

// agreed is the generation that all partitions are in. One in which this process
// may not work is an error.
func (l *Ledger) agreed() (entry.Generation, error) {
	var states topic.States
	for _, p := range *l.parts.Load() {
		g, err := p.current()
		if err != nil && !errors.Is(err, index.ErrNoGeneration) && !l.opts.Observe {
			return g, failure(op, l.group, fmt.Errorf("%w; stop all members, then: %s", err, resetCommand(l.group)))
		}
		states = append(states, topic.State{Generation: g})
	}
	g, err := states.Current()
	switch {
	case l.opts.Observe:
		return g, nil
	case err != nil:
		return g, topic.Unusable(op, l.group, err)
	case g.Guarantee != l.opts.Guarantee:
		return g, failure(op, l.group, &GuaranteeError{Recorded: g, Want: l.opts.Guarantee})
	}
	return g, nil
}
