package txn

import "time"

// Image is a transactional id as it is kept.
type Image struct {
	ID            string
	Status        Status
	ProducerID    int64
	ProducerEpoch int16
	Prev          *Key          `json:",omitempty"` // whom the present identity follows: identity.prev
	Writer        Key           // of the transaction in Partitions
	Timeout       time.Duration // of the transaction
	Began         time.Time
	Partitions    []Partition `json:",omitempty"` // of the transaction that is ongoing or ending
	Offsets       bool        `json:",omitempty"` // group offsets belong to it
	ByProducer    bool        `json:",omitempty"` // of one that is ending: Event.ByProducer
}

// keep gives the id to whoever keeps it; c.mu is held.
func (c *Coordinator) keep(t *transaction) {
	if c.cfg.Keep == nil {
		return
	}
	x := Image{
		ID: t.name, Status: t.status, ProducerID: t.id, ProducerEpoch: t.epoch, Writer: t.writer,
		Timeout: t.timeout, Began: t.began, Partitions: partitions(t.parts), Offsets: t.offsets, ByProducer: t.byProducer,
	}
	if t.hasPrev {
		x.Prev = &Key{t.prevID, t.prevEpoch}
	}
	c.cfg.Keep(x)
}

// Restore takes in what was kept, before anything else is asked of the
// coordinator. Open transactions go on, with the time that is left to them; of
// those that were ending, markers are written from here on. An id whose
// transaction began before a timeout that has passed is aborted at once.
func (c *Coordinator) Restore(all []Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range all {
		t := &transaction{
			name: x.ID, identity: identity{status: x.Status, id: x.ProducerID, epoch: x.ProducerEpoch, prevID: -1, prevEpoch: -1},
			writer: x.Writer, timeout: x.Timeout, began: x.Began, offsets: x.Offsets, byProducer: x.ByProducer, parts: make(map[Partition]struct{}),
		}
		if x.Prev != nil {
			t.prevID, t.prevEpoch, t.hasPrev = x.Prev.ProducerID, x.Prev.ProducerEpoch, true
		}
		for _, p := range x.Partitions {
			t.parts[p] = struct{}{}
		}
		c.txns[x.ID] = t
		switch {
		case x.Status == Ongoing:
			c.watch(t)
		case x.Status.preparing():
			c.finish(t)
		}
	}
}
