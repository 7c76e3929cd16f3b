package txnmanager

import (
	"context"
	"fmt"
	"slices"

	"github.com/sharetxn/sharetxn"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// debt is the end of a transaction that has to land, and that no landing is about:
// its process is gone, or has lost the transactional id for a while.
type debt struct {
	of     past
	places []place
}

// inherit takes over what an earlier life of the id left; m.mu is held, and nothing
// was done yet as got.
func (m *TransactionManager) inherit(w *will, got identity) {
	p := w.read(got)
	m.past, m.looked = p, make(map[string]bool)
	if left := w.left(p); len(left) > 0 {
		m.debts = append(m.debts, debt{p, left})
	}
}

// pay lands what is owed; the turn is held, and nothing is written. A landing that
// outlasts ctx goes on: it is waited for like any other.
func (m *TransactionManager) pay(ctx context.Context) error {
	for {
		m.mu.Lock()
		owed, known := len(m.debts) > 0, m.ident.known()
		if owed && known {
			m.landDebt()
		}
		m.mu.Unlock()
		if !owed {
			return nil
		}
		if known {
			if err := m.waitLanded(ctx, "Produce"); err != nil {
				return err
			}
		} else if err := m.initialise(ctx); err != nil {
			return err
		}
	}
}

// landDebt begins the landing of the first debt; m.mu is held, the identity known,
// and no landing under way.
func (m *TransactionManager) landDebt() {
	d := m.debts[0]
	m.debts = m.debts[1:]
	if d.of.id != m.ident.id { // nothing of ours can touch it
		return
	}
	m.log.Info("the end of a transaction of an earlier life is looked for", "transactional_id", m.id, "producer_id", d.of.id, "committed", d.of.commit, "partitions", fmt.Sprint(d.places))
	l := m.newLanding(identity{d.of.id, d.of.epoch}, d.of.commit, slices.Values(d.places))
	l.heir = &d.of
	l.complete = true // or nobody could have been given the id
	close(l.told)
	l.begin(false)
}

// opened takes in that a transaction is open at a place. Where that is one of an
// earlier life, it must be the one whose end is known.
func (l *landing) opened(p place, part *kmsg.DescribeProducersResponseTopicPartition) error {
	if l.heir == nil {
		return nil
	}
	epoch := epochOf(part, l.of.id)
	if !l.heir.known || l.heir.epoch != epoch {
		return l.m.undecidable(p, identity{l.of.id, epoch})
	}
	return nil
}

// epochOf is the epoch that a partition's log has of a producer id.
func epochOf(part *kmsg.DescribeProducersResponseTopicPartition, id int64) int16 {
	for _, a := range part.ActiveProducers {
		if a.ProducerID == id {
			return int16(a.ProducerEpoch)
		}
	}
	return -1
}

// undecidable is what is fatal about a transaction that was left open by an earlier
// life: with the next marker of ours it would be decided by chance.
func (m *TransactionManager) undecidable(p place, of identity) error {
	e := m.failure("Produce", sharetxn.ClassFatal, fmt.Errorf("%w: an earlier producer of the transactional id left a transaction open there (producer id %d, epoch %d), brokers lost its marker, and nobody can tell any more how it ended: "+
		"have an administrator look at its records and end it (kafka-transactions.sh abort, or WriteTxnMarkers), or give the service another transactional id", sharetxn.ErrNotLanded, of.id, of.epoch))
	e.Topic, e.Partition = p.topic, p.partition
	return e
}

// Reach makes sure, before records go to topics for the first time since the id was
// taken, that no transaction of an earlier life is open there, which the end of this
// one would decide along with its own. One that is, is ended first, as it was to
// end, and this transaction has to be run again. An error makes it abort-only. To be
// called between OpenOutputs and the first record of a topic. Safe for concurrent
// use.
func (t *Transaction) Reach(ctx context.Context, records []*kgo.Record) error {
	m := t.m
	topics := m.unlooked(records)
	if len(topics) == 0 {
		return nil
	}
	ctx, free := m.leash.bound(ctx, m.cfg.resolve)
	defer free()
	if err := m.takeTurn(ctx); err != nil {
		return t.FailWith(m.failure("Produce", sharetxn.ClassAbortable, err))
	}
	defer m.endTurn()
	if _, err := t.producing(); err != nil {
		return err
	}
	for _, topic := range topics {
		if err := m.lookAt(ctx, topic); err != nil {
			if sharetxn.IsFatal(err) {
				err = m.fence("Produce", err)
			}
			return t.FailWith(err)
		}
	}
	return nil
}

// unlooked are the topics of records where an earlier life may have left something.
func (m *TransactionManager) unlooked(records []*kgo.Record) (topics []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.past.id < 0 {
		return nil
	}
	last := ""
	for _, r := range records {
		if r.Topic != last && !m.looked[r.Topic] && !slices.Contains(topics, r.Topic) {
			topics = append(topics, r.Topic)
		}
		last = r.Topic
	}
	return topics
}

// lookAt asks the leaders of all partitions of a topic what is open there; the turn
// is held and no landing is under way.
func (m *TransactionManager) lookAt(ctx context.Context, topic string) error {
	m.mu.Lock()
	p, done := m.past, m.looked[topic]
	m.mu.Unlock()
	if done { // meanwhile, and this transaction may have written to it
		return nil
	}
	l := m.newLanding(identity{p.id, -1}, false, slices.Values[[]place](nil))
	l.heir = &p
	var pause backoff
	for {
		open, err := l.lookOnce(ctx, topic)
		switch {
		case sharetxn.IsFatal(err):
			return err
		case len(open) > 0:
			m.mu.Lock()
			m.debts = append(m.debts, debt{p, open})
			m.mu.Unlock()
			e := m.failure("Produce", sharetxn.ClassAbortable, fmt.Errorf("%w: a transaction of an earlier producer of the transactional id: %w; run this one again", sharetxn.ErrNotLanded, errMarkerLost))
			e.Topic, e.Partition = open[0].topic, open[0].partition
			return e
		case err == nil && len(l.todo) == 0:
			m.mu.Lock()
			m.looked[topic] = true
			m.mu.Unlock()
			return nil
		}
		if ended := pause.wait(ctx); ended != nil {
			return m.failure("Produce", sharetxn.ClassAbortable, fmt.Errorf("%w: whether a transaction of an earlier producer of the transactional id is open in topic %s: %w (%w)", sharetxn.ErrNotLanded, topic, cause(ctx), err))
		}
	}
}

// lookOnce asks the leaders of a topic's partitions what is open there, and first
// which they are, until that is known. A topic that is not there has none.
func (l *landing) lookOnce(ctx context.Context, topic string) (open []place, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if len(l.fresh) == 0 {
		there, passing, err := l.m.metadata(ctx, topic)
		if err != nil {
			return nil, err
		}
		if code := passing[topic]; code != 0 {
			return nil, fmt.Errorf("metadata: %w", codeError(code))
		}
		for p := range there {
			l.todo[p], l.fresh[p] = doubt{}, true
		}
	}
	return l.ask(ctx)
}
