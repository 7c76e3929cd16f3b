package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/cmd/sharetxn/internal/link"
	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// fleet is the service's replicas: for each member a slot in which a process
// runs, and another one when that is gone, as an orchestrator has it.
type fleet struct {
	cfg     Config
	site    site
	times   times
	count   *counts
	handler *handler
	watch   func(*process, frame.Request) link.Fate
	log     *slog.Logger
	fail    func(error) // ends the run

	slots []*slot

	mu        sync.Mutex
	processes []*process // all that were started
}

// slot is a replica's place; its name is the Instance.
type slot struct {
	name string
	now  *process // guarded by fleet.mu
}

// process is one member of the group with a network of its own.
type process struct {
	slot   *slot
	link   *link.Link
	run    func(context.Context) error
	kill   func() // ends it hard
	killed bool   // guarded by fleet.mu

	done chan struct{}
	err  error // once done is closed
}

func newFleet(cfg Config, at site, now times, count *counts, h *handler, log *slog.Logger, fail func(error)) *fleet {
	f := &fleet{cfg: cfg, site: at, times: now, count: count, handler: h, log: log, fail: fail}
	for n := range cfg.Members {
		f.slots = append(f.slots, &slot{name: fmt.Sprintf("p%d", n)})
	}
	return f
}

// process is the one that runs in a slot now.
func (f *fleet) process(s *slot) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return s.now
}

// startAll starts a process in each slot.
func (f *fleet) startAll(ctx context.Context) error {
	for _, s := range f.slots {
		if err := f.start(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// start starts a process in a slot, beside what runs there still: it has the
// same Instance and takes over.
func (f *fleet) start(ctx context.Context, s *slot) error {
	p, closeAll, err := f.make(s)
	if err != nil {
		return fmt.Errorf("process %s: %w", s.name, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		closeAll()
		return context.Cause(ctx)
	}
	s.now = p
	f.processes = append(f.processes, p)
	f.cfg.Dead.Go(func() {
		p.err = p.run(ctx)
		closeAll()
		f.ended(ctx, s, p)
		close(p.done)
	})
	return nil
}

var errUnasked = errors.New("nobody had stopped it")

// ended starts anew in a slot whose process was fenced though nobody took over:
// its transaction had timed out while it was paused, or too slow.
func (f *fleet) ended(ctx context.Context, s *slot, p *process) {
	f.mu.Lock()
	expected := ctx.Err() != nil || s.now != p || p.killed
	f.mu.Unlock()
	if expected {
		return
	}
	err := p.err
	switch {
	case err == nil:
		err = errUnasked
	case errors.Is(err, sharetxn.ErrFenced):
		f.log.Warn("process fenced, starting anew", "process", s.name, "err", err)
		if err = f.start(ctx, s); err == nil {
			return
		}
	}
	f.fail(fmt.Errorf("process %s ended: %w", s.name, err))
}

// kill ends the process of a slot as SIGKILL would: its connections end, and
// whatever it does after that reaches nobody. Another one is started.
func (f *fleet) kill(ctx context.Context, s *slot) error {
	f.mu.Lock()
	p := s.now
	p.killed = true
	f.mu.Unlock()
	p.link.Cut()
	f.cfg.Dead.Go(p.kill)
	return f.start(ctx, s)
}

// wait waits for all processes but those killed; the run's context must have
// ended.
func (f *fleet) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.processes {
		if p.killed {
			continue
		}
		f.mu.Unlock()
		<-p.done
		f.mu.Lock()
	}
}

// make makes a process; the function closes what it was made of.
func (f *fleet) make(s *slot) (*process, func(), error) {
	p := &process{slot: s, done: make(chan struct{})}
	p.link = &link.Link{Watch: func(q frame.Request) link.Fate { return f.watch(p, q) }}
	cl, err := sharetxn.Connect(
		sharetxn.Kafka(kgo.SeedBrokers(f.site.seeds()...), kgo.ClientID("demo-"+s.name), kgo.Dialer(p.link.DialContext), kgo.MetadataMinAge(metadataMinAge), kgo.DisableClientMetrics()),
		sharetxn.WithProfile(f.cfg.Profile), sharetxn.Logger(f.log.With("process", s.name)), sharetxn.WithHooks(f.count))
	if err != nil {
		return nil, nil, err
	}
	if err := f.makeProcessor(p, cl); err != nil {
		cl.Close()
		return nil, nil, err
	}
	return p, cl.Close, nil
}

func (f *fleet) makeProcessor(p *process, cl *sharetxn.Cluster) error {
	at := f.site.names()
	m, err := processor.New(cl, processor.Config{
		Group: at.group, Topics: []string{at.Source}, Handler: f.handler.handle, Instance: p.slot.name, Guarantee: f.cfg.Guarantee,
		DeadLetter: processor.DeadLetter{Topic: at.Dead}, MaxRecords: f.cfg.Batch,
		TransactionTimeout: f.times.txn, LockMargin: f.times.margin, StopTimeout: stopTimeout,
	})
	if err != nil {
		return err
	}
	p.run = m.Run
	p.kill = func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		_ = m.Stop(now) // says only that it was hard
	}
	return nil
}
