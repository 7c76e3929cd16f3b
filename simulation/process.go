package simulation

import (
	"context"
	"log/slog"
	"time"

	"github.com/sharetxn/sharetxn"
	"github.com/sharetxn/sharetxn/internal/lapse"
	"github.com/sharetxn/sharetxn/internal/testkit"
	"github.com/sharetxn/sharetxn/processor"
	"github.com/twmb/franz-go/pkg/kgo"
)

// process is one life of a service's process: it starts over by itself when it
// ends with an error, as a pod does, until it is stopped, killed or replaced.
type process struct {
	w    *world
	name string
	gate *testkit.Gate
	soft context.Context // ends when it is to stop
	stop context.CancelFunc
	hard context.Context // ends when it was killed
	cut  context.CancelFunc
	done chan struct{}
	held time.Time // until when; w.mu
}

func (w *world) start(name string) {
	p := &process{w: w, name: name, gate: testkit.NewGate(w.dial), done: make(chan struct{})}
	p.soft, p.stop = context.WithCancel(context.Background())
	p.hard, p.cut = context.WithCancel(context.Background())
	w.mu.Lock()
	w.current[name] = p
	w.all = append(w.all, p)
	w.mu.Unlock()
	go p.supervise()
}

// named gives the newest of that name, if it works.
func (w *world) named(name string) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.current[name]; p != nil && p.works() {
		return p
	}
	return nil
}

func (w *world) stop(name string) {
	if p := w.named(name); p != nil {
		p.stop()
	}
}

func (w *world) kill(name string) {
	if p := w.named(name); p != nil {
		p.kill()
	}
}

func (w *world) holdUp(name string, d time.Duration) {
	if p := w.named(name); p != nil {
		w.mu.Lock()
		if until := time.Now().Add(d); until.After(p.held) {
			p.held = until
		}
		w.mu.Unlock()
		p.gate.Hold()
		time.AfterFunc(d, p.goOn)
	}
}

// goOn lets go a process that was held, unless it is held longer.
func (p *process) goOn() {
	p.w.mu.Lock()
	due := !time.Now().Before(p.held)
	p.w.mu.Unlock()
	if due {
		p.gate.Open()
	}
}

func (p *process) kill() {
	p.gate.Kill()
	p.cut()
	p.stop()
}

// works tells whether nobody has stopped or killed it.
func (p *process) works() bool { return p.soft.Err() == nil }

// newest tells whether it was not replaced; w.mu is not held.
func (p *process) newest() bool {
	p.w.mu.Lock()
	defer p.w.mu.Unlock()
	return p.w.current[p.name] == p
}

func (p *process) supervise() {
	defer close(p.done)
	for {
		err := p.live()
		p.w.note("%s: ended: %v", p.name, err)
		if !p.works() || !p.newest() || !lapse.For(p.soft, time.Second) {
			return
		}
	}
}

// live is one life, on connections of its own.
func (p *process) live() error {
	cl := p.w.kit.Connect(p.w.t, sharetxn.Kafka(kgo.Dialer(p.gate.Dial)), sharetxn.Logger(slog.New(slog.DiscardHandler)),
		sharetxn.WithHooks(&watch{world: p.w, process: p.name, unknown: make(map[string]bool)}))
	defer cl.Close()
	switch p.w.setup.Form {
	case FormProcessor:
		return p.process(cl)
	case FormAcknowledger:
		return p.carry(cl)
	default:
		return p.direct(cl)
	}
}

// process lives with package processor.
func (p *process) process(cl *sharetxn.Cluster) error {
	s := p.w.setup
	c := processor.Config{
		Group: group, Topics: []string{topicIn}, Instance: p.name, Guarantee: s.Guarantee, DeadLetter: processor.DeadLetter{Topic: topicDead},
		Members: s.Members, Concurrency: s.Concurrency, MaxRecords: s.Batch, TransactionTimeout: s.Timeout, LockMargin: s.Timeout / 10,
	}
	if s.Handler == HandlerBatch {
		c.BatchHandler = p.handleAll
	} else {
		c.Handler = p.handle
	}
	pr, err := processor.New(cl, c)
	if err != nil {
		return err
	}
	defer context.AfterFunc(p.hard, func() { _ = pr.Stop(p.hard) })()
	return pr.Run(p.soft)
}

// meet is what a call of its handler meets.
func (p *process) meet(ctx context.Context) error {
	if d, ok := p.w.moods.deafens(); ok {
		p.w.deafen(p.name, d)
	}
	err := p.w.moods.meet(ctx)
	if err != nil {
		p.w.note("%s: a call of the handler fails: %v", p.name, err)
	}
	return err
}

func (p *process) handle(ctx context.Context, in *processor.Record) ([]*kgo.Record, error) {
	if err := p.meet(ctx); err != nil {
		return nil, err
	}
	v := string(in.Value)
	if isPoison(v) {
		return nil, processor.Reject(errPoison)
	}
	return traced(p.w.makes(v), in.Partition, in.Offset), nil
}

// handleAll decides half of the records before it meets with what the script wants:
// these stand when it fails.
func (p *process) handleAll(ctx context.Context, in *processor.Batch) error {
	rs := in.Records()
	for i, r := range rs {
		if i == len(rs)/2 {
			if err := p.meet(ctx); err != nil {
				return err
			}
		}
		if v := string(r.Value); isPoison(v) {
			in.Reject(r, errPoison)
		} else {
			in.Accept(r, traced(p.w.makes(v), r.Partition, r.Offset)...)
		}
	}
	return nil
}
