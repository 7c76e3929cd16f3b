package broker

import (
	"sync"

	"github.com/sharetxn/sharetxn/internal/broker/frame"
	"github.com/sharetxn/sharetxn/internal/broker/txn"
	"github.com/sharetxn/sharetxn/internal/wire"
)

// links says which brokers do not reach each other. What crosses brokers is: the
// coordinator's markers to leaders, and leaders' registrations and member checks
// at coordinators. Clients reach all brokers, and kfake's inside is one.
type links struct {
	mu      sync.Mutex
	cut     map[[2]int32]bool // lower node first
	changed chan struct{}     // closed and replaced when a way may have opened
}

func link(a, b int32) [2]int32 { return [2]int32{min(a, b), max(a, b)} }

// Part cuts two brokers off from each other, until Heal. Meanwhile, where one
// coordinates and the other leads: markers, also those of staged records, wait;
// a produce to a partition that is not part of the transaction yet is answered
// NOT_ENOUGH_REPLICAS, as Kafka's leaders do; staging is answered
// COORDINATOR_NOT_AVAILABLE.
func (c *Cluster) Part(a, b int32) {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	if a != b {
		c.links.cut[link(a, b)] = true
	}
}

// Heal undoes Part.
func (c *Cluster) Heal(a, b int32) {
	c.links.mu.Lock()
	defer c.links.mu.Unlock()
	delete(c.links.cut, link(a, b))
	c.links.wakeLocked()
}

// wake lets those who wait look again.
func (l *links) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wakeLocked()
}

func (l *links) wakeLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// whole tells whether all nodes reach each other.
func (l *links) whole() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.cut) == 0
}

// between is nil where two nodes reach each other; else it is closed when that
// may have changed. It asks who they are only if any two are parted: that asks
// kfake.
func (l *links) between(nodes func() (a, b int32)) <-chan struct{} {
	if l.whole() {
		return nil
	}
	l.mu.Lock()
	changed := l.changed // from before it is asked who leads
	l.mu.Unlock()
	a, b := nodes()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cut[link(a, b)] {
		return nil
	}
	return changed
}

// parted gives the answer to a staging request whose leader does not reach one
// of the coordinators that it needs: of the transaction, to register, and of the
// group, which knows the member. It is looked at before anything else in the
// request, so that errors which the leader sees by itself come only after Heal.
func (c *Cluster) parted(node int32, q frame.Request) (resp *wire.Response, parted bool) {
	staging := c.staging(node)
	if staging == wire.None || q.Key != staging.Key() || c.links.whole() {
		return nil, false
	}
	cut := func(name string) bool {
		return c.links.between(func() (int32, int32) { return node, c.kf.CoordinatorFor(name) }) != nil
	}
	if m, err := q.Message(staging); err == nil {
		req := m.(*wire.Request)
		if req.TransactionalID != nil && (cut(*req.TransactionalID) || cut(req.GroupID)) {
			resp = req.ResponseKind().(*wire.Response)
			resp.ErrorCode = codeCoordinatorNotAvailable
		}
	}
	return resp, resp != nil
}

const codeCoordinatorNotAvailable = 15

// TreatMarkers: see txn.Coordinator.TreatMarkers.
func (c *Cluster) TreatMarkers(fn func(txn.Marker) txn.Treatment) { c.txns.TreatMarkers(fn) }
