package txn

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sharetxn/sharetxn/internal/lapse"
)

// Marker is the end of a transaction on its way to one partition.
type Marker struct {
	TransactionalID string
	Writer          Key
	Commit          bool
	Partition       Partition
	Share           bool // for what is staged of the partition's records, not for its log
}

// epoch is the marker's: the one after the transaction's (KIP-890).
func (m Marker) epoch() int16 { return m.Writer.ProducerEpoch + 1 }

// Treatment is what becomes of a marker; the zero Treatment writes it at once.
type Treatment struct {
	Delay time.Duration   // write it only after so long
	Wait  <-chan struct{} // write it only when this is closed
	// Lose never writes it, and the transaction completes all the same: what Kafka
	// 4.3 and 4.4 do with the marker of a log without a leader. Only for markers of logs.
	Lose bool
	// Repeat writes it once more, counted from the first writing; the transaction
	// does not wait for that. Nil: no.
	Repeat *Treatment
}

// TreatMarkers sets a function that is asked about each marker before it is
// written. It must not block. While a marker waits the transaction stays in
// Prepare*, and EndTxn is answered, as Kafka always does; without one that
// waits EndTxn is answered after markers and acknowledgements are applied. Nil
// undoes it.
func (c *Coordinator) TreatMarkers(fn func(Marker) Treatment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.treat = fn
}

// markers are all that the transaction needs, logs first, each kind in order of
// partitions. From here on nothing is staged in it. The transaction's partitions
// are read without a lock: nothing is added to one that ends.
func (c *Coordinator) markers(t *transaction, key Key, commit bool) (out []Marker) {
	for _, p := range partitions(t.parts) {
		if p.Topic != c.cfg.StateTopic {
			out = append(out, Marker{TransactionalID: t.name, Writer: key, Commit: commit, Partition: p})
		}
	}
	for _, p := range c.cfg.Backend.Staged(key.ProducerID, key.ProducerEpoch+1) {
		out = append(out, Marker{TransactionalID: t.name, Writer: key, Commit: commit, Partition: p, Share: true})
	}
	return out
}

// apply carries the decision to the logs, the groups and the share engine.
// Markers that need not wait are written in order; those that do hold up nobody
// else, and held is called once if there is one.
func (c *Coordinator) apply(ctx context.Context, t *transaction, key Key, commit bool, treat func(Marker) Treatment, held func()) error {
	t.writes.Wait()
	var (
		waiting sync.WaitGroup
		mu      sync.Mutex
		errs    []error
	)
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		errs = append(errs, err)
	}
	for _, m := range c.markers(t, key, commit) {
		var how Treatment
		if treat != nil {
			how = treat(m)
		}
		if how.Lose && !m.Share {
			c.cfg.Logger.Info("marker lost", "id", m.TransactionalID, "topic", m.Partition.Topic, "partition", m.Partition.Partition)
			c.cfg.Backend.LostMarker(m.Partition, m.Writer)
			continue
		}
		if how.Delay <= 0 && how.Wait == nil && c.cfg.Backend.Cut(m.TransactionalID, m.Partition) == nil {
			failed(c.write(ctx, m, how.Repeat))
			continue
		}
		held()
		waiting.Go(func() { failed(c.writeLate(ctx, m, how)) })
	}
	if t.offsets {
		failed(c.cfg.Backend.EndOffsets(ctx, key, commit))
	}
	waiting.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	c.cfg.Backend.ShareOutcome(key.ProducerID, key.ProducerEpoch+1, commit)
	return nil
}

// writeLate waits as the Treatment says, and until the partition can be reached.
func (c *Coordinator) writeLate(ctx context.Context, m Marker, how Treatment) error {
	if how.Delay > 0 && !lapse.For(ctx, how.Delay) {
		return ctx.Err()
	}
	if how.Wait != nil {
		select {
		case <-how.Wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for cut := c.cfg.Backend.Cut(m.TransactionalID, m.Partition); cut != nil; cut = c.cfg.Backend.Cut(m.TransactionalID, m.Partition) {
		select {
		case <-cut:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return c.write(ctx, m, how.Repeat)
}

// write writes the marker, and has it written again if repeat says so.
func (c *Coordinator) write(ctx context.Context, m Marker, repeat *Treatment) error {
	if m.Share {
		c.cfg.Backend.Resolve(m.Partition, m.Writer.ProducerID, m.epoch(), m.Commit)
	} else if err := c.cfg.Backend.WriteMarker(ctx, m.Partition, m.Writer.ProducerID, m.epoch(), m.Commit); err != nil {
		return err
	}
	if repeat != nil {
		c.wg.Go(func() {
			if err := c.writeLate(ctx, m, *repeat); err != nil {
				c.cfg.Logger.Info("marker not repeated", "id", m.TransactionalID, "err", err)
			}
		})
	}
	return nil
}
