package fault

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/broker"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Plan is faults planned and what became of them. Safe for concurrent use. Give
// its Intercept to the cluster, and its Treat too if markers are to have faults.
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
	name    string
	request *Fault       // this
	marker  *MarkerFault // or this
	plan    *Plan
	told    chan struct{} // closed when it fired

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
	Request      int         // of this key on the cluster, from 1
	Marker       *txn.Marker // in place of a request
}

// Add plans a fault of requests: from now on they count.
func (p *Plan) Add(f Fault) *Planned {
	f.When = f.withDefaults()
	return p.add(&Planned{name: f.String(), request: &f}, f.When)
}

func (p *Plan) add(x *Planned, w When) *Planned {
	p.mu.Lock()
	defer p.mu.Unlock()
	x.plan, x.told = p, make(chan struct{})
	// Dice of its own: what meets one fault does not move the other's chances.
	x.count = counter{When: w, dice: rand.New(rand.NewPCG(p.seed, uint64(len(p.planned))))}
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
		if x.request == nil || x.done() || !x.request.matches(r) || !x.count.match() || taken {
			continue
		}
		act, err := x.request.action(r)
		if err != nil {
			x.err = fmt.Errorf("%s: %w", x.name, err)
			continue
		}
		taken, out = true, act
		p.fire(x, Firing{At: time.Now(), Node: r.Node, Conn: r.Conn, Key: r.Key, Version: r.Version, Request: r.Nth})
	}
	return out
}

// fire counts and tells; p.mu is held.
func (p *Plan) fire(x *Planned, f Firing) {
	if x.count.fire(); x.count.fired == 1 {
		close(x.told)
	}
	x.err = nil
	f.Fault, f.Nth = x, x.count.seen
	p.firings = append(p.firings, f)
}

// done tells whether nothing meets the fault any more; the plan's lock is held.
func (x *Planned) done() bool { return x.cancelled || x.count.spent() }

func (f Fault) matches(r broker.Request) bool {
	key := f.Key == r.Key
	if f.Key == StageKey {
		key = r.Staging()
	}
	return key && !slices.ContainsFunc(f.Only, func(m Match) bool { return !m(r) })
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

// Err says why it did not fire when it was last due; nil if it did.
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
