package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Plan is faults planned and what became of them. Safe for concurrent use. Give
// its Intercept to the cluster.
//
// A request meets one fault at most: the first planned that is due. Another one
// that is due at the same request takes the next that it matches.
type Plan struct {
	seed uint64

	mu      sync.Mutex
	planned []*Planned
	firings []Firing
}

// New makes an empty Plan. The seed decides all chances.
func New(seed uint64) *Plan { return &Plan{seed: seed} }

// Planned is a fault of a Plan. Safe for concurrent use.
type Planned struct {
	name  string
	fault Fault
	plan  *Plan
	told  chan struct{} // closed when it fired

	count     counter
	err       error
	cancelled bool
}

// Firing is one time that a fault fired.
type Firing struct {
	Fault        *Planned
	At           time.Time
	Nth          int // of those that the fault matches, from 1
	Node         int32
	Conn         uint64
	Key, Version int16
	Request      int // of this key on the cluster, from 1
}

// Add plans a fault: from now on requests count.
func (p *Plan) Add(f Fault) *Planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.When = f.withDefaults()
	x := &Planned{name: f.String(), fault: f, plan: p, told: make(chan struct{})}
	// Dice of its own: requests of one fault do not move the other's chances.
	x.count = counter{When: f.When, dice: rand.New(rand.NewPCG(p.seed, uint64(len(p.planned))))}
	p.planned = append(p.planned, x)
	return x
}

// Intercept is for broker.Config or SetIntercept.
func (p *Plan) Intercept() broker.Intercept { return p.intercept }

func (p *Plan) intercept(r broker.Request) broker.Action {
	p.mu.Lock()
	defer p.mu.Unlock()
	var (
		taken bool
		out   broker.Action
	)
	for _, x := range p.planned {
		if !x.matches(r) || !x.count.match() || taken {
			continue
		}
		act, err := x.fault.action(r)
		if err != nil {
			x.count.owed--
			x.err = fmt.Errorf("%s: %w", x.name, err)
			continue
		}
		taken, out = true, act
		x.fire()
		p.firings = append(p.firings, Firing{
			Fault: x, At: time.Now(), Nth: x.count.seen, Node: r.Node, Conn: r.Conn, Key: r.Key, Version: r.Version, Request: r.Nth,
		})
	}
	return out
}

// fire counts and tells; the plan's lock is held.
func (x *Planned) fire() {
	if x.count.fire(); x.count.fired == 1 {
		close(x.told)
	}
}

func (x *Planned) matches(r broker.Request) bool {
	key := x.fault.Key == r.Key
	if x.fault.Key == StageKey {
		key = r.Staging()
	}
	return key && !x.cancelled && !slices.ContainsFunc(x.fault.Only, func(m Match) bool { return !m(r) })
}

func (f Fault) action(r broker.Request) (out broker.Action, err error) {
	if f.Action.make != nil {
		if out, err = f.Action.make(r); err != nil {
			return broker.Action{}, err
		}
	}
	out.Before, out.Then = f.Before, f.Then
	return out, nil
}

func (x *Planned) String() string { return x.name }

// Fired is closed when the fault has fired for the first time.
func (x *Planned) Fired() <-chan struct{} { return x.told }

// Count is how often it has fired.
func (x *Planned) Count() int {
	x.plan.mu.Lock()
	defer x.plan.mu.Unlock()
	return x.count.fired
}

// Err says why it could not fire when it was due; nil if it could.
func (x *Planned) Err() error {
	x.plan.mu.Lock()
	defer x.plan.mu.Unlock()
	return x.err
}

// Cancel ends it; it is not missed any more.
func (x *Planned) Cancel() {
	x.plan.mu.Lock()
	defer x.plan.mu.Unlock()
	x.cancelled = true
}

// Firings gives all that fired, in order.
func (p *Plan) Firings() []Firing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.firings)
}

// Unfired gives the faults that fired less often than planned, cancelled ones
// left out.
func (p *Plan) Unfired() (out []*Planned) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.planned {
		if !x.cancelled && !x.count.enough(x.count.fired) {
			out = append(out, x)
		}
	}
	return out
}

// transactionalID is the id that a request names.
func transactionalID(m kmsg.Request) (string, bool) {
	var id *string
	switch m := m.(type) {
	case *wire.Request:
		id = m.TransactionalID
	case *kmsg.ProduceRequest:
		id = m.TransactionID
	case *kmsg.InitProducerIDRequest:
		id = m.TransactionalID
	case *kmsg.AddPartitionsToTxnRequest:
		id = &m.TransactionalID
	case *kmsg.AddOffsetsToTxnRequest:
		id = &m.TransactionalID
	case *kmsg.EndTxnRequest:
		id = &m.TransactionalID
	case *kmsg.TxnOffsetCommitRequest:
		id = &m.TransactionalID
	}
	if id == nil {
		return "", false
	}
	return *id, true
}
